// SPDX-License-Identifier: Apache-2.0
#include "common/text/bpe.h"

#include <algorithm>
#include <functional>

namespace specwire {
namespace {

constexpr int32_t kNone = -1;
// Marks a symbol that has become part of the one before it.
constexpr int32_t kMergedAway = -1;

uint64_t Join(uint32_t high, uint32_t low) {
  return (static_cast<uint64_t>(high) << 32) | low;
}

uint64_t PairKey(int32_t left, int32_t right) {
  return Join(static_cast<uint32_t>(left), static_cast<uint32_t>(right));
}

}  // namespace

bool Bpe::AddMerge(int32_t left, int32_t right, int32_t merged, uint32_t rank) {
  const Rule rule{rank, merged};
  return rules_.emplace(PairKey(left, right), rule).second;
}

const Bpe::Rule* Bpe::Find(int32_t left, int32_t right) const {
  const auto it = rules_.find(PairKey(left, right));
  return it == rules_.end() ? nullptr : &it->second;
}

void Bpe::Merge(const std::vector<int32_t>& word,
                Scratch* scratch,
                std::vector<int32_t>* out) const {
  auto& symbols = scratch->symbols;
  auto& heap = scratch->heap;
  symbols.clear();
  heap.clear();
  const auto size = static_cast<int32_t>(word.size());
  for (int32_t i = 0; i < size; ++i) {
    symbols.push_back(
        {word[static_cast<size_t>(i)], i - 1, i + 1 < size ? i + 1 : kNone});
  }
  for (int32_t i = 0; i + 1 < size; ++i) PushPair(scratch, i);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const uint64_t entry = heap.back();
    heap.pop_back();
    const auto position = static_cast<int32_t>(entry & 0xFFFFFFFFu);
    const auto& symbol = symbols[static_cast<size_t>(position)];
    // An entry is stale once one of its symbols has been merged. Whether it is
    // shows in the pair that stands there now.
    if (symbol.id == kMergedAway || symbol.next == kNone) continue;
    const Rule* rule =
        Find(symbol.id, symbols[static_cast<size_t>(symbol.next)].id);
    if (rule == nullptr || rule->rank != entry >> 32) continue;
    MergeAt(scratch, position, rule->merged);
  }
  for (int32_t i = 0; i != kNone && i < size;
       i = symbols[static_cast<size_t>(i)].next) {
    out->push_back(symbols[static_cast<size_t>(i)].id);
  }
}

// Puts the pair that begins at `position` on the heap if it has a rule. The
// least entry is that of the best rule, and among equals the leftmost.
void Bpe::PushPair(Scratch* scratch, int32_t position) const {
  const auto& symbol = scratch->symbols[static_cast<size_t>(position)];
  if (symbol.next == kNone) return;
  const auto& next = scratch->symbols[static_cast<size_t>(symbol.next)];
  const Rule* rule = Find(symbol.id, next.id);
  if (rule == nullptr) return;
  scratch->heap.push_back(Join(rule->rank, static_cast<uint32_t>(position)));
  std::push_heap(scratch->heap.begin(), scratch->heap.end(), std::greater<>());
}

void Bpe::MergeAt(Scratch* scratch, int32_t position, int32_t merged) const {
  auto& symbols = scratch->symbols;
  auto& symbol = symbols[static_cast<size_t>(position)];
  auto& next = symbols[static_cast<size_t>(symbol.next)];
  symbol.id = merged;
  symbol.next = next.next;
  next.id = kMergedAway;
  if (symbol.next != kNone) {
    symbols[static_cast<size_t>(symbol.next)].previous = position;
  }
  PushPair(scratch, position);
  if (symbol.previous != kNone) PushPair(scratch, symbol.previous);
}

}  // namespace specwire
