// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/rpc/server_security.h"

namespace specwire::coordinator {

// How requests speculate that do not say otherwise.
struct SpeculationDefaults {
  // Draft tokens in one proposal, 1 to kMaxRunLength.
  int run_length = 4;
  // How far a drafter works ahead of the last commit, run_length to kMaxWindow.
  // A request that asks for longer proposals gets at least two of them.
  int window = 8;
  // Longest that a verifier waits for a proposal; whether it waits is decided
  // from how drafts fare. InfiniteDuration is lock-step, which always waits.
  absl::Duration patience = absl::Milliseconds(10);
};

// What is told of a request's acceptance: figures over all of it, or those of
// each step too.
enum class SpecDecodeMetrics { kNone, kSummary, kDetailed };

// Everything that is set about a coordinator.
struct CoordinatorOptions {
  // HOST:PORT for gRPC; port 0 takes a free one.
  std::string listen = "127.0.0.1:7070";
  // HOST:PORT for HTTP; empty: not served.
  std::string http;
  // Metrics that vLLM has too are told under its names as well.
  bool metrics_vllm_aliases = false;
  // What OpenAI's routes tell of the acceptance of each request.
  SpecDecodeMetrics per_request_spec_decode_metrics =
      SpecDecodeMetrics::kSummary;
  // HTTP has TLS, with the files of `security`.
  bool http_tls = false;
  // Serves gRPC reflection.
  bool reflection = true;
  ServerSecurity security;
  // File with the users' keys, see ApiKeys; empty: none are asked for.
  std::string api_keys;
  // The same of operators, who may drain nodes over HTTP; empty: there are
  // none.
  std::string operator_keys;

  SpeculationDefaults speculation;
  // A drafter that owes an answer for longer is taken for lost.
  absl::Duration drafter_deadline = absl::Seconds(2);
  // A node's stream on which nothing has been heard for longer, not even that
  // the node has it, is taken for lost.
  absl::Duration stream_deadline = absl::Seconds(15);

  // Generate calls at once; more are refused.
  int max_concurrent_requests = 8192;
  // Tokens that a verifier may commit beyond what a client has taken.
  int credit = 128;
  // A client that has taken nothing for longer, though there is something to
  // take, is dropped.
  absl::Duration client_stall = absl::Seconds(60);
  // Threads that tokenize.
  int num_workers = 2;

  // Time between two load reports of a node.
  absl::Duration report_interval = absl::Milliseconds(250);
  // A node that has been silent for longer, or has got nowhere for longer
  // though it has work, is suspect: what runs on it goes on elsewhere.
  absl::Duration max_silence = absl::Milliseconds(2500);
  absl::Duration max_stall = absl::Milliseconds(1500);
  // For one attempt to ask a node what it serves.
  absl::Duration probe_deadline = absl::Seconds(10);

  // Time that running requests have to end at shutdown.
  absl::Duration grace = absl::Seconds(2);
};

// INVALID_ARGUMENT naming the option and its limit.
absl::Status ValidateOptions(const CoordinatorOptions& options);

}  // namespace specwire::coordinator
