// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "common/kernels/half.h"
#include "common/kernels/kernels.h"
#include "tests/common/kernels/kernels_test_util.h"

namespace specwire {
namespace {

constexpr uint16_t kHalfNan = 0x7e00;

// Some rows of one sequence with a cache of scattered blocks, in which all that
// no row may read is NaN.
struct Case {
  int first_position = 0;
  int rows = 0;
  int window = 0;
  int heads = 0;
  int head_dim = 0;
  int64_t query_stride = 0;
  int64_t block_stride = 0;
  float scale = 0;
  std::vector<float> queries;
  std::vector<int32_t> blocks;
  std::vector<uint16_t> cache;

  int64_t padded_dim() const { return (head_dim + 15) / 16 * 16; }

  // The first position that a row sees.
  int First(int row) const {
    return window > 0 ? std::max(first_position + row + 1 - window, 0) : 0;
  }

  const uint16_t* Block(int position) const {
    return cache.data() +
           blocks[static_cast<size_t>(position / kKvSlots)] * block_stride;
  }
  double Key(int position, int i) const {
    return HalfToFloat(Block(position)[i * kKvSlots + position % kKvSlots]);
  }
  double Value(int position, int i) const {
    return HalfToFloat(Block(position)[int64_t{head_dim} * kKvSlots +
                                       position % kKvSlots * padded_dim() + i]);
  }

  // Rows [first, first + count), all heads: [count, heads * head_dim].
  // `attend` computes the arguments that it is given.
  template <typename Function>
  std::vector<float> AttendWith(int first, int count, Function attend) const {
    const int64_t out_stride = int64_t{heads} * head_dim + 3;
    std::vector<float> out(static_cast<size_t>(count * out_stride), kUntouched);
    const auto needed = static_cast<size_t>(
        AttendScratch(first_position + first, count, heads, head_dim));
    // Whatever scratch held before, and what lies behind it, does not matter.
    std::vector<float> scratch(needed + 16, kNan);
    std::fill(scratch.end() - 16, scratch.end(), kUntouched);
    attend(AttendArgs{.queries = queries.data() + first * query_stride,
                      .query_stride = query_stride,
                      .out = out.data(),
                      .out_stride = out_stride,
                      .cache = cache.data(),
                      .block_stride = block_stride,
                      .blocks = blocks.data(),
                      .first_position = first_position + first,
                      .rows = count,
                      .window = window,
                      .heads = heads,
                      .head_dim = head_dim,
                      .scale = scale,
                      .scratch = scratch.data()});
    EXPECT_EQ(std::count(scratch.end() - 16, scratch.end(), kUntouched), 16);
    std::vector<float> result;
    for (int row = 0; row < count; ++row) {
      const auto begin = out.begin() + row * out_stride;
      result.insert(result.end(), begin, begin + heads * head_dim);
      EXPECT_EQ(
          std::count(begin + heads * head_dim, begin + out_stride, kUntouched),
          3);
    }
    return result;
  }

  std::vector<float> Attend(const Kernels& kernels,
                            int first,
                            int count) const {
    return AttendWith(first, count, kernels.attend);
  }

  // One head's output of one row in double precision, by the definition.
  std::vector<double> AttendPlainly(int row, int head) const {
    const float* const query =
        queries.data() + row * query_stride + int64_t{head} * head_dim;
    std::vector<double> weights;
    for (int position = First(row); position <= first_position + row;
         ++position) {
      double score = 0;
      for (int i = 0; i < head_dim; ++i) {
        score += static_cast<double>(query[i]) * Key(position, i);
      }
      weights.push_back(score * static_cast<double>(scale));
    }
    const double top = *std::max_element(weights.begin(), weights.end());
    for (double& weight : weights) weight = std::exp(weight - top);
    const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    std::vector<double> out(static_cast<size_t>(head_dim));
    for (size_t position = 0; position < weights.size(); ++position) {
      for (size_t i = 0; i < out.size(); ++i) {
        out[i] +=
            weights[position] / sum *
            Value(First(row) + static_cast<int>(position), static_cast<int>(i));
      }
    }
    return out;
  }
};

class KernelsAttendTest : public KernelsTest {
 protected:
  // Any even head size up to 256, and the largest.
  int RandomDim(int step) {
    constexpr int kDims[] = {8, 16, 24, 64, 80, 128, 256, 2, 32, 96, 512};
    if (step % 2 == 0) return kDims[Uniform(0, 10)];
    return 2 * Uniform(1, 128);
  }

  Case RandomCase(int step) {
    Case c;
    // From nothing, over the end of a chunk, far on.
    const int edge = kAttendChunk * Uniform(1, 2);
    c.first_position = step % 4 == 0    ? 0
                       : step % 7 == 1  ? Uniform(edge - 20, edge)
                       : step % 13 == 0 ? Uniform(500, 900)
                                        : Uniform(0, 90);
    c.rows = step % 3 == 0 ? 1 : Uniform(1, 20);
    // Within a block, a chunk, the case, and beyond.
    if (step % 5 >= 3) c.window = Uniform(1, step % 2 == 0 ? 40 : 600);
    c.heads = Uniform(1, 8);
    c.head_dim = RandomDim(step);
    c.query_stride = c.heads * c.head_dim + Uniform(0, 9);
    c.queries = Numbers(c.rows * c.query_stride, 0);
    c.scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim));
    const int length = c.first_position + c.rows;
    const int64_t block_values = kKvSlots * (c.head_dim + c.padded_dim());
    c.block_stride = block_values + 16 * Uniform(0, 2);
    // Scattered over more blocks than the sequence has.
    const int num_blocks = (length + kKvSlots - 1) / kKvSlots;
    c.blocks.resize(static_cast<size_t>(num_blocks + Uniform(0, 5)));
    std::iota(c.blocks.begin(), c.blocks.end(), 0);
    std::shuffle(c.blocks.begin(), c.blocks.end(), random_);
    c.cache.assign(c.blocks.size() * static_cast<size_t>(c.block_stride),
                   kHalfNan);
    c.blocks.resize(static_cast<size_t>(num_blocks));
    // Whole blocks before the first row's window are not read.
    for (int position = c.First(0) / kKvSlots * kKvSlots; position < length;
         ++position) {
      const std::vector<float> key = Numbers(c.head_dim, 0);
      const std::vector<float> value = Numbers(c.head_dim, 0);
      scalar_.store_kv(key.data(),
                       value.data(),
                       c.head_dim,
                       position % kKvSlots,
                       const_cast<uint16_t*>(c.Block(position)));
    }
    return c;
  }
};

// A score is a sum of up to 256 products, some ten float32 roundings off; the
// exponential makes that a relative error of the weights. 2e-5 of the values'
// size, about 1, is several times that, and a hundred times less than any one
// position's share. Where scores are steeper, so is what an error does.
TEST_P(KernelsAttendTest, IsTheSoftmaxMixtureOfTheValues) {
  for (int step = 0; step < 60; ++step) {
    Case c = RandomCase(step);
    const float steepness = step % 3 == 1 ? 40.0f : 1.0f;
    c.scale *= steepness;
    const double bound = steepness > 1 ? 2e-4 : 2e-5;
    const std::vector<float> got = c.Attend(*kernels_, 0, c.rows);
    for (int row = 0; row < c.rows; ++row) {
      for (int head = 0; head < c.heads; ++head) {
        const std::vector<double> want = c.AttendPlainly(row, head);
        for (int i = 0; i < c.head_dim; ++i) {
          const auto at =
              static_cast<size_t>((row * c.heads + head) * c.head_dim + i);
          ASSERT_NEAR(
              static_cast<double>(got[at]), want[static_cast<size_t>(i)], bound)
              << "step " << step << ", row " << row << ", head " << head;
        }
      }
    }
  }
}

TEST_P(KernelsAttendTest, HasTheScalarBits) {
  if (GetParam() == Isa::kScalar) GTEST_SKIP() << "it is the scalar one";
  for (int step = 0; step < 120; ++step) {
    Case c = RandomCase(step);
    // Scores far apart, infinite or no number.
    if (step % 5 == 1) c.scale *= 1000;
    if (step % 5 == 2) c.queries = Numbers(c.rows * c.query_stride, step);
    ASSERT_TRUE(
        AllSame(c.Attend(*kernels_, 0, c.rows), c.Attend(scalar_, 0, c.rows)))
        << "step " << step;
  }
}

TEST_P(KernelsAttendTest, ARowTogetherWithOthersEqualsTheRowAlone) {
  for (int step = 0; step < 60; ++step) {
    Case c = RandomCase(step);
    if (step % 4 == 1) c.queries = Numbers(c.rows * c.query_stride, step);
    const std::vector<float> together = c.Attend(*kernels_, 0, c.rows);
    const auto width = static_cast<std::ptrdiff_t>(c.heads * c.head_dim);
    for (int first = 0; first < c.rows;) {
      const int count = step % 2 == 0 ? 1 : Uniform(1, c.rows - first);
      const std::vector<float> alone = c.Attend(*kernels_, first, count);
      ASSERT_TRUE(AllSame(alone,
                          {together.begin() + first * width,
                           together.begin() + (first + count) * width}))
          << "step " << step << ", row " << first;
      first += count;
    }
  }
}

TEST_P(KernelsAttendTest, AHeadTogetherWithOthersEqualsTheHeadAlone) {
  for (int step = 0; step < 40; ++step) {
    const Case c = RandomCase(step);
    const std::vector<float> together = c.Attend(*kernels_, 0, c.rows);
    for (int head = 0; head < c.heads; ++head) {
      Case alone = c;
      alone.heads = 1;
      alone.queries.erase(alone.queries.begin(),
                          alone.queries.begin() + head * c.head_dim);
      // As long as before, since a stride reaches behind the last row.
      alone.queries.resize(c.queries.size());
      const std::vector<float> got = alone.Attend(*kernels_, 0, c.rows);
      for (int row = 0; row < c.rows; ++row) {
        const auto from =
            together.begin() + (row * c.heads + head) * c.head_dim;
        const auto of_row = got.begin() + row * c.head_dim;
        ASSERT_TRUE(
            AllSame({of_row, of_row + c.head_dim}, {from, from + c.head_dim}))
            << "step " << step << ", row " << row << ", head " << head;
      }
    }
  }
}

// Keys and values of later positions are read together with those of earlier
// ones, but never count.
TEST_P(KernelsAttendTest, LaterPositionsNeverShow) {
  for (int step = 0; step < 40; ++step) {
    Case c = RandomCase(step);
    const int rows = Uniform(1, c.rows);
    const std::vector<float> before = c.Attend(*kernels_, 0, rows);
    for (int position = c.first_position + rows;
         position < c.first_position + c.rows;
         ++position) {
      auto* const block = const_cast<uint16_t*>(c.Block(position));
      const int slot = position % kKvSlots;
      for (int i = 0; i < c.head_dim; ++i) {
        block[i * kKvSlots + slot] = kHalfNan;
      }
      std::fill_n(
          block + int64_t{c.head_dim} * kKvSlots + slot * c.padded_dim(),
          c.padded_dim(),
          kHalfNan);
    }
    const std::vector<float> after = c.Attend(*kernels_, 0, rows);
    ASSERT_TRUE(AllSame(after, before)) << "step " << step;
    for (const float x : after) ASSERT_EQ(x, x) << "step " << step;
  }
}

// As threads compute them that share a long sequence.
TEST_P(KernelsAttendTest, ChunksInAnyOrderEqualTheWhole) {
  for (int step = 0; step < 80; ++step) {
    Case c = RandomCase(step);
    if (step % 4 == 1) c.queries = Numbers(c.rows * c.query_stride, step);
    const auto in_chunks = [&](const AttendArgs& args) {
      const int length = args.first_position + args.rows;
      std::vector<int> chunks(
          static_cast<size_t>((length + kAttendChunk - 1) / kAttendChunk));
      std::iota(chunks.begin(), chunks.end(), 0);
      std::shuffle(chunks.begin(), chunks.end(), random_);
      for (const int chunk : chunks) kernels_->attend_chunk(args, chunk);
      kernels_->attend_fold(args);
    };
    ASSERT_TRUE(AllSame(c.AttendWith(0, c.rows, in_chunks),
                        c.Attend(*kernels_, 0, c.rows)))
        << "step " << step;
  }
}

INSTANTIATE_TEST_SUITE_P(All, KernelsAttendTest, AllIsas(), IsaTestName);

}  // namespace
}  // namespace specwire
