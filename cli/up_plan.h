// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "cli/child_process.h"
#include "common/drafting/drafter_names.h"
#include "common/model/engine_names.h"
#include "common/rpc/tls_files.h"

namespace specwire::cli {

// The value of --drafter that starts no draft node.
inline constexpr char kNoDrafter[] = "none";

// What `specwire up` was asked for.
struct UpOptions {
  // Of verifiers, and of drafters that have a model.
  std::string engine = kDefaultEngine;
  // One of kDrafterKinds, or kNoDrafter.
  std::string drafter = kHybridDrafter;
  int num_verifiers = 1;
  int num_draft_nodes = 1;
  // Processors to divide among the nodes; at least 1.
  int num_processors = 1;
  // For each verifier; absent: its share of the processors.
  std::optional<int> num_threads;
  std::string listen = "127.0.0.1:7070";
  // "none" serves no HTTP.
  std::string http = "127.0.0.1:8080";
  // First of consecutive ports for the nodes' metrics; port 0 lets each node
  // choose. Absent: none.
  std::optional<std::string> metrics;
  // For all processes.
  bool metrics_vllm_aliases = false;
  // Empty: the default model where it can be found.
  std::string model;
  // Empty: verifiers serve it under the name in its file.
  std::string served_model_name;
  // Empty, for drafters that have a model: the project's own draft model, where
  // that will do and fits the target, else the target's.
  std::string draft_model;
  // What drafts inside verifiers, beside lookups; found by MakeUpPlan.
  std::string local_draft_model;
  // Layers of it, where a part will do; absent: 4 of the target's, or all of a
  // model of its own. Given without a draft_model they are the target's.
  std::optional<int> draft_layers;
  std::optional<int> max_model_len;
  std::optional<int> kv_cache_mib;
  // Sequences at once, for each node.
  std::optional<int> max_num_sequences;
  std::optional<int> max_queued_sequences;
  // Nodes without models, for load tests; see the nodes' own flags.
  bool allow_synthetic = false;
  std::optional<int64_t> synthetic_step_us;
  std::optional<int64_t> synthetic_row_us;
  std::optional<std::string> synthetic_acceptance;
  std::optional<int64_t> synthetic_delay_us;
  std::optional<int> synthetic_vocab;
  std::string log_level = "info";
  // One certificate for all processes. The nodes' addresses are on loopback.
  TlsFiles tls;
  std::string api_keys;
  // See coordinator --help.
  std::string operator_keys;
  bool http_tls = false;
  bool allow_insecure = false;
  // Verifiers serve InspectService.
  bool inspect = false;
  // See coordinator --help; absent: its default.
  std::optional<std::string> per_request_spec_decode_metrics;
};

// Which programs to run.
struct UpPlan {
  ChildSpec coordinator;
  // Verifiers first. The coordinator's address is still to be added to the
  // arguments: its port may be chosen when it starts.
  std::vector<ChildSpec> nodes;
  // The coordinator serves HTTP.
  bool has_http = false;
  // It does so with TLS.
  bool http_tls = false;
  // How the coordinator is asked for its nodes.
  TlsFiles tls;
  // What drafts in the end.
  std::string drafter;
  // How the processors are divided, in a line.
  std::string threads;
};

// Threads of each node.
struct ThreadShares {
  int verifier = 1;
  // 0 for drafters without a model: they need none of their own.
  int draft_node = 0;
};

// Divides the processors in equal parts for the verifiers, at least one each; a
// draft node that computes with a model has one thread beside them. Of one
// sequence drafter and verifier take turns, so they do not contend, and what is
// not drafted is decoded with all that is there.
ThreadShares ShareThreads(const UpOptions& options);

// For example "threads: verifier 2, draft node 1 of 4 processors".
std::string DescribeThreads(const UpOptions& options);

// Makes the plan. `folder` holds the programs. In place of `hybrid` it takes
// `suffix` where neither a draft model nor layers are named and the project's
// own draft model does not fit. INVALID_ARGUMENT for a malformed address,
// NOT_FOUND if no default model is there, FAILED_PRECONDITION if the draft
// model named has another vocabulary than the target, UNAVAILABLE if an address
// is taken.
absl::StatusOr<UpPlan> MakeUpPlan(const UpOptions& options,
                                  const std::string& folder);

// What the coordinator tells on its standard output: "listening on ADDRESS" and
// "http on ADDRESS", a line each. Nodes tell the first.
struct CoordinatorAddresses {
  // Empty until told.
  std::string rpc;
  std::string http;
};
CoordinatorAddresses ParseCoordinatorOutput(absl::string_view output);

// Where to dial a server on this machine that listens on `address`: a wildcard
// stands for the loopback address.
std::string DialAddress(const std::string& address);

}  // namespace specwire::cli
