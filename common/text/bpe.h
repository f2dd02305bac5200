// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace specwire {

// The merge rules of byte-pair encoding, and how they are applied: as long as
// some neighbours have a rule, the pair of the best rule is merged, the
// leftmost of equals first.
//
// Thread safety: const methods from any thread.
class Bpe {
 public:
  // Memory that calls can share; its content means nothing.
  struct Scratch {
    struct Symbol {
      int32_t id;
      int32_t previous;
      int32_t next;
    };
    std::vector<Symbol> symbols;
    std::vector<uint64_t> heap;
  };

  // Adds a rule; the least rank is the best. Returns false, changing nothing,
  // if the pair has a rule already.
  // REQUIRES: no id is negative.
  bool AddMerge(int32_t left, int32_t right, int32_t merged, uint32_t rank);

  // Number of rules.
  size_t size() const { return rules_.size(); }

  // Merges the symbols of one word and appends the result to `out`. Takes
  // n log n steps for n symbols.
  // REQUIRES: word.size() < 2^31.
  void Merge(const std::vector<int32_t>& word,
             Scratch* scratch,
             std::vector<int32_t>* out) const;

 private:
  struct Rule {
    uint32_t rank;
    int32_t merged;
  };

  const Rule* Find(int32_t left, int32_t right) const;
  void PushPair(Scratch* scratch, int32_t position) const;
  void MergeAt(Scratch* scratch, int32_t position, int32_t merged) const;

  absl::flat_hash_map<uint64_t, Rule> rules_;
};

}  // namespace specwire
