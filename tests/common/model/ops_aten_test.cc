// SPDX-License-Identifier: Apache-2.0
#include "common/model/ops_aten.h"
#include "common/model/thread_pool.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "common/model/engine.h"
#include "common/model/kv_cache.h"

namespace specwire {
namespace {

constexpr int kRows = Engine::kMaxRows;

ModelConfig SmallConfig() {
  ModelConfig config;
  config.num_layers = 2;
  config.hidden_size = 24;
  config.intermediate_size = 40;
  config.num_heads = 6;
  config.num_kv_heads = 2;
  config.head_dim = 8;
  config.rms_norm_eps = 1e-5F;
  config.rope_theta = 10000;
  config.attention_scale = 1 / std::sqrt(8.0F);
  return config;
}

class AtenOpsTest : public ::testing::TestWithParam<bool> {
 protected:
  AtenOpsTest() {
    AtenOptions options;
    options.threads = std::make_shared<ThreadPool>(1);
    options.max_model_len = 100;
    options.one_row_a_tile = GetParam();
    ops_ = CreateAtenOps(config_, options);
    ops_->AllocateKvCache(8);
  }

  at::Tensor Random(int64_t rows, int64_t columns) {
    at::Tensor tensor = at::empty({rows, columns}, at::kFloat);
    std::normal_distribution<float> normal;
    std::generate_n(tensor.data_ptr<float>(), tensor.numel(), [&] {
      return normal(random_);
    });
    return tensor;
  }

  // The operations' own form of a float32 matrix.
  std::unique_ptr<LinearWeight> Prepare(const at::Tensor& values) {
    const FileTensor tensor = {
        "matrix",
        GgmlType::kF32,
        {values.size(0), values.size(1)},
        absl::MakeConstSpan(
            reinterpret_cast<const uint8_t*>(values.data_ptr<float>()),
            static_cast<size_t>(values.numel()) * sizeof(float))};
    WeightMatrix matrix(values.size(1));
    for (int64_t row = 0; row < values.size(0); ++row) {
      matrix.Append(&tensor, row);
    }
    Sha256 digest;
    auto weight = ops_->PrepareLinear(matrix, &digest);
    EXPECT_TRUE(weight.ok()) << weight.status();
    return weight.ok() ? *std::move(weight) : nullptr;
  }

  const ModelConfig config_ = SmallConfig();
  std::mt19937 random_{3};
  std::unique_ptr<Ops> ops_;
};

const float* Row(const at::Tensor& tensor, int row) {
  return tensor.data_ptr<float>() + row * tensor.stride(0);
}

double Dot(const float* a, const float* b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    sum += double{a[i]} * double{b[i]};
  }
  return sum;
}

TEST_P(AtenOpsTest, EmbedCopiesTheTokensRows) {
  const at::Tensor table = Random(10, 24);
  const auto weight = Prepare(table);
  const at::Tensor x = at::zeros({kRows, 24}, at::kFloat);
  ops_->Embed(*weight, {9, 0, 9}, x);
  for (const auto& [row, token] : {std::pair(0, 9), {1, 0}, {2, 9}}) {
    EXPECT_EQ(std::memcmp(Row(x, row), Row(table, token), 24 * sizeof(float)),
              0);
  }
}

TEST_P(AtenOpsTest, NormLinearMatchesTheFormula) {
  // More outputs than one piece, and not a multiple of anything.
  constexpr int kOut = 413;
  const at::Tensor x = Random(kRows, 24);
  const at::Tensor norm = Random(1, 24);
  const at::Tensor matrix = Random(kOut, 24);
  const auto weight = Prepare(matrix);
  const at::Tensor y = at::zeros({kRows, kOut}, at::kFloat);
  constexpr int kUsed = 11;
  ops_->NormLinear(x, norm.view({24}), *weight, kUsed, y);
  for (int row = 0; row < kUsed; ++row) {
    const double mean = Dot(Row(x, row), Row(x, row), 24) / 24;
    std::vector<float> normed(24);
    for (size_t i = 0; i < 24; ++i) {
      normed[i] = static_cast<float>(Row(x, row)[i] / std::sqrt(mean + 1e-5) *
                                     Row(norm, 0)[i]);
    }
    for (int out = 0; out < kOut; ++out) {
      ASSERT_NEAR(
          Row(y, row)[out], Dot(normed.data(), Row(matrix, out), 24), 1e-5)
          << row << " " << out;
    }
  }
}

TEST_P(AtenOpsTest, LinearAddAddsToTheFirstRowsOnly) {
  const at::Tensor x = Random(kRows, 24);
  const at::Tensor matrix = Random(24, 24);
  const auto weight = Prepare(matrix);
  const at::Tensor residual = Random(kRows, 24);
  const at::Tensor before = residual.clone();
  ops_->LinearAdd(x, *weight, 5, residual);
  for (int row = 0; row < 5; ++row) {
    for (int i = 0; i < 24; ++i) {
      EXPECT_NEAR(Row(residual, row)[i],
                  Row(before, row)[i] + Dot(Row(x, row), Row(matrix, i), 24),
                  1e-5);
    }
  }
  EXPECT_EQ(std::memcmp(Row(residual, 5), Row(before, 5), 24 * sizeof(float)),
            0);
}

TEST_P(AtenOpsTest, GatedLinearAddMatchesTheFormula) {
  const at::Tensor gate_up = Random(kRows, 80);
  const at::Tensor matrix = Random(24, 40);
  const auto weight = Prepare(matrix);
  const at::Tensor residual = at::zeros({kRows, 24}, at::kFloat);
  ops_->GatedLinearAdd(gate_up, *weight, 9, residual);
  for (int row = 0; row < 9; ++row) {
    std::vector<float> gated(40);
    for (size_t i = 0; i < 40; ++i) {
      const double gate = Row(gate_up, row)[i];
      gated[i] = static_cast<float>(gate / (1 + std::exp(-gate)) *
                                    Row(gate_up, row)[i + 40]);
    }
    for (int i = 0; i < 24; ++i) {
      EXPECT_NEAR(
          Row(residual, row)[i], Dot(gated.data(), Row(matrix, i), 40), 1e-5);
    }
  }
}

// Keys and values in double, rotated by the formula; the blocks of the sequence
// are out of order, and the pass begins in the middle of a block.
TEST_P(AtenOpsTest, AttentionMatchesTheFormula) {
  constexpr int kTotal = 45;
  constexpr int kDim = 8;
  constexpr int kHeads = 6;
  constexpr int kKvHeads = 2;
  const std::vector<int32_t> blocks = {5, 0, 7};
  const at::Tensor qkv = Random(kRows, 80);
  const at::Tensor original = qkv.clone();
  const at::Tensor out = at::zeros({kRows, 48}, at::kFloat);
  for (const auto& [first, count] : {std::pair(0, 21), {21, 24}}) {
    Pass pass;
    pass.tokens.assign(static_cast<size_t>(count), 0);
    pass.runs.push_back(
        {.first_row = 0, .num_rows = count, .start = first, .blocks = blocks});
    const at::Tensor rows = at::zeros({kRows, 80}, at::kFloat);
    rows.narrow(0, 0, count).copy_(original.narrow(0, first, count));
    const at::Tensor result = at::zeros({kRows, 48}, at::kFloat);
    ops_->RotateAndStore(pass, 1, rows);
    ops_->Attend(pass, 1, rows, result);
    out.narrow(0, first, count).copy_(result.narrow(0, 0, count));
  }
  const auto rotated = [&](int position, int offset) {
    const float* head = Row(original, position) + offset;
    std::vector<double> turned(kDim);
    for (size_t i = 0; i < kDim / 2; ++i) {
      const double angle =
          position * std::pow(10000.0, -2.0 * static_cast<double>(i) / kDim);
      turned[i] = head[i] * std::cos(angle) - head[i + 4] * std::sin(angle);
      turned[i + 4] = head[i + 4] * std::cos(angle) + head[i] * std::sin(angle);
    }
    return turned;
  };
  for (int position = 0; position < kTotal; ++position) {
    for (int head = 0; head < kHeads; ++head) {
      const int kv_head = head / (kHeads / kKvHeads);
      const auto query = rotated(position, head * kDim);
      std::vector<double> mixed(kDim, 0);
      double total = 0;
      for (int other = 0; other <= position; ++other) {
        const auto key = rotated(other, 48 + kv_head * kDim);
        double score = 0;
        for (size_t i = 0; i < kDim; ++i) {
          score += query[i] * key[i];
        }
        const double weight = std::exp(score / std::sqrt(double{kDim}));
        total += weight;
        for (size_t i = 0; i < kDim; ++i) {
          mixed[i] +=
              weight * Row(original,
                           other)[64 + static_cast<size_t>(kv_head) * kDim + i];
        }
      }
      for (size_t i = 0; i < kDim; ++i) {
        ASSERT_NEAR(Row(out, position)[static_cast<size_t>(head) * kDim + i],
                    mixed[i] / total,
                    1e-5)
            << position << " " << head;
      }
    }
  }
}

TEST_P(AtenOpsTest, PoisonShowsInRowsThatReadIt) {
  const std::vector<int32_t> blocks = {3};
  Pass pass;
  pass.tokens.assign(11, 0);
  pass.runs.push_back(
      {.first_row = 0, .num_rows = 11, .start = 0, .blocks = blocks});
  const at::Tensor qkv = Random(kRows, 80);
  const at::Tensor out = at::zeros({kRows, 48}, at::kFloat);
  ops_->RotateAndStore(pass, 1, qkv);
  ops_->PoisonKvBlock(3, 5);
  ops_->Attend(pass, 1, qkv, out);
  for (int row = 0; row < 11; ++row) {
    for (int i = 0; i < 48; ++i) {
      EXPECT_EQ(std::isnan(Row(out, row)[i]), row >= 5) << row << " " << i;
    }
  }
}

TEST_P(AtenOpsTest, ARowIsTheSameAtEveryPlaceAndInEveryCrowd) {
  for (const int out : {16, 100, 200, 413}) {
    const at::Tensor norm = Random(1, 24).view({24});
    const auto weight = Prepare(Random(out, 24));
    const at::Tensor row = Random(1, 24);
    const at::Tensor alone = at::zeros({kRows, 24}, at::kFloat);
    const at::Tensor expected = at::zeros({kRows, out}, at::kFloat);
    alone.narrow(0, 0, 1).copy_(row);
    ops_->NormLinear(alone, norm, *weight, 1, expected);
    for (const int rows : {1, 2, 7, 8, 9, 16, 33}) {
      for (int place = 0; place < rows; ++place) {
        const at::Tensor x = Random(kRows, 24);
        x.narrow(0, place, 1).copy_(row);
        const at::Tensor y = at::zeros({kRows, out}, at::kFloat);
        ops_->NormLinear(x, norm, *weight, rows, y);
        ASSERT_EQ(std::memcmp(Row(y, place),
                              Row(expected, 0),
                              static_cast<size_t>(out) * sizeof(float)),
                  0)
            << place << " of " << rows << ", " << out << " outputs";
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(OneRowATile,
                         AtenOpsTest,
                         ::testing::Bool(),
                         [](const auto& test) {
                           return test.param ? "Yes" : "No";
                         });

TEST(AtenRopeTest, FactorsDivideTheFrequencies) {
  const ModelConfig config = SmallConfig();
  AtenOptions options;
  options.threads = std::make_shared<ThreadPool>(1);
  options.max_model_len = 16;
  options.rope_factors = {1, 2, 4, 8};
  const auto ops = CreateAtenOps(config, options);
  ops->AllocateKvCache(1);
  Pass pass;
  pass.tokens = {0};
  const std::vector<int32_t> blocks = {0};
  pass.runs.push_back(
      {.first_row = 0, .num_rows = 1, .start = 3, .blocks = blocks});
  const at::Tensor qkv = at::zeros({kRows, 80}, at::kFloat);
  std::fill_n(qkv.data_ptr<float>(), 4, 1.0F);
  ops->RotateAndStore(pass, 0, qkv);
  for (int i = 0; i < 4; ++i) {
    const double angle = 3 * std::pow(10000.0, -2.0 * i / 8) / (1 << i);
    EXPECT_NEAR(Row(qkv, 0)[i], std::cos(angle), 1e-6);
    EXPECT_NEAR(Row(qkv, 0)[i + 4], std::sin(angle), 1e-6);
  }
}

}  // namespace
}  // namespace specwire
