// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>

#include "common/drafting/suffix_trie.h"

namespace specwire {

// What speaks for a token that was looked up.
struct SuffixMatch {
  // Found in earlier output, not in the sequence itself.
  bool from_store = false;
  // Tokens that matched.
  int length = 0;
  SuffixTrie::Next next = {};
};

// Chances that looked-up tokens are right: logistic in length of the match, in
// the continuation's frequency and in its share. What is known beforehand is
// corrected, by a step of gradient descent for each token seen, for who uses
// it: for kinds of matches over all sequences, for the source over one.
//
// Thread safety: one thread at a time.
class SuffixEstimates {
 public:
  // What one sequence has shown.
  struct Sequence {
    // Its target draws tokens, instead of taking the best.
    bool sampled = false;
    // By SuffixMatch::from_store.
    std::array<float, 2> correction = {};
  };

  // In (0, 1).
  float Chance(const SuffixMatch& match, const Sequence& sequence) const;
  // Takes note that such a match was right, or not.
  void Learn(const SuffixMatch& match, bool right, Sequence* sequence);

 private:
  static constexpr size_t kNumBands = 5;
  // Of match lengths.
  static size_t Band(int length);
  size_t Index(const SuffixMatch& match, const Sequence& sequence) const;

  // By source, sampled or not, and band.
  std::array<float, 4 * kNumBands> corrections_ = {};
};

}  // namespace specwire
