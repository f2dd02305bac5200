// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace specwire {

// The largest logit of each group of kGroupTokens consecutive tokens of a row:
// one pass over the row, after which most questions about its largest logits
// need a look at few groups only. What is not a number counts as -infinity.
//
// Thread safety: one thread at a time. Memory is kept from row to row.
class RowMaxima {
 public:
  // Looks at a row of logits, [vocab_size] f32.
  void Compute(absl::Span<const float> row);

  // Of the row that was looked at last: one value for each group.
  absl::Span<const float> groups() const { return groups_; }
  // The largest of all; -infinity if there is no larger number.
  float largest() const { return largest_; }
  // A value that at least k logits of the row are not below, often not many
  // more: the k-th largest of groups' maxima. -infinity where k is too large
  // for that. REQUIRES: k >= 1.
  float LowerBoundOfKth(int k);

 private:
  std::vector<float> groups_;
  // Scratch: maxima of several groups each.
  std::vector<float> coarse_;
  float largest_ = 0;
};

// The largest of each of `n` whole groups of `row`.
void MaximaOfGroups(const float* row, size_t n, float* maxima);

// The largest of n values; -infinity if there is no larger number.
float Largest(const float* values, size_t n);

// The index of the first of `row` that equals `value`, at or behind `from`; -1
// if there is none.
int32_t FindFirst(absl::Span<const float> row, float value, int32_t from);

}  // namespace specwire
