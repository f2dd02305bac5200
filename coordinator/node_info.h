// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/model/engine.h"
#include "coordinator/routing.h"

namespace specwire::coordinator {

enum class NodeRole { kDraft, kVerifier };

// See NodeState of proto/specwire/v1/cluster.proto.
enum class NodeState {
  kJoining,
  kServing,
  kSuspect,
  kDraining,
  kIncompatible,
  kGone,
};

// "draft", "verifier"; for logs and labels.
absl::string_view NodeRoleName(NodeRole role);
// "joining", "serving", ...
absl::string_view NodeStateName(NodeState state);

// What a node says of itself when it joins.
struct NodeIdentity {
  // For people; unique among live nodes.
  std::string name;
  NodeRole role = NodeRole::kDraft;
  // HOST:PORT at which it is reached.
  std::string address;
  // Random for each start of its process.
  std::string incarnation_id;
  int64_t pid = 0;
};

// How busy a node says it is.
struct NodeLoad {
  int32_t num_sequences = 0;
  int64_t kv_blocks_used = 0;
  int64_t kv_blocks_total = 0;
  int64_t progress = 0;
  // Of num_sequences, those that wait for room.
  int32_t num_waiting = 0;
  // Blocks that are kept for their prefixes only.
  int64_t kv_blocks_cached = 0;
  // Its engine has something to do.
  bool working = false;
  // Of a verifier, what passes take over what its step costs told; 0: not told.
  // As the node says it, see TrustedSlowdown.
  double slowdown = 0;
};

// What a verifier serves.
struct VerifierInfo {
  ModelInfo model;
  std::string vocabulary_fingerprint;
  // 0: not told.
  int max_num_sequences = 0;
  // That may wait beyond these.
  int max_queued_sequences = 0;
  // The drafter that it keeps for itself, "suffix" or "hybrid"; empty: none.
  std::string local_drafter = {};
  StepCosts step_costs = {};
};

// What a draft node's drafter is.
struct DrafterInfo {
  // For example "ngram".
  std::string name;
  // Of the vocabulary that it was made for; empty: serves any.
  std::string vocabulary_fingerprint;
  std::string model_digest;
  // 0: no limit.
  int max_model_len = 0;
  int max_num_sequences = 0;
  // See Drafter.
  bool synthetic = false;
};

// A node as the coordinator sees it.
struct NodeInfo {
  std::string node_id;
  NodeIdentity identity;
  NodeState state = NodeState::kJoining;
  // Why it is in that state; empty while it serves.
  std::string reason;
  NodeLoad load;
  // Streams of this coordinator's that run on it.
  int num_running = 0;
  // Set once a verifier has told it.
  std::optional<VerifierInfo> verifier;
  // Of a draft node, the shortest of late; see Registry::OnRoundTrip. 0: not
  // measured yet.
  absl::Duration round_trip;
  // Set once a draft node has told it.
  std::optional<DrafterInfo> drafter;
};

}  // namespace specwire::coordinator
