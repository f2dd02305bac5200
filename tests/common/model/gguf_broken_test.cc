// SPDX-License-Identifier: Apache-2.0
// Broken and hostile GGUF files: each rule by name, truncation everywhere,
// random damage.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/model/ggml_types.h"
#include "common/model/gguf.h"
#include "tests/testing/gguf_writer.h"

namespace specwire {
namespace {

using ::testing::HasSubstr;

using Type = GgufValueType;

constexpr uint64_t kHuge = uint64_t{1} << 62;

uint32_t Number(GgufValueType type) { return static_cast<uint32_t>(type); }

// A valid file with metadata of every type and a tensor of every type.
GgufWriter ValidFile() {
  GgufWriter writer;
  writer.AddString("general.architecture", "llama");
  writer.AddInt("general.alignment", Type::kUint32, 32);
  writer.AddInt("u8", Type::kUint8, 1);
  writer.AddInt("i8", Type::kInt8, -1);
  writer.AddInt("u16", Type::kUint16, 2);
  writer.AddInt("i16", Type::kInt16, -2);
  writer.AddInt("i32", Type::kInt32, -3);
  writer.AddInt("u64", Type::kUint64, 4);
  writer.AddInt("i64", Type::kInt64, -4);
  writer.AddFloat32("f32", 0.5f);
  writer.AddFloat64("f64", 0.25);
  writer.AddBool("bool", true);
  writer.AddIntArray("ints", Type::kInt32, {1, 2, 3});
  writer.AddStringArray("texts", {"one", "two"});
  writer.AddTensor("f32", GgmlType::kF32, {2, 2}, PackFloats({1, 2, 3, 4}));
  writer.AddTensor("f16", GgmlType::kF16, {3}, std::string(6, '\1'));
  writer.AddTensor("bf16", GgmlType::kBF16, {3}, std::string(6, '\1'));
  writer.AddTensor("q4_0", GgmlType::kQ4_0, {2, 32}, std::string(36, '\1'));
  writer.AddTensor("q4_1", GgmlType::kQ4_1, {32}, std::string(20, '\1'));
  writer.AddTensor("q8_0", GgmlType::kQ8_0, {1, 64}, std::string(68, '\1'));
  return writer;
}

// Bytes on the heap of just this size, so that a sanitizer sees any read past
// their end.
struct ExactBytes {
  ExactBytes(const std::string& bytes, size_t length)
      : data(new uint8_t[length]), size(length) {
    std::memcpy(data.get(), bytes.data(), length);
  }
  absl::Span<const uint8_t> span() const { return {data.get(), size}; }

  std::unique_ptr<uint8_t[]> data;
  size_t size;
};

struct BrokenCase {
  const char* name;
  void (*damage)(GgufWriter& writer);
  // What the error says after the file's name.
  const char* message;
};

void PrintTo(const BrokenCase& c, std::ostream* out) { *out << c.name; }

class GgufBrokenFileTest : public ::testing::TestWithParam<BrokenCase> {};

TEST_P(GgufBrokenFileTest, IsRefusedWithTheFieldNamed) {
  GgufWriter writer = ValidFile();
  GetParam().damage(writer);
  const std::string built = writer.Build();
  const ExactBytes bytes(built, built.size());
  const auto file = GgufFile::Parse("x.gguf", bytes.span());
  EXPECT_EQ(file.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(file.status().message()),
              HasSubstr(absl::StrCat("x.gguf: ", GetParam().message)));
}

const BrokenCase kHeaderCases[] = {
    {"WrongMagic",
     [](GgufWriter& w) { w.magic = "GGML"; },
     "magic: this is not a GGUF file"},
    {"VersionOne",
     [](GgufWriter& w) { w.version = 1; },
     "version: 1 is not supported"},
    {"VersionFour",
     [](GgufWriter& w) { w.version = 4; },
     "version: 4 is not supported"},
    {"BigEndian",
     [](GgufWriter& w) { w.version = 0x03000000; },
     "version: big-endian"},
    {"TensorCountAboveTheLimit",
     [](GgufWriter& w) { w.tensor_count = ~uint64_t{0}; },
     "tensor count: 18446744073709551615 is above the limit"},
    {"TensorCountBeyondTheFile",
     [](GgufWriter& w) { w.tensor_count = 100000; },
     "tensor count: 100000 entries take at least"},
    {"TensorCountOneTooMany",
     [](GgufWriter& w) { w.tensor_count = 7; },
     "tensor"},
    {"MetadataCountAboveTheLimit",
     [](GgufWriter& w) { w.metadata_count = kHuge; },
     "metadata count: 4611686018427387904 is above the limit"},
    {"MetadataCountBeyondTheFile",
     [](GgufWriter& w) { w.metadata_count = 60000; },
     "metadata count: 60000 entries take at least"},
    {"MoreTensorsThanASmallFileCanNeed",
     [](GgufWriter& w) {
       for (int i = 0; i < 80; ++i) {
         w.AddTensor(absl::StrCat(i), GgmlType::kF16, {1}, "ab");
       }
     },
     "tensor count: 86 is too many for a file of "},
    {"MoreMetadataThanASmallFileCanNeed",
     [](GgufWriter& w) {
       for (int i = 0; i < 80; ++i) w.AddBool(absl::StrCat(i), true);
     },
     "metadata count: 94 is too many for a file of "},
    {"MetadataCountOneTooFew",
     [](GgufWriter& w) { w.metadata_count = 13; },
     "tensor"},
};
INSTANTIATE_TEST_SUITE_P(Header,
                         GgufBrokenFileTest,
                         ::testing::ValuesIn(kHeaderCases),
                         [](const auto& i) { return i.param.name; });

const BrokenCase kMetadataCases[] = {
    {"DuplicateKey",
     [](GgufWriter& w) { w.AddBool("u8", true); },
     "u8: the key occurs twice"},
    {"EmptyKey",
     [](GgufWriter& w) { w.AddBool("", true); },
     "metadata entry 14: the key is empty"},
    {"KeyTooLong",
     [](GgufWriter& w) { w.AddBool(std::string(65536, 'k'), true); },
     "metadata entry 14: a string of 65536 bytes is above the limit"},
    {"KeyEscapedInErrors",
     [](GgufWriter& w) { w.AddRaw("a\nb", 77, ""); },
     "a\\nb: unknown value type 77"},
    {"UnknownType",
     [](GgufWriter& w) { w.AddRaw("k", 13, "x"); },
     "k: unknown value type 13"},
    {"StringBeyondTheFile",
     [](GgufWriter& w) {
       w.AddRaw("k", Number(Type::kString), LittleEndian(1 << 20, 8));
     },
     "k: needs 1048576 bytes"},
    {"StringAboveTheLimit",
     [](GgufWriter& w) {
       w.AddRaw("k", Number(Type::kString), LittleEndian(~uint64_t{0}, 8));
     },
     "k: a string of 18446744073709551615 bytes is above the limit"},
    {"ArrayOfArrays",
     [](GgufWriter& w) {
       w.AddRaw("k",
                Number(Type::kArray),
                LittleEndian(Number(Type::kArray), 4) + LittleEndian(0, 8));
     },
     "k: arrays of arrays"},
    {"ArrayOfUnknownType",
     [](GgufWriter& w) {
       w.AddRaw(
           "k", Number(Type::kArray), LittleEndian(99, 4) + LittleEndian(0, 8));
     },
     "k: unknown value type 99"},
    {"ArrayAboveTheLimit",
     [](GgufWriter& w) {
       w.AddRaw(
           "k",
           Number(Type::kArray),
           LittleEndian(Number(Type::kUint64), 4) + LittleEndian(kHuge, 8));
     },
     "k: 4611686018427387904 is above the limit"},
    {"ArrayBeyondTheFile",
     [](GgufWriter& w) {
       w.AddRaw(
           "k",
           Number(Type::kArray),
           LittleEndian(Number(Type::kFloat32), 4) + LittleEndian(1000000, 8));
     },
     "k: 1000000 entries take at least 4000000 bytes"},
    {"StringArrayBeyondTheFile",
     [](GgufWriter& w) {
       w.AddRaw(
           "k",
           Number(Type::kArray),
           LittleEndian(Number(Type::kString), 4) + LittleEndian(1000000, 8));
     },
     "k: 1000000 entries take at least 8000000 bytes"},
    {"StringInArrayBeyondTheFile",
     [](GgufWriter& w) {
       w.AddRaw("k",
                Number(Type::kArray),
                LittleEndian(Number(Type::kString), 4) + LittleEndian(1, 8) +
                    LittleEndian(100000, 8));
     },
     "k: needs 100000 bytes"},
    {"BoolOfTwo",
     [](GgufWriter& w) { w.AddRaw("k", Number(Type::kBool), "\2"); },
     "k: a BOOL is neither 0 nor 1"},
    {"BoolOfTwoInArray",
     [](GgufWriter& w) {
       w.AddIntArray("k", Type::kBool, {1, 0, 2});
     },
     "k: a BOOL is neither 0 nor 1"},
};
INSTANTIATE_TEST_SUITE_P(Metadata,
                         GgufBrokenFileTest,
                         ::testing::ValuesIn(kMetadataCases),
                         [](const auto& i) { return i.param.name; });

// Tensor 0 is f32 [2, 2], tensor 3 is q4_0 [2, 32].
const BrokenCase kTensorCases[] = {
    {"DuplicateName",
     [](GgufWriter& w) { w.tensors()[1].name = "f32"; },
     "tensor f32: the name occurs twice"},
    {"EmptyName",
     [](GgufWriter& w) { w.tensors()[1].name = ""; },
     "tensor entry 1: the name is empty"},
    {"NameTooLong",
     [](GgufWriter& w) { w.tensors()[1].name = std::string(65, 'n'); },
     "tensor entry 1: a string of 65 bytes is above the limit of 64"},
    {"NameEscapedInErrors",
     [](GgufWriter& w) {
       w.tensors()[1].name = "a\nb";
       w.tensors()[1].type = 10;
     },
     "tensor a\\nb: type Q2_K is not supported"},
    {"RankFive",
     [](GgufWriter& w) {
       w.tensors()[0].dimensions = {2, 2, 1, 1, 1};
     },
     "tensor f32: rank 5 is above the limit of 4"},
    {"RankHuge",
     [](GgufWriter& w) { w.tensors()[0].rank = 0xffffffff; },
     "tensor f32: rank 4294967295 is above the limit of 4"},
    {"DimensionZero",
     [](GgufWriter& w) {
       w.tensors()[0].dimensions = {2, 0};
     },
     "tensor f32: dimension 1 of 0 is zero"},
    {"DimensionAboveInt64",
     [](GgufWriter& w) { w.tensors()[0].dimensions = {~uint64_t{0}}; },
     "tensor f32: dimension 0 of 18446744073709551615"},
    {"ProductWrapsToAFewBytes",
     [](GgufWriter& w) {
       w.tensors()[0].dimensions = {kHuge + 1, 4};
     },
     "tensor f32: dimension 1 of 4 is zero or makes too many"},
    {"ProductWrapsToZero",
     [](GgufWriter& w) {
       w.tensors()[0].dimensions = {kHuge, 4};
     },
     "tensor f32: dimension 1 of 4 is zero or makes too many"},
    {"SizeWraps",
     [](GgufWriter& w) { w.tensors()[0].dimensions = {kHuge}; },
     "tensor f32: its size in bytes overflows"},
    {"DimensionsBeyondTheData",
     [](GgufWriter& w) {
       w.tensors()[0].dimensions = {(uint64_t{1} << 42) + 1};
     },
     "tensor f32: 17592186044420 bytes at offset 0 reach beyond"},
    {"RowsNotWholeBlocks",
     [](GgufWriter& w) {
       w.tensors()[3].dimensions = {16, 4};
     },
     "tensor q4_0: rows of 16 values are not whole Q4_0 blocks of 32"},
    {"QuantisedScalar",
     [](GgufWriter& w) { w.tensors()[3].dimensions = {}; },
     "tensor q4_0: rows of 1 values are not whole Q4_0 blocks of 32"},
    {"RowsNotWholeSuperBlocks",
     [](GgufWriter& w) {
       w.tensors()[5].type = 14;
       w.tensors()[5].dimensions = {128, 2};
     },
     "tensor q8_0: rows of 128 values are not whole Q6_K blocks of 256"},
    {"TypeNotSupported",
     [](GgufWriter& w) { w.tensors()[3].type = 10; },
     "tensor q4_0: type Q2_K is not supported; use F32"},
    {"TypeUnknown",
     [](GgufWriter& w) { w.tensors()[3].type = 0x80000001; },
     "tensor q4_0: type unknown (2147483649) is not supported"},
    {"OffsetNotAligned",
     [](GgufWriter& w) { w.tensors()[1].offset = 33; },
     "tensor f16: offset 33 is not a multiple of the alignment 32"},
    {"OffsetBeyondTheData",
     [](GgufWriter& w) { w.tensors()[1].offset = 1 << 20; },
     "tensor f16: 6 bytes at offset 1048576 reach beyond"},
    {"OffsetPlusSizeWraps",
     [](GgufWriter& w) { w.tensors()[1].offset = ~uint64_t{31}; },
     "tensor f16: 6 bytes at offset 18446744073709551584 reach beyond"},
    {"Overlap",
     [](GgufWriter& w) { w.tensors()[4].offset = 128; },
     "tensor q4_1: overlaps tensor q4_0"},
    {"SamePlace",
     [](GgufWriter& w) { w.tensors()[1].offset = 0; },
     "tensor f16: overlaps tensor f32"},
    {"LastByteMissing",
     [](GgufWriter& w) { w.tensors()[5].data.pop_back(); },
     "tensor q8_0: 68 bytes at offset 192 reach beyond the 259 bytes"},
};
INSTANTIATE_TEST_SUITE_P(Tensors,
                         GgufBrokenFileTest,
                         ::testing::ValuesIn(kTensorCases),
                         [](const auto& i) { return i.param.name; });

TEST(GgufAlignmentTest, MustBeABoundedPowerOfTwoOfTheRightType) {
  const auto message = [](GgufValueType type, int64_t value) {
    GgufWriter writer;
    writer.AddInt("general.alignment", type, value);
    writer.AddTensor("a", GgmlType::kF32, {1}, PackFloats({1}));
    const std::string built = writer.Build();
    const ExactBytes bytes(built, built.size());
    return std::string(
        GgufFile::Parse("x.gguf", bytes.span()).status().message());
  };
  EXPECT_EQ(message(Type::kUint32, 32), "");
  for (const int64_t bad : {0l, 1l, 4l, 33l, 48l, 131072l, 0x80000000l}) {
    EXPECT_EQ(message(Type::kUint32, bad),
              absl::StrCat("x.gguf: general.alignment: ",
                           bad,
                           " is not a power of two in [8, 65536]"));
  }
  EXPECT_EQ(message(Type::kUint64, 32),
            "x.gguf: general.alignment: is U64, not U32");
}

// Uses everything that a file offers.
void UseEverything(const GgufFile& file, absl::Span<const uint8_t> bytes) {
  for (const char* key : {"general.architecture",
                          "general.alignment",
                          "u8",
                          "i8",
                          "u16",
                          "i16",
                          "i32",
                          "u64",
                          "i64",
                          "f32",
                          "f64",
                          "bool",
                          "ints",
                          "texts"}) {
    (void)file.GetInt(key, -100, 100).status().ok();
    (void)file.GetFloat(key, -100, 100).status().ok();
    (void)file.GetBool(key).status().ok();
    (void)file.GetString(key).status().ok();
    (void)file.GetStringArray(key).status().ok();
    (void)file.GetIntArray(key).status().ok();
  }
  for (const FileTensor& tensor : file.tensor_table().tensors()) {
    ASSERT_GE(tensor.data.data(), bytes.data());
    ASSERT_LE(tensor.data.data() + tensor.data.size(),
              bytes.data() + bytes.size());
    // Bounded by the file: a value takes at least half a byte.
    ASSERT_LE(static_cast<size_t>(tensor.num_elements()), 2 * bytes.size());
    std::vector<float> values(static_cast<size_t>(tensor.num_elements()));
    (void)ExpandToFloat(tensor, absl::MakeSpan(values)).ok();
    EXPECT_TRUE(file.tensor_table().FindTensor(tensor.name, tensor.shape).ok());
  }
}

TEST(GgufTruncationTest, EveryProperPrefixIsRefused) {
  const std::string built = ValidFile().Build();
  {
    const ExactBytes bytes(built, built.size());
    const auto file = GgufFile::Parse("x.gguf", bytes.span());
    ASSERT_TRUE(file.ok()) << file.status();
    UseEverything(**file, bytes.span());
  }
  for (size_t length = 0; length < built.size(); ++length) {
    const ExactBytes bytes(built, length);
    const auto file = GgufFile::Parse("x.gguf", bytes.span());
    ASSERT_EQ(file.status().code(), absl::StatusCode::kInvalidArgument)
        << "length " << length;
    ASSERT_THAT(std::string(file.status().message()), HasSubstr("x.gguf: "));
  }
}

TEST(GgufFuzzTest, RandomDamageNeverCrashes) {
  const std::string built = ValidFile().Build();
  std::mt19937_64 random(20240607);
  int num_parsed = 0;
  constexpr int kRounds = 40000;
  for (int round = 0; round < kRounds; ++round) {
    std::string damaged = built;
    const uint64_t num_flips = 1 + random() % 4;
    for (uint64_t i = 0; i < num_flips; ++i) {
      char& byte = damaged[random() % damaged.size()];
      // Small counts and huge ones are both likelier than among plain noise.
      switch (random() % 4) {
        case 0:
          byte = static_cast<char>(byte ^ (1 << random() % 8));
          break;
        case 1:
          byte = static_cast<char>(0xff);
          break;
        case 2:
          byte = static_cast<char>(random() % 16);
          break;
        default:
          byte = static_cast<char>(random());
      }
    }
    const size_t length =
        random() % 8 == 0 ? random() % damaged.size() : damaged.size();
    const ExactBytes bytes(damaged, length);
    const auto file = GgufFile::Parse("x.gguf", bytes.span());
    if (!file.ok()) continue;
    ++num_parsed;
    UseEverything(**file, bytes.span());
  }
  // Both outcomes have been met often.
  EXPECT_GT(num_parsed, kRounds / 20);
  EXPECT_LT(num_parsed, kRounds * 19 / 20);
}

}  // namespace
}  // namespace specwire
