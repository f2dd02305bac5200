// SPDX-License-Identifier: Apache-2.0

// What others ask of the registry: who takes work, and who there is. What
// happens to nodes is in registry.cc.

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/host_port.h"
#include "common/base/retry_delay.h"
#include "common/base/stable_hash.h"
#include "common/drafting/drafter_names.h"
#include "coordinator/registry.h"

namespace specwire::coordinator {
namespace {

// Places come free all the time.
constexpr absl::Duration kRetryDelay = absl::Seconds(1);

bool Fits(const DrafterInfo& drafter, const std::string& fingerprint) {
  return drafter.vocabulary_fingerprint.empty() ||
         drafter.vocabulary_fingerprint == fingerprint;
}

// `drafter` empty: any.
bool Drafts(const NodeInfo& info,
            const std::string& fingerprint,
            const std::string& drafter) {
  return info.state == NodeState::kServing && info.drafter.has_value() &&
         Fits(*info.drafter, fingerprint) &&
         (drafter.empty() || info.drafter->name == drafter);
}

bool Serves(const NodeInfo& info, const std::string& model_digest) {
  return info.state == NodeState::kServing && info.verifier.has_value() &&
         info.verifier->model.model_digest == model_digest;
}

// The machine that a node computes on, as far as its address tells.
std::string HostOf(const std::string& node_address) {
  const absl::StatusOr<HostPort> address =
      ParseHostPort(node_address, "address");
  return address.ok() ? address->host : node_address;
}

// Our own streams and what the node last reported, whichever says more; other
// coordinators may use it too.
int NumSequences(const NodeInfo& info) {
  return std::max(info.num_running, info.load.num_sequences);
}

// Sequences that a verifier takes, those that wait included; 0: not told.
int Places(const NodeInfo& info) {
  return info.verifier->max_num_sequences + info.verifier->max_queued_sequences;
}

// The report is up to an interval old, so only our own streams are proof. What
// other coordinators have there the node itself must refuse.
bool IsFull(const NodeInfo& info) {
  const int places = Places(info);
  return places > 0 && info.num_running >= places;
}

// Sequences that a verifier computes at once, as far as is known; 0: any
// number. Some that wait although there are places want for blocks.
int MaxRunning(const NodeInfo& info) {
  const int places = info.verifier->max_num_sequences;
  const NodeLoad& load = info.load;
  if (load.num_waiting <= 0) return places;
  const int running = std::max(load.num_sequences - load.num_waiting, 1);
  return places > 0 ? std::min(places, running) : running;
}

absl::Status AllFull() {
  return WithRetryDelay(absl::ResourceExhaustedError("all verifiers are full"),
                        kRetryDelay);
}

}  // namespace

void Registry::SortByAge(std::vector<Node*>* nodes) {
  std::sort(nodes->begin(), nodes->end(), [](const Node* a, const Node* b) {
    return a->age < b->age;
  });
}

absl::StatusOr<NodeInfo> Registry::AcquireVerifier(
    const std::string& model_digest,
    const std::set<std::string>& exclude,
    const SequenceNeed& need) {
  const int length = need.num_tokens + need.max_tokens;
  MutexLock lock(&mutex_);
  std::vector<Node*> able;
  bool full = false;
  bool short_of_context = false;
  for (auto& [id, node] : nodes_) {
    if (!Serves(node.info, model_digest) || exclude.contains(id)) continue;
    if (node.info.verifier->model.max_model_len < length) {
      short_of_context = true;
    } else if (IsFull(node.info)) {
      full = true;
    } else {
      able.push_back(&node);
    }
  }
  if (able.empty()) {
    if (full) return AllFull();
    return absl::UnavailableError(
        short_of_context
            ? absl::StrCat("no verifier takes work whose context holds ",
                           length,
                           " tokens")
            : WhyNoVerifierLocked(model_digest));
  }
  SortByAge(&able);
  std::vector<VerifierCandidate> candidates;
  candidates.reserve(able.size());
  for (const Node* node : able) {
    candidates.push_back(
        {.costs = &node->info.verifier->step_costs,
         .slowdown = TrustedSlowdown(node->info.load.slowdown),
         .num_sequences = NumSequences(node->info),
         .max_running = MaxRunning(node->info),
         .unread_tokens = node->unread_tokens,
         .cached_tokens = homes_.CachedTokens(need, node->info.node_id),
         .rank = need.affinity == 0
                     ? 0
                     : StableHash(node->info.identity.name, need.affinity)});
  }
  Node* const best = able[PickVerifier(candidates, need)];
  homes_.Note(need, best->info.node_id);
  best->unread_tokens += need.num_tokens;
  ++best->info.num_running;
  return best->info;
}

void Registry::OnRead(const std::string& node_id, int num_tokens) {
  MutexLock lock(&mutex_);
  if (Node* node = Find(node_id); node != nullptr) {
    node->unread_tokens -= num_tokens;
  }
}

absl::Status Registry::CheckRoom(const std::string& model_digest,
                                 int num_sequences) const {
  MutexLock lock(&mutex_);
  int64_t places = 0;
  int64_t free = 0;
  for (const auto& [id, node] : nodes_) {
    if (!Serves(node.info, model_digest)) continue;
    const int all = Places(node.info);
    // Who does not tell, has room.
    if (all == 0) return absl::OkStatus();
    places += all;
    free += std::max(all - node.info.num_running, 0);
  }
  if (places == 0 || num_sequences <= free) return absl::OkStatus();
  if (num_sequences > places) {
    return absl::InvalidArgumentError(
        absl::StrCat("n: ",
                     num_sequences,
                     " completions; the verifiers have places for ",
                     places,
                     ", those that wait included"));
  }
  return AllFull();
}

Registry::Served Registry::ServedModel(const std::string& model_digest) const {
  MutexLock lock(&mutex_);
  Served served;
  for (const auto& [id, node] : nodes_) {
    if (!Serves(node.info, model_digest)) continue;
    const ModelInfo& model = node.info.verifier->model;
    ++served.num_verifiers;
    served.names.insert(model.name);
    served.max_model_len = std::max(served.max_model_len, model.max_model_len);
  }
  return served;
}

absl::StatusOr<NodeInfo> Registry::AcquireDrafter(
    const std::string& vocabulary_fingerprint,
    const std::string& drafter,
    const std::set<std::string>& exclude,
    const std::string& verifier_address) {
  MutexLock lock(&mutex_);
  std::vector<Node*> able;
  for (auto& [id, node] : nodes_) {
    if (Drafts(node.info, vocabulary_fingerprint, drafter) &&
        !exclude.contains(id)) {
      able.push_back(&node);
    }
  }
  if (able.empty()) {
    return absl::UnavailableError("no draft node that fits takes work");
  }
  SortByAge(&able);
  const std::string host = HostOf(verifier_address);
  std::vector<DrafterCandidate> candidates;
  candidates.reserve(able.size());
  for (const Node* node : able) {
    candidates.push_back(
        {.num_sequences = NumSequences(node->info),
         .round_trip = node->info.round_trip,
         .beside_verifier = HostOf(node->info.identity.address) == host});
  }
  Node* const best = able[PickDrafter(candidates)];
  ++best->info.num_running;
  return best->info;
}

void Registry::OnRoundTrip(const std::string& node_id,
                           absl::Duration round_trip) {
  MutexLock lock(&mutex_);
  if (Node* node = Find(node_id); node != nullptr) {
    node->round_trip.Observe(round_trip);
    node->info.round_trip = node->round_trip.shortest();
  }
}

void Registry::Release(const std::string& node_id, int num_unread) {
  MutexLock lock(&mutex_);
  // A node that has left may have been forgotten meanwhile.
  if (Node* node = Find(node_id); node != nullptr) {
    --node->info.num_running;
    node->unread_tokens -= num_unread;
  }
}

std::vector<NodeInfo> Registry::Nodes() const {
  std::vector<const Node*> sorted;
  MutexLock lock(&mutex_);
  for (const auto& [id, node] : nodes_) sorted.push_back(&node);
  std::sort(sorted.begin(), sorted.end(), [](const Node* a, const Node* b) {
    return std::tie(a->info.identity.role, a->info.identity.name, a->age) <
           std::tie(b->info.identity.role, b->info.identity.name, b->age);
  });
  std::vector<NodeInfo> infos;
  for (const Node* node : sorted) infos.push_back(node->info);
  return infos;
}

bool Registry::IsLive(const std::string& node_id) const {
  MutexLock lock(&mutex_);
  const auto it = nodes_.find(node_id);
  return it != nodes_.end() && it->second.info.state != NodeState::kGone;
}

bool Registry::IsServing(const std::string& node_id) const {
  MutexLock lock(&mutex_);
  const auto it = nodes_.find(node_id);
  return it != nodes_.end() && it->second.info.state == NodeState::kServing;
}

bool Registry::IsIncompatible(const std::string& node_id) const {
  MutexLock lock(&mutex_);
  const auto it = nodes_.find(node_id);
  return it != nodes_.end() &&
         it->second.info.state == NodeState::kIncompatible;
}

int Registry::Count(NodeRole role, NodeState state) const {
  MutexLock lock(&mutex_);
  int count = 0;
  for (const auto& [id, node] : nodes_) {
    if (node.info.identity.role == role && node.info.state == state) ++count;
  }
  return count;
}

int Registry::CountVerifiers(const std::string& model_digest) const {
  return ServedModel(model_digest).num_verifiers;
}

bool Registry::IsReplaceable(const Node& node) const {
  // Without a draft node, sequences decode plainly.
  if (!node.info.verifier.has_value()) return true;
  const std::string& digest = node.info.verifier->model.model_digest;
  return std::any_of(nodes_.begin(), nodes_.end(), [&](const auto& entry) {
    return Serves(entry.second.info, digest);
  });
}

bool Registry::DraftsLocally(const std::string& model_digest) const {
  MutexLock lock(&mutex_);
  return std::any_of(nodes_.begin(), nodes_.end(), [&](const auto& entry) {
    const NodeInfo& info = entry.second.info;
    return Serves(info, model_digest) && !info.verifier->local_drafter.empty();
  });
}

bool Registry::DraftsBesideModels(const std::string& model_digest,
                                  const std::string& vocabulary_fingerprint,
                                  const std::string& drafter) const {
  MutexLock lock(&mutex_);
  std::set<std::string> hosts;
  for (const auto& [id, node] : nodes_) {
    if (Serves(node.info, model_digest) &&
        node.info.verifier->local_drafter == kHybridDrafter) {
      hosts.insert(HostOf(node.info.identity.address));
    }
  }
  bool any = false;
  for (const auto& [id, node] : nodes_) {
    if (!Drafts(node.info, vocabulary_fingerprint, drafter)) continue;
    if (hosts.count(HostOf(node.info.identity.address)) == 0) return false;
    any = true;
  }
  return any;
}

std::vector<std::string> Registry::DrafterNames(
    const std::string& vocabulary_fingerprint) const {
  MutexLock lock(&mutex_);
  std::set<std::string> names;
  for (const auto& [id, node] : nodes_) {
    if (Drafts(node.info, vocabulary_fingerprint, "")) {
      names.insert(node.info.drafter->name);
    }
  }
  return {names.begin(), names.end()};
}

int Registry::CountDrafters(const std::string& vocabulary_fingerprint) const {
  MutexLock lock(&mutex_);
  int count = 0;
  for (const auto& [id, node] : nodes_) {
    if (Drafts(node.info, vocabulary_fingerprint, "")) ++count;
  }
  return count;
}

bool Registry::ServesDrafter(const std::string& vocabulary_fingerprint,
                             const std::string& drafter) const {
  MutexLock lock(&mutex_);
  return std::any_of(nodes_.begin(), nodes_.end(), [&](const auto& entry) {
    return Drafts(entry.second.info, vocabulary_fingerprint, drafter);
  });
}

bool Registry::HasSyntheticDrafter(const std::string& vocabulary_fingerprint,
                                   const std::string& drafter) const {
  MutexLock lock(&mutex_);
  for (const auto& [id, node] : nodes_) {
    if (Drafts(node.info, vocabulary_fingerprint, drafter) &&
        node.info.drafter->synthetic) {
      return true;
    }
  }
  return false;
}

std::string Registry::WhyNoVerifier(const std::string& model_digest) const {
  MutexLock lock(&mutex_);
  return WhyNoVerifierLocked(model_digest);
}

std::string Registry::WhyNoVerifierLocked(
    const std::string& model_digest) const {
  const Node* latest = nullptr;
  for (const auto& [id, node] : nodes_) {
    const NodeInfo& info = node.info;
    if (info.identity.role != NodeRole::kVerifier) continue;
    if (!model_digest.empty() && info.verifier.has_value() &&
        info.verifier->model.model_digest != model_digest) {
      continue;
    }
    if (info.state == NodeState::kServing) continue;
    // A node that may come back says more than one that has left.
    const auto rank = [](const Node& n) {
      return std::tuple(n.info.state != NodeState::kGone, n.attachment);
    };
    if (latest == nullptr || rank(node) > rank(*latest)) latest = &node;
  }
  if (latest == nullptr) {
    return model_digest.empty() ? "no verifier node has joined"
                                : "no other verifier serves this model";
  }
  // What went wrong while joining may name addresses: that is for operators.
  const bool tell =
      latest->info.state != NodeState::kJoining && !latest->info.reason.empty();
  return absl::StrCat("no verifier takes work: '",
                      latest->info.identity.name,
                      "' is ",
                      NodeStateName(latest->info.state),
                      tell ? ": " : "",
                      tell ? latest->info.reason : "");
}

int64_t Registry::drafters_gained() const {
  MutexLock lock(&mutex_);
  return drafters_gained_;
}

}  // namespace specwire::coordinator
