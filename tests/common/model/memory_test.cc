// SPDX-License-Identifier: Apache-2.0
#include "common/model/memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>

#include "common/base/sha256.h"
#include "common/kernels/packing.h"
#include "common/model/engine_names.h"
#include "common/model/int8_linear.h"
#include "common/model/model_files.h"
#include "common/model/weights.h"
#include "tests/common/model/shape_file.h"

namespace specwire {
namespace {

using ::testing::HasSubstr;

TEST(MemoryTest, TellsWhatTheCacheTakes) {
  ModelConfig config;
  config.num_layers = 30;
  config.num_heads = 9;
  config.num_kv_heads = 3;
  config.head_dim = 64;
  // Keys and values of 30 layers, 3 heads and 64 values, in 2 or 4 bytes.
  EXPECT_EQ(KvBytes(kInt8Engine, config, 2048), 2048 * 2 * 30 * 3 * 64 * 2);
  EXPECT_EQ(KvBytes(kReferenceEngine, config, 2048),
            2048 * 2 * 30 * 3 * 64 * 4);
  // Whole blocks.
  EXPECT_EQ(KvBytes(kInt8Engine, config, 17), KvBytes(kInt8Engine, config, 32));
  EXPECT_EQ(KvBytes(kInt8Engine, config, 0), 0);
  // Values are stored in sixteens, keys are not.
  config.head_dim = 40;
  EXPECT_EQ(KvBytes(kInt8Engine, config, 16), 16 * 30 * 3 * (40 + 48) * 2);
  EXPECT_EQ(KvBytes(kReferenceEngine, config, 16), 16 * 30 * 3 * 80 * 4);
}

class Loaded {
 public:
  explicit Loaded(const std::string& path) {
    files_ = *ModelFiles::Open(path);
    config_ = *files_->ReadConfig(320, 0);
  }

  absl::StatusOr<int64_t> Told(const char* engine,
                               const char* dtype = kFloat32Dtype) const {
    return WeightBytes(
        engine, dtype, files_->tensor_table(), files_->naming(), config_);
  }

  // What the int8 engine allocates for its matrices, and how many values they
  // have.
  int64_t Packed() { return Sum(true); }
  int64_t Values() { return Sum(false); }

 private:
  int64_t Sum(bool packed) {
    const ModelWeights weights = *ModelWeights::Create(
        &files_->tensor_table(), files_->naming(), config_);
    int64_t sum = 0;
    const auto add = [&](const WeightMatrix& matrix) {
      Sha256 digest;
      const auto linear = *Int8Linear::Create(matrix, &arena_, &digest);
      const PackedMatrix& form = linear->packed();
      sum += packed ? PackedWeightBytes(form.form, form.outputs, form.groups) +
                          2 * PackedScales(form.form, form.outputs, form.groups)
                    : matrix.rows() * matrix.columns();
    };
    add(*weights.Embedding());
    const std::optional<WeightMatrix> head = *weights.Head();
    if (head.has_value()) add(*head);
    for (int layer = 0; layer < config_.num_layers; ++layer) {
      const LayerWeights parts = *weights.Layer(layer);
      add(parts.qkv);
      add(parts.attention_output);
      add(parts.gate_up);
      add(parts.ffn_down);
    }
    return sum;
  }

  std::unique_ptr<ModelFiles> files_;
  ModelConfig config_;
  WeightArena arena_;
};

TEST(MemoryTest, TellsWhatTheEnginesKeepOfWeights) {
  // All in one form; forms mixed within merged matrices; a head; widths that
  // are not whole groups.
  for (const ModelShape& shape :
       {ModelShape{.name = "memory_q4_0",
       .hidden = 64,
       .heads = 4,
       .kv_heads = 2,
       .head_dim = 16,
       .ffn = 96,
       .types = {GgmlType::kQ4_0}},
        ModelShape{.name = "memory_q8_0",
        .hidden = 64,
        .heads = 4,
        .kv_heads = 2,
        .head_dim = 16,
        .ffn = 96,
        .untied = true,
        .types = {GgmlType::kQ8_0}},
        ModelShape{.name = "memory_mixed",
        .hidden = 64,
        .heads = 4,
        .kv_heads = 2,
        .head_dim = 16,
        .ffn = 96,
        .untied = true,
        .types = {GgmlType::kQ4_1,
                  GgmlType::kQ4_0,
                  GgmlType::kQ4_0,
                  GgmlType::kQ4_1,
                  GgmlType::kF16}},
        ModelShape{.name = "memory_odd",
        .hidden = 40,
        .heads = 4,
        .kv_heads = 1,
        .head_dim = 10,
        .ffn = 72,
        .vocab = 333,
        .types = {GgmlType::kQ4_1, GgmlType::kF32}}}) {
    SCOPED_TRACE(shape.name);
    Loaded loaded(WriteModel(shape));
    const auto int8 = loaded.Told(kInt8Engine);
    ASSERT_TRUE(int8.ok()) << int8.status();
    EXPECT_EQ(*int8, loaded.Packed());
    const auto reference = loaded.Told(kReferenceEngine);
    ASSERT_TRUE(reference.ok()) << reference.status();
    EXPECT_EQ(*reference, 4 * loaded.Values());
    EXPECT_EQ(*loaded.Told(kReferenceEngine, kBfloat16Dtype),
              2 * loaded.Values());
  }
}

TEST(MemoryTest, NamesAMatrixThatIsNotThere) {
  const std::string path = WriteModel({.name = "memory_absent",
                                       .hidden = 64,
                                       .heads = 4,
                                       .kv_heads = 2,
                                       .head_dim = 16,
                                       .ffn = 96});
  const std::unique_ptr<ModelFiles> files = *ModelFiles::Open(path);
  ModelConfig config = *files->ReadConfig(320, 0);
  const auto message = [&] {
    return std::string(WeightBytes(kInt8Engine,
                                   kFloat32Dtype,
                                   files->tensor_table(),
                                   files->naming(),
                                   config)
                           .status()
                           .message());
  };
  config.intermediate_size = 128;
  EXPECT_THAT(message(), HasSubstr("blk.0.ffn_gate.weight"));
  config.intermediate_size = 96;
  config.num_layers = 3;
  EXPECT_THAT(message(), HasSubstr("blk.2.attn_q.weight"));
  config.vocab_size = 400;
  EXPECT_THAT(message(), HasSubstr("token_embd.weight: must have the shape"));
}

}  // namespace
}  // namespace specwire
