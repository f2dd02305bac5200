// SPDX-License-Identifier: Apache-2.0
#include "tests/common/model/shape_file.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/kernels/half.h"
#include "common/model/ggml_types.h"
#include "tests/common/model/tiny_file.h"

namespace specwire {
namespace {

std::string HalfBytes(float value) {
  return LittleEndian(FloatToHalf(value), 2);
}

// What deviates by 1 from the mean of numbers from 0 to 2^bits - 1, all alike
// likely.
float UnitStep(int bits) {
  const float count = static_cast<float>(1 << bits);
  return std::sqrt(12 / (count * count - 1));
}

std::string RandomBytes(int count, std::mt19937& random) {
  std::string bytes;
  for (int i = 0; i < count; ++i) {
    bytes.push_back(static_cast<char>(random() & 0xff));
  }
  return bytes;
}

// The 12 bytes of scales of a Q4_K or Q5_K block whose groups have the same
// number, from 32 to 63, as scale and as minimum.
std::string GroupScales(std::mt19937& random) {
  int scales[8];
  for (int& scale : scales) scale = 32 + static_cast<int>(random() % 32);
  std::string bytes(12, '\0');
  for (size_t i = 0; i < 4; ++i) {
    const int high = scales[i + 4] >> 4 << 6;
    bytes[i] = bytes[i + 4] = static_cast<char>(scales[i] | high);
    bytes[i + 8] = static_cast<char>((scales[i + 4] & 15) * 17);
  }
  return bytes;
}

// A block of 256 in a K type.
std::string RandomSuperBlock(GgmlType type,
                             float deviation,
                             std::mt19937& random) {
  if (type == GgmlType::kQ6_K) {
    std::string block = RandomBytes(128 + 64, random);
    for (int group = 0; group < 16; ++group) {
      // Of either sign, 96 on average.
      const int scale = 64 + static_cast<int>(random() % 64);
      block.push_back(static_cast<char>(random() % 2 == 0 ? scale : -scale));
    }
    return block + HalfBytes(deviation * UnitStep(6) / 96);
  }
  const bool five = type == GgmlType::kQ5_K;
  const float scale = deviation * UnitStep(five ? 5 : 4) / 48;
  return HalfBytes(scale) + HalfBytes((five ? 15.5f : 7.5f) * scale) +
         GroupScales(random) + RandomBytes(five ? 160 : 128, random);
}

// A block of 32 in a quantised type.
std::string RandomBlock(GgmlType type, float deviation, std::mt19937& random) {
  std::normal_distribution<float> normal(0, deviation);
  std::string block;
  if (type == GgmlType::kQ8_0) {
    float values[32];
    float abs_max = 0;
    for (float& value : values) {
      value = normal(random);
      abs_max = std::max(abs_max, std::fabs(value));
    }
    block = HalfBytes(abs_max / 127);
    for (const float value : values) {
      block.push_back(static_cast<char>(std::lround(value / abs_max * 127)));
    }
    return block;
  }
  const bool five = type == GgmlType::kQ5_0 || type == GgmlType::kQ5_1;
  const float scale = deviation * UnitStep(five ? 5 : 4);
  block = HalfBytes(scale);
  if (type == GgmlType::kQ4_1) block += HalfBytes(-7.5f * scale);
  if (type == GgmlType::kQ5_1) block += HalfBytes(-15.5f * scale);
  return block + RandomBytes(five ? 4 + 16 : 16, random);
}

// Builds the tensors of a file.
class Builder {
 public:
  explicit Builder(const ModelShape& shape) : shape_(shape) {}

  void Matrix(const std::string& name, int rows, int columns) {
    GgmlType type = shape_.types[next_++ % shape_.types.size()];
    if (columns % InfoOf(type).block_size != 0) type = GgmlType::kF16;
    const float deviation = 1.0f / std::sqrt(static_cast<float>(columns));
    Add(name,
        type,
        {rows, columns},
        RandomBlocks(type, int64_t{rows} * columns, deviation, random_));
  }

  // Weights of a norm, about 1.
  void Norm(const std::string& name) {
    std::normal_distribution<float> normal(1, 0.2f);
    std::vector<float> values(static_cast<size_t>(shape_.hidden));
    for (float& value : values) value = normal(random_);
    Add(name, GgmlType::kF32, {shape_.hidden}, PackFloats(values));
  }

  void Layer(const std::string& prefix) {
    const int q_size = shape_.heads * shape_.head_dim;
    const int kv_size = shape_.kv_heads * shape_.head_dim;
    Norm(prefix + "attn_norm.weight");
    Matrix(prefix + "attn_q.weight", q_size, shape_.hidden);
    Matrix(prefix + "attn_k.weight", kv_size, shape_.hidden);
    Matrix(prefix + "attn_v.weight", kv_size, shape_.hidden);
    Matrix(prefix + "attn_output.weight", shape_.hidden, q_size);
    Norm(prefix + "ffn_norm.weight");
    Matrix(prefix + "ffn_gate.weight", shape_.ffn, shape_.hidden);
    Matrix(prefix + "ffn_up.weight", shape_.ffn, shape_.hidden);
    Matrix(prefix + "ffn_down.weight", shape_.hidden, shape_.ffn);
  }

  void RopeFactors() {
    std::vector<float> factors;
    for (int i = 0; i < shape_.head_dim / 2; ++i) {
      factors.push_back(1.0f + static_cast<float>(i % 5));
    }
    Add("rope_freqs.weight",
        GgmlType::kF32,
        {shape_.head_dim / 2},
        PackFloats(factors));
  }

  std::map<std::string, TinyFile::Tensor> Take() { return std::move(tensors_); }

 private:
  void Add(const std::string& name,
           GgmlType type,
           std::vector<int64_t> shape,
           std::string data) {
    tensors_[name] = {type, std::move(shape), std::move(data)};
  }

  const ModelShape& shape_;
  std::mt19937 random_{7};
  size_t next_ = 0;
  std::map<std::string, TinyFile::Tensor> tensors_;
};

}  // namespace

std::string RandomBlocks(GgmlType type,
                         int64_t count,
                         float deviation,
                         std::mt19937& random) {
  std::normal_distribution<float> normal(0, deviation);
  std::string data;
  const GgmlTypeInfo& info = InfoOf(type);
  for (int64_t i = 0; i < count; i += info.block_size) {
    if (info.block_size == 256) {
      data += RandomSuperBlock(type, deviation, random);
      continue;
    }
    if (info.block_size > 1) {
      data += RandomBlock(type, deviation, random);
      continue;
    }
    const float value = normal(random);
    const auto bits = std::bit_cast<uint32_t>(value);
    data += type == GgmlType::kF16    ? HalfBytes(value)
            : type == GgmlType::kBF16 ? LittleEndian(bits >> 16, 2)
                                      : LittleEndian(bits, 4);
  }
  return data;
}

std::string WriteModel(const ModelShape& shape) {
  TinyFile file;
  file.ints["llama.block_count"] = shape.layers;
  file.ints["llama.context_length"] = shape.context;
  file.ints["llama.embedding_length"] = shape.hidden;
  file.ints["llama.feed_forward_length"] = shape.ffn;
  file.ints["llama.attention.head_count"] = shape.heads;
  file.ints["llama.attention.head_count_kv"] = shape.kv_heads;
  file.ints["llama.attention.key_length"] = shape.head_dim;
  file.ints["llama.attention.value_length"] = shape.head_dim;
  file.ints["llama.rope.dimension_count"] = shape.head_dim;
  while (file.tokens.size() < static_cast<size_t>(shape.vocab)) {
    file.tokens.push_back(absl::StrCat("[PAD", file.tokens.size(), "]"));
    file.token_types.push_back(5);  // unused
  }
  Builder builder(shape);
  builder.Matrix("token_embd.weight", shape.vocab, shape.hidden);
  for (int i = 0; i < shape.layers; ++i) {
    builder.Layer(absl::StrCat("blk.", i, "."));
  }
  builder.Norm("output_norm.weight");
  if (shape.untied) {
    builder.Matrix("output.weight", shape.vocab, shape.hidden);
  }
  if (shape.rope_factors) builder.RopeFactors();
  file.tensors = builder.Take();
  return file.Write(absl::StrCat("shape_", shape.name));
}

}  // namespace specwire
