// SPDX-License-Identifier: Apache-2.0
// What a language model is made of, by numbers that can be followed with a
// pencil: attention, its heads, its cache, and what the cache saves. All of it
// through the kernels and engines that serve.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "common/kernels/half.h"
#include "common/kernels/kernels.h"
#include "common/model/engine.h"
#include "tests/common/kernels/kernels_test_util.h"
#include "tests/common/model/engine_test_util.h"
#include "tests/common/model/shape_file.h"

namespace specwire {
namespace {

// Vectors have four numbers here, so that scores are divided by sqrt(4).
constexpr int kDim = 4;
constexpr float kScale = 0.5f;

using Vector = std::array<float, kDim>;
using Matrix = std::vector<Vector>;

// Half a unit of the third decimal.
constexpr double kThreeDecimals = 0.0005;

void ExpectNear(const Vector& got, const std::array<double, kDim>& want) {
  for (size_t i = 0; i < kDim; ++i) {
    EXPECT_NEAR(static_cast<double>(got[i]), want[i], kThreeDecimals)
        << "number " << i;
  }
}

void ExpectSame(const Matrix& got, const Matrix& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_TRUE(AllSame({got[i].begin(), got[i].end()},
                        {want[i].begin(), want[i].end()}))
        << "vector " << i;
  }
}

// W x, for W given by its rows.
Vector Times(const Matrix& w, const Vector& x) {
  Vector y = {};
  for (size_t row = 0; row < kDim; ++row) {
    for (size_t i = 0; i < kDim; ++i) y[row] += w[row][i] * x[i];
  }
  return y;
}

// Keys and values of up to 16 positions, as the engine's cache holds them: in
// half precision, in which small integers are exact. `kv_heads` slices follow
// each other in one block.
class Cache {
 public:
  explicit Cache(const Kernels& kernels, int kv_heads = 1)
      : kernels_(kernels),
        // What no position has filled is NaN, and shows where it is read.
        block_(static_cast<size_t>(kv_heads * kSlice), FloatToHalf(kNan)) {}

  void Store(int position,
             const Vector& key,
             const Vector& value,
             int kv_head = 0) {
    kernels_.store_kv(key.data(),
                      value.data(),
                      kDim,
                      position,
                      block_.data() + kv_head * kSlice);
  }

  // Attention of `heads` queries for each of `rows` positions, the first of
  // which is `position`: row r sees positions [0, position + r].
  // `queries`: [rows, heads].
  Matrix Attend(const Matrix& queries,
                int position,
                int heads = 1,
                int kv_head = 0) const {
    const int rows = static_cast<int>(queries.size()) / heads;
    Matrix out(queries.size());
    Run(queries.data(), out.data(), {position, rows, heads, heads, kv_head});
    return out;
  }

  struct Part {
    int position;
    int rows;
    // Query heads of this KV head, and of all KV heads together.
    int heads;
    int all_heads;
    int kv_head;
  };
  void Run(const Vector* queries, Vector* out, const Part& part) const {
    std::vector<float> scratch(static_cast<size_t>(
        AttendScratch(part.position, part.rows, part.heads, kDim)));
    const int32_t block = 0;
    kernels_.attend(
        AttendArgs{.queries = queries->data(),
                   .query_stride = int64_t{kDim} * part.all_heads,
                   .out = out->data(),
                   .out_stride = int64_t{kDim} * part.all_heads,
                   .cache = block_.data() + part.kv_head * kSlice,
                   .block_stride = static_cast<int64_t>(block_.size()),
                   .blocks = &block,
                   .first_position = part.position,
                   .rows = part.rows,
                   .window = 0,
                   .heads = part.heads,
                   .head_dim = kDim,
                   .scale = kScale,
                   .scratch = scratch.data()});
  }

 private:
  // Halves of one KV head: keys [4, 16], values [16, 4 rounded up to 16].
  static constexpr int kSlice = kKvSlots * kDim + kKvSlots * 16;

  const Kernels& kernels_;
  std::vector<uint16_t> block_;
};

class PrimitivesTest : public KernelsTest {
 protected:
  // Each query over all keys: softmax(Q K^T / sqrt(4)) V without a mask. A mask
  // hides what stands behind a query, so each stands at the last position.
  Matrix AttendUnmasked(const Matrix& queries,
                        const Matrix& keys,
                        const Matrix& values) const {
    Cache cache(*kernels_);
    for (size_t i = 0; i < keys.size(); ++i) {
      cache.Store(static_cast<int>(i), keys[i], values[i]);
    }
    Matrix out;
    for (const Vector& query : queries) {
      out.push_back(
          cache.Attend({query}, static_cast<int>(keys.size()) - 1).at(0));
    }
    return out;
  }

  Vector RandomVector() {
    const std::vector<float> numbers = Numbers(kDim, 0);
    Vector vector;
    std::copy(numbers.begin(), numbers.end(), vector.begin());
    return vector;
  }
};

const Matrix kQueries = {{1, 0, 1, 0}, {0, 1, 0, 1}, {1, 1, 0, 0}};
const Matrix kKeys = {{1, 0, 1, 0}, {0, 1, 0, 1}, {1, 1, 1, 1}};
const Matrix kValues = {{1, 2, 3, 4}, {5, 6, 7, 8}, {9, 10, 11, 12}};

// The first query's scores are 2, 0, 2, halved 1, 0, 1; e / (2 e + 1) = 0.422.
// Values that are unit vectors show the weights.
TEST_P(PrimitivesTest, AttentionWeightsAreTheSoftmaxOfScaledScores) {
  const Matrix units = {{1, 0, 0, 0}, {0, 1, 0, 0}, {0, 0, 1, 0}};
  const Matrix weights = AttendUnmasked(kQueries, kKeys, units);
  ExpectNear(weights.at(0), {0.422, 0.155, 0.422, 0});
  ExpectNear(weights.at(1), {0.155, 0.422, 0.422, 0});
  ExpectNear(weights.at(2), {0.274, 0.274, 0.452, 0});
}

TEST_P(PrimitivesTest, AttentionMixesTheValuesByTheirWeights) {
  const Matrix out = AttendUnmasked(kQueries, kKeys, kValues);
  ExpectNear(out.at(0), {5, 6, 7, 8});
  ExpectNear(out.at(1), {6.068, 7.068, 8.068, 9.068});
  ExpectNear(out.at(2), {5.711, 6.711, 7.711, 8.711});
}

// Two KV heads with three query heads each, five positions, as the engine lays
// them out, against each query head with a cache of its own.
TEST_P(PrimitivesTest, MultiHeadAttentionIsItsHeadsComputedApart) {
  constexpr int kRows = 5;
  constexpr int kKvHeads = 2;
  constexpr int kGroup = 3;
  constexpr int kHeads = kKvHeads * kGroup;
  Matrix queries(kRows * kHeads);
  for (Vector& query : queries) query = RandomVector();
  Cache cache(*kernels_, kKvHeads);
  std::vector<Cache> apart(kHeads, Cache(*kernels_));
  for (int position = 0; position < kRows; ++position) {
    for (int head = 0; head < kHeads; head += kGroup) {
      const Vector key = RandomVector();
      const Vector value = RandomVector();
      cache.Store(position, key, value, head / kGroup);
      for (int i = 0; i < kGroup; ++i) {
        apart[static_cast<size_t>(head + i)].Store(position, key, value);
      }
    }
  }

  Matrix together(queries.size());
  for (int kv_head = 0; kv_head < kKvHeads; ++kv_head) {
    cache.Run(queries.data() + kv_head * kGroup,
              together.data() + kv_head * kGroup,
              {.position = 0,
               .rows = kRows,
               .heads = kGroup,
               .all_heads = kHeads,
               .kv_head = kv_head});
  }

  for (size_t head = 0; head < kHeads; ++head) {
    SCOPED_TRACE(head);
    Matrix queries_of_head;
    Matrix together_of_head;
    for (size_t i = head; i < queries.size(); i += kHeads) {
      queries_of_head.push_back(queries[i]);
      together_of_head.push_back(together[i]);
    }
    ExpectSame(apart[head].Attend(queries_of_head, 0), together_of_head);
  }
}

// A layer of attention alone, that counts how often it projects a token to its
// key and value.
class CountedAttention {
 public:
  explicit CountedAttention(const Kernels& kernels) : kernels_(kernels) {}

  // Outputs at all positions, one after the other, each token being projected
  // once.
  Matrix DecodeCached(const Matrix& embeddings) {
    Cache cache(kernels_);
    Matrix out;
    for (size_t i = 0; i < embeddings.size(); ++i) {
      ProjectInto(embeddings, i, &cache);
      out.push_back(AttendAt(embeddings, i, cache));
    }
    return out;
  }

  // The same with nothing kept from one token to the next.
  Matrix DecodeUncached(const Matrix& embeddings) {
    Matrix out;
    for (size_t i = 0; i < embeddings.size(); ++i) {
      Cache cache(kernels_);
      for (size_t j = 0; j <= i; ++j) ProjectInto(embeddings, j, &cache);
      out.push_back(AttendAt(embeddings, i, cache));
    }
    return out;
  }

  int TakeProjections() { return std::exchange(projections_, 0); }

 private:
  void ProjectInto(const Matrix& embeddings, size_t position, Cache* cache) {
    ++projections_;
    const Vector& x = embeddings[position];
    cache->Store(static_cast<int>(position), Times(w_k_, x), Times(w_v_, x));
  }

  Vector AttendAt(const Matrix& embeddings,
                  size_t position,
                  const Cache& cache) const {
    const Vector query = Times(w_q_, embeddings[position]);
    return cache.Attend({query}, static_cast<int>(position)).at(0);
  }

  const Kernels& kernels_;
  const Matrix w_q_ = {{1, 0, 0, 0}, {0, 1, 0, 0}, {0, 0, 1, 0}, {0, 0, 0, 1}};
  const Matrix w_k_ = w_q_;
  // Moves every number on by one place, the last to the front.
  const Matrix w_v_ = {{0, 0, 0, 1}, {1, 0, 0, 0}, {0, 1, 0, 0}, {0, 0, 1, 0}};
  int projections_ = 0;
};

const Matrix kEmbeddings = {
    {1, 0, 0, 1}, {0, 1, 0, 1}, {0, 0, 1, 1}, {1, 1, 0, 0}};

TEST_P(PrimitivesTest, ACacheSavesProjectionsAndChangesNothing) {
  CountedAttention attention(*kernels_);
  const Matrix cached = attention.DecodeCached(kEmbeddings);
  EXPECT_EQ(attention.TakeProjections(), 4);
  const Matrix uncached = attention.DecodeUncached(kEmbeddings);
  EXPECT_EQ(attention.TakeProjections(), 1 + 2 + 3 + 4);
  ExpectSame(cached, uncached);
}

// The first token sees itself alone: its embedding, moved on by one. The second
// has scores 1 and 2, halved 0.5 and 1: weights 0.378 and 0.622 of the values
// [1, 1, 0, 0] and [1, 0, 1, 0]. And so on.
TEST_P(PrimitivesTest, CausalAttentionOfFourEmbeddings) {
  const Matrix out = CountedAttention(*kernels_).DecodeCached(kEmbeddings);
  ExpectNear(out.at(0), {1, 1, 0, 0});
  ExpectNear(out.at(1), {1, 0.378, 0.622, 0});
  ExpectNear(out.at(2), {1, 0.274, 0.274, 0.452});
  ExpectNear(out.at(3), {0.613, 0.622, 0.622, 0.143});
}

INSTANTIATE_TEST_SUITE_P(All, PrimitivesTest, AllIsas(), IsaTestName);

// The engines themselves, counted.
class EngineRowsComputedTest : public ::testing::TestWithParam<EngineCase> {
 protected:
  void SetUp() override {
    if (!IsSupported(GetParam())) {
      GTEST_SKIP() << "NOT TESTED: this processor lacks the instruction set";
    }
  }

  // A smallest model that takes 1,000 tokens. Keys and values that belong to no
  // sequence are NaN, so that nothing of an earlier sequence can serve a later.
  std::unique_ptr<Engine> LoadSmallest() const {
    const std::string path = WriteModel({.name = "primitives",
                                         .hidden = 8,
                                         .heads = 1,
                                         .kv_heads = 1,
                                         .head_dim = 2,
                                         .ffn = 8,
                                         .layers = 1,
                                         .context = 1000});
    EngineOptions options;
    options.kv_cache_mib = 1;
    options.poison_free_kv = true;
    return Load(GetParam(), path, options);
  }

  // The logits after `tokens`, which a sequence is given in as few passes as
  // an engine takes.
  static LogitRow After(Engine& engine,
                        KvSequence* kv,
                        absl::Span<const int32_t> tokens) {
    std::vector<LogitRow> rows;
    while (!tokens.empty()) {
      const auto pass = tokens.subspan(0, Engine::kMaxRows);
      tokens.remove_prefix(pass.size());
      rows = Compute(
          engine,
          {{.kv = kv, .tokens = pass, .num_logits = tokens.empty() ? 1 : 0}});
    }
    return rows.at(0);
  }

  // The logits of every step of decoding `text` token by token.
  static std::vector<LogitRow> DecodeCached(Engine& engine,
                                            absl::Span<const int32_t> text) {
    const auto kv = engine.NewSequence();
    std::vector<LogitRow> logits;
    for (size_t i = 0; i < text.size(); ++i) {
      logits.push_back(After(engine, kv.get(), text.subspan(i, 1)));
    }
    return logits;
  }

  static std::vector<LogitRow> DecodeUncached(Engine& engine,
                                              absl::Span<const int32_t> text) {
    std::vector<LogitRow> logits;
    for (size_t i = 0; i < text.size(); ++i) {
      const auto kv = engine.NewSequence();
      logits.push_back(After(engine, kv.get(), text.subspan(0, i + 1)));
    }
    return logits;
  }

  // Decodes both ways, each by an engine of its own.
  void ExpectRows(int tokens,
                  int64_t cached_rows,
                  int64_t uncached_rows) const {
    const Tokens text = RandomTokens(3, tokens);
    const auto cached = LoadSmallest();
    const auto uncached = LoadSmallest();
    ASSERT_NE(cached, nullptr);
    ASSERT_NE(uncached, nullptr);
    EXPECT_EQ(cached->rows_computed(), 0);
    const std::vector<LogitRow> logits = DecodeCached(*cached, text);
    EXPECT_EQ(cached->rows_computed(), cached_rows);
    for (const LogitRow& row : logits) {
      for (const float logit : row) ASSERT_TRUE(std::isfinite(logit));
    }
    EXPECT_FALSE(SameBits(logits.front(), logits.back()));
    ASSERT_NO_FATAL_FAILURE(
        ExpectSameRows(DecodeUncached(*uncached, text), logits));
    EXPECT_EQ(uncached->rows_computed(), uncached_rows);
  }
};

TEST_P(EngineRowsComputedTest, FourTokensTakeFourRowsInsteadOfTen) {
  ExpectRows(4, 4, 10);
}

TEST_P(EngineRowsComputedTest, AThousandTokensTakeAThousandRows) {
  if (GetParam().isa == "scalar") {
    GTEST_SKIP() << "NOT TESTED: half a million rows in scalar code are slow";
  }
  ExpectRows(1000, 1000, 500500);
}

// What is refused was not computed.
TEST_P(EngineRowsComputedTest, ARefusedPassDoesNotCount) {
  const auto engine = LoadSmallest();
  ASSERT_NE(engine, nullptr);
  const auto kv = engine->NewSequence();
  const Tokens wrong = {1, -1};
  EXPECT_FALSE(
      engine->Forward({{.kv = kv.get(), .tokens = wrong, .num_logits = 1}})
          .ok());
  EXPECT_EQ(engine->rows_computed(), 0);
}

INSTANTIATE_TEST_SUITE_P(All,
                         EngineRowsComputedTest,
                         ::testing::ValuesIn(AllEngines()),
                         [](const auto& test) { return test.param.Name(); });

}  // namespace
}  // namespace specwire
