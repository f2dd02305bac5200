// SPDX-License-Identifier: Apache-2.0
#include "coordinator/registry.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/host_port.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"
#include "common/drafting/drafter_names.h"

namespace specwire::coordinator {
namespace {

constexpr size_t kMaxNameLength = 64;
// Nodes that gave up a coordinator which stood still are back within this.
constexpr absl::Duration kRejoinTime = absl::Milliseconds(2500);
constexpr size_t kMaxIncarnationLength = 64;
// More than any node has; sums of what nodes say stay small.
constexpr int32_t kMaxSequences = 1 << 20;

int32_t TrustedCount(int32_t told) {
  return std::clamp(told, 0, kMaxSequences);
}

bool IsPrintableAscii(absl::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isprint(static_cast<unsigned char>(c));
  });
}

absl::Status CheckIdentity(const NodeIdentity& identity) {
  if (identity.name.empty() || identity.name.size() > kMaxNameLength ||
      !IsPrintableAscii(identity.name)) {
    return absl::InvalidArgumentError(
        absl::StrCat("registration.name: must be 1 to ",
                     kMaxNameLength,
                     " printable ASCII characters"));
  }
  if (identity.role == NodeRole::kDraft && identity.name == kLocalDrafter) {
    // Figures by draft node could not be told apart.
    return absl::InvalidArgumentError(absl::StrCat(
        "registration.name: '",
        kLocalDrafter,
        "' stands for the coordinator's own drafter; give the node another "
        "name"));
  }
  if (identity.incarnation_id.empty() ||
      identity.incarnation_id.size() > kMaxIncarnationLength ||
      !IsPrintableAscii(identity.incarnation_id)) {
    return absl::InvalidArgumentError(
        absl::StrCat("registration.incarnation_id: must be 1 to ",
                     kMaxIncarnationLength,
                     " printable ASCII characters"));
  }
  SPECWIRE_ASSIGN_OR_RETURN(
      const HostPort address,
      ParseHostPort(identity.address, "registration.address"));
  if (address.port == 0) {
    return absl::InvalidArgumentError(
        "registration.address: the port must not be 0");
  }
  return absl::OkStatus();
}

// The start of a digest, for people.
absl::string_view Short(absl::string_view digest) {
  return digest.substr(0, 12);
}

std::string Label(const NodeInfo& info) {
  return absl::StrCat(NodeRoleName(info.identity.role),
                      " node '",
                      info.identity.name,
                      "' (",
                      info.node_id,
                      ", ",
                      info.identity.address,
                      ")");
}

}  // namespace

Registry::Node* Registry::Find(const std::string& node_id) {
  const auto it = nodes_.find(node_id);
  return it == nodes_.end() ? nullptr : &it->second;
}

Registry::Node* Registry::FindLiveByName(const std::string& name) {
  for (auto& [id, node] : nodes_) {
    if (node.info.identity.name == name &&
        node.info.state != NodeState::kGone) {
      return &node;
    }
  }
  return nullptr;
}

Registry::Node* Registry::FindByIncarnation(const NodeIdentity& identity) {
  for (auto& [id, node] : nodes_) {
    const NodeIdentity& other = node.info.identity;
    if (other.incarnation_id == identity.incarnation_id &&
        other.name == identity.name && other.role == identity.role) {
      return &node;
    }
  }
  return nullptr;
}

absl::StatusOr<Registry::Registration> Registry::Register(
    const NodeIdentity& identity, absl::Time now) {
  SPECWIRE_RETURN_IF_ERROR(CheckIdentity(identity));
  MutexLock lock(&mutex_);
  Node* node = FindByIncarnation(identity);
  if (node == nullptr || node->info.state == NodeState::kGone) {
    Node* former = FindLiveByName(identity.name);
    if (former != nullptr) {
      // Two processes cannot listen at one address, so the same name there is
      // the same node started again. Elsewhere a node that still reports is a
      // second one.
      const bool restarted =
          former->info.identity.address == identity.address ||
          former->info.state == NodeState::kSuspect;
      if (!restarted) {
        return absl::AlreadyExistsError(
            absl::StrCat("registration.name: '",
                         identity.name,
                         "' is taken by a live ",
                         NodeRoleName(former->info.identity.role),
                         " node at ",
                         former->info.identity.address,
                         "; give this one another name"));
      }
      SetState(former,
               NodeState::kGone,
               "replaced by a later start of the same node");
    }
  }
  if (node == nullptr) {
    const std::string node_id =
        absl::StrCat(NodeRoleName(identity.role), "-", next_number_++);
    node = &nodes_.try_emplace(node_id, options_.longest_pause).first->second;
    node->info.node_id = node_id;
    node->age = next_number_;
    SPECWIRE_LOG(Info,
                 NodeRoleName(identity.role),
                 " node '",
                 identity.name,
                 "' registered as ",
                 node_id,
                 " at ",
                 identity.address,
                 ", pid ",
                 identity.pid);
  }
  node->info.identity = identity;
  node->attachment = next_number_++;
  node->last_heard = now;
  node->detached_reason.reset();
  Judge(node);
  JudgeDrafters();
  ForgetOldest();
  return Registration{
      node->info.node_id,
      node->attachment,
      node->info.verifier.has_value() || node->info.drafter.has_value()};
}

bool Registry::IsLatest(const Registration& registration) const {
  MutexLock lock(&mutex_);
  const auto it = nodes_.find(registration.node_id);
  return it != nodes_.end() &&
         it->second.attachment == registration.attachment &&
         it->second.info.state != NodeState::kGone;
}

bool Registry::OnLoad(const Registration& registration,
                      const NodeLoad& load,
                      absl::Time now) {
  MutexLock lock(&mutex_);
  Node* node = Find(registration.node_id);
  if (node == nullptr || node->attachment != registration.attachment ||
      node->info.state == NodeState::kGone) {
    return false;
  }
  node->info.load = load;
  node->info.load.num_sequences = TrustedCount(load.num_sequences);
  node->info.load.num_waiting = TrustedCount(load.num_waiting);
  node->last_heard = now;
  const absl::Duration stall =
      node->progress.Observe(load.progress, load.working, now);
  const bool suspect = node->info.state == NodeState::kSuspect;
  if (stall > options_.max_stall && !suspect) {
    SetState(node,
             NodeState::kSuspect,
             absl::StrCat("no progress for more than ",
                          absl::FormatDuration(options_.max_stall),
                          " though it has work"));
    JudgeDrafters();
  } else if (stall <= options_.max_stall && suspect) {
    Judge(node);
    JudgeDrafters();
  }
  return true;
}

bool Registry::StoodStill(absl::Time now) const {
  return now - checked_ > options_.longest_pause ||
         now - resumed_ <= kRejoinTime;
}

void Registry::OnDetached(const Registration& registration,
                          absl::string_view reason,
                          absl::Time now) {
  MutexLock lock(&mutex_);
  Node* node = Find(registration.node_id);
  if (node == nullptr || node->attachment != registration.attachment) return;
  if (StoodStill(now) && !node->drain_reason.has_value()) {
    SPECWIRE_LOG(Info,
                 Label(node->info),
                 " gave up this coordinator, which stood still: it is expected "
                 "back");
    node->detached_reason = std::string(reason);
    node->last_heard = now;
    return;
  }
  SetState(node,
           NodeState::kGone,
           node->drain_reason.has_value()
               ? absl::StrCat("it has drained: ", *node->drain_reason)
               : std::string(reason));
  JudgeDrafters();
  ForgetOldest();
}

void Registry::OnVerifierInfo(const std::string& node_id, VerifierInfo info) {
  MutexLock lock(&mutex_);
  Node* node = Find(node_id);
  if (node == nullptr) return;
  info.max_num_sequences = TrustedCount(info.max_num_sequences);
  info.max_queued_sequences = TrustedCount(info.max_queued_sequences);
  node->info.verifier = std::move(info);
  node->probe_failure.clear();
  if (node->info.state == NodeState::kGone) return;
  if (node->info.state != NodeState::kSuspect) Judge(node);
  JudgeDrafters();
}

void Registry::OnDrafterInfo(const std::string& node_id, DrafterInfo info) {
  MutexLock lock(&mutex_);
  Node* node = Find(node_id);
  if (node == nullptr) return;
  node->info.drafter = std::move(info);
  node->probe_failure.clear();
  JudgeDrafters();
}

void Registry::OnProbeFailed(const std::string& node_id,
                             const absl::Status& status) {
  MutexLock lock(&mutex_);
  Node* node = Find(node_id);
  if (node == nullptr) return;
  node->probe_failure =
      absl::StrCat("cannot be asked what it serves: ", status.ToString());
  if (node->info.state == NodeState::kJoining) Judge(node);
}

void Registry::CheckSilence(absl::Time now) {
  MutexLock lock(&mutex_);
  const absl::Duration pause = now - std::exchange(checked_, now);
  bool changed = false;
  for (auto& [id, node] : nodes_) {
    // Who has stood still himself has heard nothing meanwhile.
    if (pause > options_.longest_pause) {
      node.last_heard = now;
      resumed_ = now;
    }
    if (node.detached_reason.has_value() &&
        now - node.last_heard > kRejoinTime) {
      SetState(&node,
               NodeState::kGone,
               *std::exchange(node.detached_reason, std::nullopt));
      changed = true;
    }
    if (node.info.state == NodeState::kGone ||
        node.info.state == NodeState::kSuspect ||
        now - node.last_heard <= options_.max_silence) {
      continue;
    }
    SetState(&node,
             NodeState::kSuspect,
             absl::StrCat("no report for more than ",
                          absl::FormatDuration(options_.max_silence)));
    changed = true;
  }
  if (!changed) return;
  JudgeDrafters();
  ForgetOldest();
}

absl::Status Registry::Drain(const std::string& node_id,
                             absl::string_view reason,
                             absl::string_view grace) {
  MutexLock lock(&mutex_);
  Node* node = Find(node_id);
  if (node == nullptr || node->info.state == NodeState::kGone) {
    return absl::NotFoundError(absl::StrCat("node: no '", node_id, "' here"));
  }
  node->drain_reason = std::string(reason);
  node->drain_grace = std::string(grace);
  if (node->info.state != NodeState::kSuspect) Judge(node);
  JudgeDrafters();
  return absl::OkStatus();
}

absl::StatusOr<NodeInfo> Registry::FindLive(
    absl::string_view name_or_id) const {
  MutexLock lock(&mutex_);
  const NodeInfo* found = nullptr;
  const Node* gone = nullptr;
  for (const auto& [id, node] : nodes_) {
    if (node.info.state == NodeState::kGone) {
      const bool meant =
          node.info.identity.name == name_or_id || id == name_or_id;
      if (meant && (gone == nullptr || gone->age < node.age)) gone = &node;
      continue;
    }
    // Names come first: ids look like names that people give.
    if (node.info.identity.name == name_or_id) return node.info;
    if (id == name_or_id) found = &node.info;
  }
  if (found != nullptr) return *found;
  if (gone != nullptr) {
    return absl::NotFoundError(absl::StrCat("node: '",
                                            gone->info.identity.name,
                                            "' has left already: ",
                                            gone->info.reason));
  }
  return absl::NotFoundError(absl::StrCat(
      "node: no '", name_or_id.substr(0, kMaxNameLength), "' here"));
}

absl::StatusOr<NodeInfo> Registry::FindById(const std::string& node_id) const {
  MutexLock lock(&mutex_);
  const auto it = nodes_.find(node_id);
  if (it != nodes_.end()) return it->second.info;
  return absl::NotFoundError(absl::StrCat("node: no '", node_id, "' here"));
}

std::vector<Registry::Suspect> Registry::TakeSuspects(absl::Time now) {
  MutexLock lock(&mutex_);
  std::vector<Suspect> taken;
  for (auto it = suspects_.begin(); it != suspects_.end();) {
    auto& [node_id, since] = *it;
    const Node* const node = Find(node_id);
    if (node == nullptr || node->info.state != NodeState::kSuspect) {
      it = suspects_.erase(it);
      continue;
    }
    // The clock is the caller's.
    if (since == absl::InfiniteFuture()) since = now;
    if (!IsReplaceable(*node) &&
        now - since < kLonePatience * options_.max_silence) {
      ++it;
      continue;
    }
    taken.push_back({node_id, node->info.reason});
    it = suspects_.erase(it);
  }
  return taken;
}

void Registry::SetState(Node* node, NodeState state, std::string reason) {
  NodeInfo& info = node->info;
  if (info.state == state && info.reason == reason) return;
  const bool begins_to_serve =
      state == NodeState::kServing && info.state != NodeState::kServing;
  info.state = state;
  info.reason = std::move(reason);
  if (state == NodeState::kSuspect) {
    suspects_.emplace(info.node_id, absl::InfiniteFuture());
  }
  if (begins_to_serve && info.identity.role == NodeRole::kDraft) {
    ++drafters_gained_;
  }
  const std::string line = absl::StrCat(Label(info),
                                        " is ",
                                        NodeStateName(state),
                                        info.reason.empty() ? "" : ": ",
                                        info.reason);
  if (state == NodeState::kServing || state == NodeState::kJoining) {
    SPECWIRE_LOG(Info, line);
  } else {
    SPECWIRE_LOG(Warning, line);
  }
}

void Registry::Judge(Node* node) {
  const NodeInfo& info = node->info;
  if (node->drain_reason.has_value()) {
    SetState(node,
             NodeState::kDraining,
             node->drain_grace.empty()
                 ? *node->drain_reason
                 : absl::StrCat(*node->drain_reason, "; ", node->drain_grace));
    return;
  }
  if (!info.verifier.has_value() && !info.drafter.has_value()) {
    SetState(node,
             NodeState::kJoining,
             node->probe_failure.empty() ? "being asked what it serves"
                                         : node->probe_failure);
    return;
  }
  if (info.identity.role == NodeRole::kVerifier ||
      info.drafter->vocabulary_fingerprint.empty()) {
    SetState(node, NodeState::kServing, "");
    return;
  }
  std::set<std::string> served;
  for (const auto& [id, other] : nodes_) {
    if (other.info.state == NodeState::kServing &&
        other.info.verifier.has_value()) {
      served.insert(other.info.verifier->vocabulary_fingerprint);
    }
  }
  if (served.contains(info.drafter->vocabulary_fingerprint)) {
    SetState(node, NodeState::kServing, "");
    return;
  }
  std::vector<std::string> names;
  for (const std::string& name : served) names.emplace_back(Short(name));
  if (served.empty()) {
    SetState(node, NodeState::kJoining, "waits for a verifier to draft for");
    return;
  }
  SetState(node,
           NodeState::kIncompatible,
           absl::StrCat("its drafter is for vocabulary ",
                        Short(info.drafter->vocabulary_fingerprint),
                        ", the verifiers have ",
                        absl::StrJoin(names, ", ")));
}

void Registry::JudgeDrafters() {
  for (auto& [id, node] : nodes_) {
    if (node.info.drafter.has_value() &&
        (node.info.state == NodeState::kJoining ||
         node.info.state == NodeState::kServing ||
         node.info.state == NodeState::kIncompatible)) {
      Judge(&node);
    }
  }
}

void Registry::ForgetOldest() {
  std::vector<Node*> gone;
  for (auto& [id, node] : nodes_) {
    if (node.info.state == NodeState::kGone) gone.push_back(&node);
  }
  if (gone.size() <= options_.max_gone_nodes) return;
  std::sort(gone.begin(), gone.end(), [](const Node* a, const Node* b) {
    return a->attachment < b->attachment;
  });
  gone.resize(gone.size() - options_.max_gone_nodes);
  for (const Node* node : gone) {
    nodes_.erase(std::string(node->info.node_id));
  }
}

}  // namespace specwire::coordinator
