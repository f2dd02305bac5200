// SPDX-License-Identifier: Apache-2.0
#include "common/model/ggml_types.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/kernels/half.h"

namespace specwire {
namespace {

static_assert(std::endian::native == std::endian::little,
              "model files are read in place, so the host must be "
              "little-endian too");

// Names by number; nullptr where ggml has taken a type away again.
constexpr const char* kNames[] = {
    "F32",   "F16",   "Q4_0",    "Q4_1",   "Q4_2",    "Q4_3",  "Q5_0",
    "Q5_1",  "Q8_0",  "Q8_1",    "Q2_K",   "Q3_K",    "Q4_K",  "Q5_K",
    "Q6_K",  "Q8_K",  "IQ2_XXS", "IQ2_XS", "IQ3_XXS", "IQ1_S", "IQ4_NL",
    "IQ3_S", "IQ2_S", "IQ4_XS",  "I8",     "I16",     "I32",   "I64",
    "F64",   "IQ1_M", "BF16",    nullptr,  nullptr,   nullptr, "TQ1_0",
    "TQ2_0", nullptr, nullptr,   nullptr,  "MXFP4",   "NVFP4", "Q1_0"};
constexpr size_t kNumNames = sizeof(kNames) / sizeof(kNames[0]);

uint16_t LoadU16(const uint8_t* bytes) {
  uint16_t value;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

uint32_t LoadU32(const uint8_t* bytes) {
  uint32_t value;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

// Types of one value a block. The values are made first and looked at together,
// which takes a fraction of the time that one by one does.

size_t FirstNotFinite(const float* values, size_t count) {
  constexpr uint32_t kExponent = 0x7f800000;
  uint32_t any = 0;
  for (size_t i = 0; i < count; ++i) {
    const auto bits = std::bit_cast<uint32_t>(values[i]);
    any |= (bits & kExponent) == kExponent ? 1 : 0;
  }
  if (any == 0) return count;
  return static_cast<size_t>(
      std::find_if(values,
                   values + count,
                   [](float value) { return !std::isfinite(value); }) -
      values);
}

size_t ExpandF32(const uint8_t* blocks, size_t count, float* out) {
  if (count > 0) std::memcpy(out, blocks, count * sizeof(*out));
  return FirstNotFinite(out, count);
}

// HalfToFloat without branches, in integers and masks that the compiler makes
// vectors of.
size_t ExpandF16(const uint8_t* blocks, size_t count, float* out) {
  for (size_t i = 0; i < count; ++i) {
    const int32_t half = LoadU16(blocks + 2 * i);
    const int32_t magnitude = half & 0x7fff;
    // The bias is 15 in a half and 127 in a float; what is infinite or no
    // number stays so.
    const int32_t special = -static_cast<int32_t>(magnitude >= 0x7c00);
    const int32_t normal =
        (magnitude << 13) + (112 << 23) + (special & 112 << 23);
    const float subnormal = static_cast<float>(magnitude) * 0x1p-24f;
    const int32_t is_subnormal = -static_cast<int32_t>(magnitude < 0x0400);
    const int32_t bits = (normal & ~is_subnormal) |
                         (std::bit_cast<int32_t>(subnormal) & is_subnormal);
    out[i] = std::bit_cast<float>(static_cast<uint32_t>(bits) |
                                  static_cast<uint32_t>(half & 0x8000) << 16);
  }
  return FirstNotFinite(out, count);
}

size_t ExpandBF16(const uint8_t* blocks, size_t count, float* out) {
  for (size_t i = 0; i < count; ++i) {
    out[i] = std::bit_cast<float>(uint32_t{LoadU16(blocks + 2 * i)} << 16);
  }
  return FirstNotFinite(out, count);
}

// Each of these expands one block and returns false if its scale or minimum is
// not finite. Products and sums are rounded one by one (the file is compiled
// without contraction), as the reference does.

bool ExpandQ4_0(const uint8_t* block, float* out) {
  const float d = HalfToFloat(LoadU16(block));
  const uint8_t* nibbles = block + 2;
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>((nibbles[i] & 15) - 8);
    out[i + 16] = d * static_cast<float>((nibbles[i] >> 4) - 8);
  }
  return std::isfinite(d);
}

bool ExpandQ4_1(const uint8_t* block, float* out) {
  const float d = HalfToFloat(LoadU16(block));
  const float m = HalfToFloat(LoadU16(block + 2));
  const uint8_t* nibbles = block + 4;
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>(nibbles[i] & 15) + m;
    out[i + 16] = d * static_cast<float>(nibbles[i] >> 4) + m;
  }
  return std::isfinite(d) && std::isfinite(m);
}

// Value i of a block of 32 with 5 bits each, without its offset.
float FiveBits(uint32_t high, const uint8_t* nibbles, int i) {
  const int low = i < 16 ? nibbles[i] & 15 : nibbles[i - 16] >> 4;
  return static_cast<float>(low | static_cast<int>(high >> i & 1) << 4);
}

bool ExpandQ5_0(const uint8_t* block, float* out) {
  const float d = HalfToFloat(LoadU16(block));
  const uint32_t high = LoadU32(block + 2);
  for (int i = 0; i < 32; ++i) {
    out[i] = d * (FiveBits(high, block + 6, i) - 16);
  }
  return std::isfinite(d);
}

bool ExpandQ5_1(const uint8_t* block, float* out) {
  const float d = HalfToFloat(LoadU16(block));
  const float m = HalfToFloat(LoadU16(block + 2));
  const uint32_t high = LoadU32(block + 4);
  for (int i = 0; i < 32; ++i) {
    out[i] = d * FiveBits(high, block + 8, i) + m;
  }
  return std::isfinite(d) && std::isfinite(m);
}

bool ExpandQ8_0(const uint8_t* block, float* out) {
  const float d = HalfToFloat(LoadU16(block));
  for (int i = 0; i < 32; ++i) {
    out[i] = d * static_cast<float>(static_cast<int8_t>(block[2 + i]));
  }
  return std::isfinite(d);
}

// The scale and the minimum of one group of a Q4_K or Q5_K block, 6 bits each.
struct GroupScale {
  int scale;
  int minimum;
};

GroupScale GroupScaleOf(const uint8_t* scales, int group) {
  if (group < 4) return {scales[group] & 63, scales[group + 4] & 63};
  const int low = scales[group + 4];
  return {(low & 15) | scales[group - 4] >> 6 << 4,
          low >> 4 | scales[group] >> 6 << 4};
}

// Q4_K and Q5_K, the latter with `high`, the former with null.
bool ExpandScaledGroups(const uint8_t* block,
                        const uint8_t* high,
                        const uint8_t* nibbles,
                        float* out) {
  const float d = HalfToFloat(LoadU16(block));
  const float m = HalfToFloat(LoadU16(block + 2));
  for (int group = 0; group < 8; ++group) {
    const GroupScale scales = GroupScaleOf(block + 4, group);
    const float scale = d * static_cast<float>(scales.scale);
    const float minimum = m * static_cast<float>(scales.minimum);
    const uint8_t* const bytes = nibbles + group / 2 * 32;
    for (int i = 0; i < 32; ++i) {
      int q = group % 2 == 0 ? bytes[i] & 15 : bytes[i] >> 4;
      if (high != nullptr) q |= (high[i] >> group & 1) << 4;
      *out++ = scale * static_cast<float>(q) - minimum;
    }
  }
  return std::isfinite(d) && std::isfinite(m);
}

bool ExpandQ4_K(const uint8_t* block, float* out) {
  return ExpandScaledGroups(block, nullptr, block + 16, out);
}

bool ExpandQ5_K(const uint8_t* block, float* out) {
  return ExpandScaledGroups(block, block + 16, block + 48, out);
}

bool ExpandQ6_K(const uint8_t* block, float* out) {
  const float d = HalfToFloat(LoadU16(block + 208));
  float scales[16];
  for (int i = 0; i < 16; ++i) {
    scales[i] = d * static_cast<float>(static_cast<int8_t>(block[192 + i]));
  }
  // Quarters of a half of the block, 32 values each.
  for (int part = 0; part < 8; ++part) {
    const int half = part / 4;
    const int quarter = part % 4;
    const uint8_t* const low = block + half * 64 + quarter % 2 * 32;
    const uint8_t* const high = block + 128 + half * 32;
    for (int i = 0; i < 32; ++i) {
      const int nibble = quarter < 2 ? low[i] & 15 : low[i] >> 4;
      const int q = nibble | (high[i] >> quarter * 2 & 3) << 4;
      *out++ = scales[part * 2 + i / 16] * static_cast<float>(q - 32);
    }
  }
  return std::isfinite(d);
}

template <bool (*expand)(const uint8_t*, float*), GgmlType type>
size_t ExpandEach(const uint8_t* blocks, size_t count, float* out) {
  const GgmlTypeInfo& info = InfoOf(type);
  for (size_t i = 0; i < count; ++i) {
    if (!expand(blocks, out)) return i;
    blocks += info.block_bytes;
    out += info.block_size;
  }
  return count;
}

}  // namespace

BlockExpander BlockExpanderOf(GgmlType type) {
  switch (type) {
    case GgmlType::kF32:
      return ExpandF32;
    case GgmlType::kF16:
      return ExpandF16;
    case GgmlType::kQ4_0:
      return ExpandEach<ExpandQ4_0, GgmlType::kQ4_0>;
    case GgmlType::kQ4_1:
      return ExpandEach<ExpandQ4_1, GgmlType::kQ4_1>;
    case GgmlType::kQ5_0:
      return ExpandEach<ExpandQ5_0, GgmlType::kQ5_0>;
    case GgmlType::kQ5_1:
      return ExpandEach<ExpandQ5_1, GgmlType::kQ5_1>;
    case GgmlType::kQ8_0:
      return ExpandEach<ExpandQ8_0, GgmlType::kQ8_0>;
    case GgmlType::kQ4_K:
      return ExpandEach<ExpandQ4_K, GgmlType::kQ4_K>;
    case GgmlType::kQ5_K:
      return ExpandEach<ExpandQ5_K, GgmlType::kQ5_K>;
    case GgmlType::kQ6_K:
      return ExpandEach<ExpandQ6_K, GgmlType::kQ6_K>;
    case GgmlType::kBF16:
      return ExpandBF16;
  }
  return nullptr;
}

const GgmlTypeInfo& InfoOf(GgmlType type) {
  static constexpr GgmlTypeInfo kF32 = {"F32", 1, 4};
  static constexpr GgmlTypeInfo kF16 = {"F16", 1, 2};
  static constexpr GgmlTypeInfo kBF16 = {"BF16", 1, 2};
  static constexpr GgmlTypeInfo kQ4_0 = {"Q4_0", 32, 18};
  static constexpr GgmlTypeInfo kQ4_1 = {"Q4_1", 32, 20};
  static constexpr GgmlTypeInfo kQ5_0 = {"Q5_0", 32, 22};
  static constexpr GgmlTypeInfo kQ5_1 = {"Q5_1", 32, 24};
  static constexpr GgmlTypeInfo kQ8_0 = {"Q8_0", 32, 34};
  static constexpr GgmlTypeInfo kQ4_K = {"Q4_K", 256, 144};
  static constexpr GgmlTypeInfo kQ5_K = {"Q5_K", 256, 176};
  static constexpr GgmlTypeInfo kQ6_K = {"Q6_K", 256, 210};
  switch (type) {
    case GgmlType::kF16:
      return kF16;
    case GgmlType::kBF16:
      return kBF16;
    case GgmlType::kQ4_0:
      return kQ4_0;
    case GgmlType::kQ4_1:
      return kQ4_1;
    case GgmlType::kQ5_0:
      return kQ5_0;
    case GgmlType::kQ5_1:
      return kQ5_1;
    case GgmlType::kQ8_0:
      return kQ8_0;
    case GgmlType::kQ4_K:
      return kQ4_K;
    case GgmlType::kQ5_K:
      return kQ5_K;
    case GgmlType::kQ6_K:
      return kQ6_K;
    case GgmlType::kF32:
      break;
  }
  return kF32;
}

std::optional<GgmlType> KnownGgmlType(uint32_t value) {
  const GgmlType type = static_cast<GgmlType>(value);
  if (BlockExpanderOf(type) == nullptr) return std::nullopt;
  return type;
}

std::string GgmlTypeName(uint32_t value) {
  if (value < kNumNames && kNames[value] != nullptr) return kNames[value];
  return absl::StrCat("unknown (", value, ")");
}

}  // namespace specwire
