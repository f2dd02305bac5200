// SPDX-License-Identifier: Apache-2.0
// No #pragma once: as lanes.inc.h, included by an instruction set's file that
// has defined kRowsTogether and BlockRows<R, kFetch>(args, block, first_row),
// one block of outputs for R rows, with weights fetched ahead or not.

template <int R, bool kFetch>
void SomeRows(const LinearArgs& args, int64_t block, int first_row, int rows) {
  if constexpr (R > 1) {
    if (rows < R) {
      return SomeRows<R - 1, kFetch>(args, block, first_row, rows);
    }
  }
  BlockRows<R, kFetch>(args, block, first_row);
}

void Linear(const LinearArgs& args, int64_t first_block, int64_t end_block) {
  // Parts of like size: 9 rows are 5 and 4, not 8 and 1.
  const int parts = (args.rows + kRowsTogether - 1) / kRowsTogether;
  for (int64_t block = first_block; block < end_block; ++block) {
    int row = 0;
    for (int part = 0; part < parts; ++part) {
      const int end = args.rows * (part + 1) / parts;
      // A block's weights stay in the first-level cache for the later parts.
      if (part == 0) {
        SomeRows<kRowsTogether, true>(args, block, row, end - row);
      } else {
        SomeRows<kRowsTogether, false>(args, block, row, end - row);
      }
      row = end;
    }
  }
}
