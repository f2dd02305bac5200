// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/model/step_costs.h"

// Who takes a sequence. Pure code: what is known of nodes is handed in.

namespace specwire::coordinator {

// By how much a verifier's passes take longer than it measured at its start, in
// the light of what it says: 1 if that makes no sense or is no more than noise.
double TrustedSlowdown(double reported);

// What a sequence needs of a verifier.
struct SequenceNeed {
  // Tokens to read before the first that it makes: the prompt, and what a
  // sequence that moves has behind it.
  int num_tokens = 0;
  // Tokens that it may make.
  int max_tokens = 0;
  // A hash of what sequences may share a cached prefix by; 0: nothing.
  uint64_t affinity = 0;
};

// A verifier that may take it.
struct VerifierCandidate {
  const StepCosts* costs = nullptr;
  // See TrustedSlowdown.
  double slowdown = 1;
  // That it has, those that wait included.
  int num_sequences = 0;
  // That compute at once; 0: any number.
  int max_running = 0;
  // That it has yet to read of the sequences that it has.
  int64_t unread_tokens = 0;
  // Of the new sequence's tokens, those that it likely has cached.
  int cached_tokens = 0;
  // The higher takes it where nothing else tells two apart.
  uint64_t rank = 0;
};

// Seconds until the verifier has finished a sequence that it gets now.
double ExpectedSeconds(const VerifierCandidate& verifier,
                       const SequenceNeed& need);

// The index of the verifier that finishes the sequence first. Of those that
// finish about as soon the one with the fewest sequences, then one that has the
// prefix, then the highest rank, then the first. REQUIRES: not empty.
size_t PickVerifier(absl::Span<const VerifierCandidate> verifiers,
                    const SequenceNeed& need);

// A draft node that may draft for a sequence.
struct DrafterCandidate {
  int num_sequences = 0;
  // Between coordinator and node, as measured; 0: not yet.
  absl::Duration round_trip;
  // It computes on the verifier's machine.
  bool beside_verifier = false;
};

// The index of the draft node whose drafts come first: each sequence that it
// has delays them by about as much as a millisecond of round trip does. One
// beside the verifier may have a sequence more. Of equals that one, then the
// one with the fewest sequences, then the first. REQUIRES: not empty.
size_t PickDrafter(absl::Span<const DrafterCandidate> drafters);

// Which verifiers have lately read prompts that begin alike, and so may have
// their prefix cached. Remembers a fixed number of beginnings; a new one takes
// the place of an old one.
//
// Thread safety: one thread at a time.
class PrefixHomes {
 public:
  PrefixHomes() : places_(kNumPlaces) {}

  // The node gets a sequence of so many tokens.
  void Note(const SequenceNeed& need, const std::string& node_id);
  // What the node likely has of the sequence's tokens, in whole blocks: as much
  // as the shorter of two such prompts holds.
  int CachedTokens(const SequenceNeed& need, const std::string& node_id) const;

 private:
  static constexpr size_t kNumPlaces = 4096;
  static constexpr size_t kNumHomes = 4;

  struct Home {
    std::string node_id;
    int num_tokens = 0;
  };
  struct Place {
    uint64_t affinity = 0;
    // The latest first.
    std::array<Home, kNumHomes> homes;
  };

  // By affinity, modulo their number.
  std::vector<Place> places_;
};

// The shortest of a node's latest round trips: what the way takes, without what
// a busy machine adds now and then.
//
// Thread safety: one thread at a time.
class RoundTrip {
 public:
  void Observe(absl::Duration round_trip);
  // 0: none was observed.
  absl::Duration shortest() const;

 private:
  static constexpr size_t kNumKept = 8;

  std::array<absl::Duration, kNumKept> kept_;
  size_t num_observed_ = 0;
};

}  // namespace specwire::coordinator
