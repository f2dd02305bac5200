// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/base/progress_watch.h"
#include "coordinator/node_info.h"
#include "coordinator/routing.h"

namespace specwire::coordinator {

struct RegistryOptions {
  // A node that has been silent for longer is suspect.
  absl::Duration max_silence = absl::Milliseconds(2500);
  // And so is one whose engine has got nowhere for longer though it has work.
  absl::Duration max_stall = absl::Milliseconds(1500);
  // Nobody has stood still because of a pause between two reports, or two calls
  // of CheckSilence, that is longer than this.
  absl::Duration longest_pause = absl::Seconds(1);
  // Nodes that have left and are still listed.
  size_t max_gone_nodes = 64;
};

// Who is in the cluster, in which state, and who takes the next sequence. Knows
// nothing of channels or streams: whoever talks to the nodes tells it what
// happened, with the time.
//
// Nodes are told apart by incarnation: a restarted process is another node,
// which replaces its former self; a process that reconnects is the same one.
// Every change of state is logged.
//
// Thread safety: any thread.
class Registry {
 public:
  static constexpr int kLonePatience = 4;

  explicit Registry(const RegistryOptions& options) : options_(options) {}
  Registry(const Registry&) = delete;
  Registry& operator=(const Registry&) = delete;

  // A Join stream's claim to a node.
  struct Registration {
    std::string node_id;
    // Number of the Join stream: what an older stream of the same node still
    // says no longer counts.
    int64_t attachment = 0;
    // The coordinator knows already what the node serves.
    bool known = false;
  };

  // A node has opened a Join stream. INVALID_ARGUMENT naming a bad field, also
  // for a draft node by the local drafter's name; ALREADY_EXISTS if a live node
  // at another address has the name.
  absl::StatusOr<Registration> Register(const NodeIdentity& identity,
                                        absl::Time now);
  // Whether no later Join stream has replaced this one, and it has not ended.
  bool IsLatest(const Registration& registration) const;
  // A load report. False if the attachment is not the node's latest.
  bool OnLoad(const Registration& registration,
              const NodeLoad& load,
              absl::Time now);
  // The Join stream has ended: the node is gone. Streams that run on it go on.
  // If the coordinator itself stood still a moment ago, its nodes have given it
  // up and come back: then it stays as it is, until it has been silent too
  // long.
  void OnDetached(const Registration& registration,
                  absl::string_view reason,
                  absl::Time now);

  // What the node serves: it takes work from now on if it fits.
  void OnVerifierInfo(const std::string& node_id, VerifierInfo info);
  void OnDrafterInfo(const std::string& node_id, DrafterInfo info);
  // It could not be asked what it serves; it is asked again.
  void OnProbeFailed(const std::string& node_id, const absl::Status& status);

  // Makes nodes suspect that have been silent for too long. To be called often:
  // after a pause of its own it counts every node's silence from then on.
  void CheckSilence(absl::Time now);
  // Nodes that have become suspect: what runs on them is to go on elsewhere.
  // Each is told once. A verifier that no other stands in for is told only when
  // one does, or after kLonePatience times max_silence: until then its
  // sequences have nowhere to go and wait for it to get on, which on a machine
  // that is merely overloaded it will.
  struct Suspect {
    std::string node_id;
    std::string reason;
  };
  std::vector<Suspect> TakeSuspects(absl::Time now);
  // Takes no new work until it has left. `grace`: how long running sequences
  // have, for people; of no interest once the node has left. NOT_FOUND if there
  // is no such node.
  absl::Status Drain(const std::string& node_id,
                     absl::string_view reason,
                     absl::string_view grace = {});
  // The node with this name, or else with this id, that has not left. NOT_FOUND
  // if there is none; it says so where one has left.
  absl::StatusOr<NodeInfo> FindLive(absl::string_view name_or_id) const;
  // The node with this id, which may have left. NOT_FOUND if it is not known.
  absl::StatusOr<NodeInfo> FindById(const std::string& node_id) const;

  // The node that serves the model, not in `exclude`, and is expected to finish
  // the sequence first; see PickVerifier. Counts one sequence more on it, and
  // its tokens as unread. Nodes whose context is too short do not count.
  // UNAVAILABLE with the reason if there is none, RESOURCE_EXHAUSTED if all are
  // full.
  absl::StatusOr<NodeInfo> AcquireVerifier(const std::string& model_digest,
                                           const std::set<std::string>& exclude,
                                           const SequenceNeed& need = {});
  // The node has read so many of the tokens of a sequence that it was acquired
  // for.
  void OnRead(const std::string& node_id, int num_tokens);
  // RESOURCE_EXHAUSTED, with a retry delay, if the nodes that serve the model
  // have no room for `num_sequences` more, as far as is known here;
  // INVALID_ARGUMENT naming `n` if they never have. OK if there is no such
  // node.
  absl::Status CheckRoom(const std::string& model_digest,
                         int num_sequences) const;
  // The draft node that fits a vocabulary and whose drafts are expected first
  // at the verifier of that address (empty: there is none yet); see
  // PickDrafter. Counts one sequence more on it. `drafter` empty: any.
  absl::StatusOr<NodeInfo> AcquireDrafter(
      const std::string& vocabulary_fingerprint,
      const std::string& drafter,
      const std::set<std::string>& exclude,
      const std::string& verifier_address = "");
  // What a message to the node and its answer took, without work.
  void OnRoundTrip(const std::string& node_id, absl::Duration round_trip);
  // A sequence has left the node. REQUIRES: acquired before; of its tokens all
  // but `num_unread` were told by OnRead.
  void Release(const std::string& node_id, int num_unread = 0);

  // All nodes, sorted by role (draft nodes first), name, then age.
  std::vector<NodeInfo> Nodes() const;
  // True while the node may be asked what it serves: it has not gone.
  bool IsLive(const std::string& node_id) const;
  bool IsServing(const std::string& node_id) const;
  bool IsIncompatible(const std::string& node_id) const;
  int Count(NodeRole role, NodeState state) const;
  // What the verifiers of a model that take work say of it.
  struct Served {
    int num_verifiers = 0;
    std::set<std::string> names;
    // Their longest context.
    int max_model_len = 0;
  };
  Served ServedModel(const std::string& model_digest) const;
  // Verifiers of a model that take work.
  int CountVerifiers(const std::string& model_digest) const;
  // Names of the drafters that serve a vocabulary, sorted, none twice.
  std::vector<std::string> DrafterNames(
      const std::string& vocabulary_fingerprint) const;
  int CountDrafters(const std::string& vocabulary_fingerprint) const;
  // Whether a draft node serves that AcquireDrafter may return; `drafter`
  // empty: any.
  bool ServesDrafter(const std::string& vocabulary_fingerprint,
                     const std::string& drafter) const;
  // Whether a verifier of a model takes work that drafts for itself.
  bool DraftsLocally(const std::string& model_digest) const;
  // Whether every draft node that AcquireDrafter may return has the address of
  // a verifier of the model that keeps a draft model for itself: they compute
  // on the same processors. False if there is no such draft node.
  bool DraftsBesideModels(const std::string& model_digest,
                          const std::string& vocabulary_fingerprint,
                          const std::string& drafter) const;
  // Whether AcquireDrafter may return a synthetic drafter; `drafter` empty:
  // any.
  bool HasSyntheticDrafter(const std::string& vocabulary_fingerprint,
                           const std::string& drafter) const;
  // Why no verifier (of a model, if a digest is given) takes work, in a
  // sentence.
  std::string WhyNoVerifier(const std::string& model_digest) const;
  // Counts up whenever a draft node begins to take work.
  int64_t drafters_gained() const;

 private:
  struct Node {
    explicit Node(absl::Duration longest_pause) : progress(longest_pause) {}

    NodeInfo info;
    int64_t attachment = 0;
    int64_t age = 0;
    absl::Time last_heard;
    ProgressWatch progress;
    // Of sequences of ours, tokens that it has yet to read.
    int64_t unread_tokens = 0;
    RoundTrip round_trip = {};
    // Set if Drain() was called.
    std::optional<std::string> drain_reason = std::nullopt;
    std::string drain_grace = "";
    // Why its Join stream ended, if it may come back.
    std::optional<std::string> detached_reason = std::nullopt;
    // Reason of the latest failed probe.
    std::string probe_failure;
  };

  Node* FindLiveByName(const std::string& name)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Node* FindByIncarnation(const NodeIdentity& identity)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Node* Find(const std::string& node_id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SetState(Node* node, NodeState state, std::string reason)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // A verifier serves that can go on with the node's sequences.
  bool IsReplaceable(const Node& node) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // This process stood still, now or a moment ago.
  bool StoodStill(absl::Time now) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The state that a node's own data give it, silence aside.
  void Judge(Node* node) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void JudgeDrafters() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static void SortByAge(std::vector<Node*>* nodes);
  void ForgetOldest() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string WhyNoVerifierLocked(const std::string& model_digest) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const RegistryOptions options_;
  mutable Mutex mutex_;
  // By node id.
  std::map<std::string, Node> nodes_ ABSL_GUARDED_BY(mutex_);
  PrefixHomes homes_ ABSL_GUARDED_BY(mutex_);
  int64_t next_number_ ABSL_GUARDED_BY(mutex_) = 1;
  int64_t drafters_gained_ ABSL_GUARDED_BY(mutex_) = 0;
  // Not told yet, by node id: since when.
  std::map<std::string, absl::Time> suspects_ ABSL_GUARDED_BY(mutex_);
  // When CheckSilence was called last.
  absl::Time checked_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
  // When it found that this process had stood still.
  absl::Time resumed_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
};

}  // namespace specwire::coordinator
