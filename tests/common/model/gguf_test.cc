// SPDX-License-Identifier: Apache-2.0
#include "common/model/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/testing/gguf_writer.h"

namespace specwire {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Type = GgufValueType;

constexpr char kModelPath[] =
    SPECWIRE_MODEL_DIR "/SmolLM2-135M-Instruct.Q4_1.gguf";
constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

// A parsed file with the bytes that it points into.
struct Parsed {
  explicit Parsed(const GgufWriter& writer) : bytes(writer.Build()) {
    auto result = GgufFile::Parse(
        "x.gguf",
        absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(bytes.data()),
                            bytes.size()));
    EXPECT_TRUE(result.ok()) << result.status();
    if (result.ok()) file = *std::move(result);
  }
  const GgufFile* operator->() const { return file.get(); }

  std::string bytes;
  std::unique_ptr<GgufFile> file;
};

template <typename T>
void ExpectError(const absl::StatusOr<T>& result, const std::string& message) {
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(std::string(result.status().message()), message);
}

// A fresh folder for one test's files.
class GgufFileOpenTest : public ::testing::Test {
 protected:
  GgufFileOpenTest() { std::filesystem::create_directories(folder_); }
  ~GgufFileOpenTest() override { std::filesystem::remove_all(folder_); }

  std::string Path(const std::string& name) const { return folder_ + name; }

  const std::string folder_ =
      ::testing::TempDir() + "specwire_gguf_" +
      ::testing::UnitTest::GetInstance()->current_test_info()->name() + "/";
};

GgufWriter OneTensor() {
  GgufWriter writer;
  writer.AddString("general.architecture", "llama");
  writer.AddTensor("a", GgmlType::kF32, {2, 3}, PackFloats({1, 2, 3, 4, 5, 6}));
  return writer;
}

TEST(GgufFileTest, ReadsIntegersOfEveryType) {
  GgufWriter writer;
  writer.AddInt("u8", Type::kUint8, 255);
  writer.AddInt("i8", Type::kInt8, -128);
  writer.AddInt("u16", Type::kUint16, 65535);
  writer.AddInt("i16", Type::kInt16, -32768);
  writer.AddInt("u32", Type::kUint32, 4294967295);
  writer.AddInt("i32", Type::kInt32, -2147483648);
  writer.AddInt("u64", Type::kUint64, kMax);
  writer.AddInt("i64", Type::kInt64, kMin);
  writer.AddInt("huge", Type::kUint64, -1);
  const Parsed parsed(writer);
  const std::map<std::string, int64_t> expected = {{"u8", 255},
                                                   {"i8", -128},
                                                   {"u16", 65535},
                                                   {"i16", -32768},
                                                   {"u32", 4294967295},
                                                   {"i32", -2147483648},
                                                   {"u64", kMax},
                                                   {"i64", kMin}};
  for (const auto& [key, value] : expected) {
    const auto result = parsed->GetInt(key, kMin, kMax);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(*result, value) << key;
  }
  ExpectError(parsed->GetInt("huge", 0, 10),
              "x.gguf: huge: 18446744073709551615 is outside [0, 10]");
  ExpectError(parsed->GetInt("u8", 0, 254),
              "x.gguf: u8: 255 is outside [0, 254]");
  ExpectError(parsed->GetInt("i8", -127, 0),
              "x.gguf: i8: -128 is outside [-127, 0]");
}

TEST(GgufFileTest, ReadsFloatsOfBothTypes) {
  GgufWriter writer;
  writer.AddFloat32("f32", 1e-5f);
  writer.AddFloat64("f64", -0.25);
  writer.AddFloat32("nan", std::nanf(""));
  writer.AddFloat64("inf", std::numeric_limits<double>::infinity());
  writer.AddInt("int", Type::kUint32, 1);
  const Parsed parsed(writer);
  EXPECT_EQ(*parsed->GetFloat("f32", 0, 1), double{1e-5f});
  EXPECT_EQ(*parsed->GetFloat("f64", -1, 1), -0.25);
  ExpectError(parsed->GetFloat("f64", 0, 1),
              "x.gguf: f64: -0.25 is outside [0, 1]");
  ExpectError(parsed->GetFloat("nan", 0, 1),
              "x.gguf: nan: nan is outside [0, 1]");
  ExpectError(parsed->GetFloat("inf", 0, 1e9),
              "x.gguf: inf: inf is outside [0, 1e+09]");
  ExpectError(parsed->GetFloat("int", 0, 1),
              "x.gguf: int: is U32, not a float");
}

TEST(GgufFileTest, ReadsBoolsAndStrings) {
  GgufWriter writer;
  writer.AddBool("yes", true);
  writer.AddBool("no", false);
  writer.AddString("text", "Gr\xc3\xbc\xc3\x9f \xf0\x9f\x8c\x8d");
  writer.AddString("empty", "");
  const Parsed parsed(writer);
  EXPECT_TRUE(*parsed->GetBool("yes"));
  EXPECT_FALSE(*parsed->GetBool("no"));
  EXPECT_EQ(*parsed->GetString("text"), "Gr\xc3\xbc\xc3\x9f \xf0\x9f\x8c\x8d");
  EXPECT_EQ(*parsed->GetString("empty"), "");
  EXPECT_TRUE(parsed->Has("yes"));
  EXPECT_FALSE(parsed->Has("other"));
}

TEST(GgufFileTest, ReadsArrays) {
  GgufWriter writer;
  writer.AddStringArray("texts", {"a", "", "bcd"});
  writer.AddStringArray("no_texts", {});
  writer.AddIntArray("i32", Type::kInt32, {1, -2, 3});
  writer.AddIntArray("u8", Type::kUint8, {1, 255});
  writer.AddIntArray("u64", Type::kUint64, {7});
  writer.AddIntArray("none", Type::kUint32, {});
  const Parsed parsed(writer);
  EXPECT_THAT(*parsed->GetStringArray("texts"), ElementsAre("a", "", "bcd"));
  EXPECT_THAT(*parsed->GetStringArray("no_texts"), IsEmpty());
  EXPECT_THAT(*parsed->GetIntArray("i32"), ElementsAre(1, -2, 3));
  EXPECT_THAT(*parsed->GetIntArray("u8"), ElementsAre(1, 255));
  EXPECT_THAT(*parsed->GetIntArray("u64"), ElementsAre(7));
  EXPECT_THAT(*parsed->GetIntArray("none"), IsEmpty());
}

TEST(GgufFileTest, RefusesValuesOfAnotherType) {
  GgufWriter writer;
  writer.AddInt("int", Type::kInt32, 1);
  writer.AddBool("bool", true);
  writer.AddString("text", "t");
  writer.AddIntArray("ints", Type::kUint8, {1});
  writer.AddStringArray("texts", {"t"});
  writer.AddIntArray("wide", Type::kUint32, {1, 4294967295});
  const Parsed parsed(writer);
  ExpectError(parsed->GetInt("bool", 0, 1),
              "x.gguf: bool: is BOOL, not an integer");
  ExpectError(parsed->GetInt("ints", 0, 1),
              "x.gguf: ints: is an array of U8, not an integer");
  ExpectError(parsed->GetBool("int"), "x.gguf: int: is I32, not BOOL");
  ExpectError(parsed->GetString("texts"),
              "x.gguf: texts: is an array of STRING, not STRING");
  ExpectError(parsed->GetFloat("text", 0, 1),
              "x.gguf: text: is STRING, not a float");
  ExpectError(parsed->GetStringArray("text"),
              "x.gguf: text: is STRING, not an array of STRING");
  ExpectError(parsed->GetStringArray("ints"),
              "x.gguf: ints: is an array of U8, not an array of STRING");
  ExpectError(parsed->GetIntArray("texts"),
              "x.gguf: texts: is an array of STRING, not an array of integers");
  ExpectError(parsed->GetIntArray("int"),
              "x.gguf: int: is I32, not an array of integers");
  ExpectError(parsed->GetIntArray("wide"),
              "x.gguf: wide: element 1 does not fit 32 bits");
}

TEST(GgufFileTest, RefusesStringsThatAreNotUtf8) {
  for (const std::string text : {"\xff",
                                 "\x80",
                                 "a\xc3",
                                 "\xc0\x80",
                                 "\xe0\x80\x80",
                                 "\xed\xa0\x80",
                                 "\xf0\x80\x80\x80",
                                 "\xf4\x90\x80\x80",
                                 "\xe2\x82",
                                 "\xe2\x82z"}) {
    GgufWriter writer;
    writer.AddString("text", text);
    writer.AddStringArray("texts", {"good", text});
    const Parsed parsed(writer);
    ExpectError(parsed->GetString("text"), "x.gguf: text: is not valid UTF-8");
    ExpectError(parsed->GetStringArray("texts"),
                "x.gguf: texts: element 1 is not valid UTF-8");
  }
}

TEST(GgufFileTest, SaysWhichKeyIsAbsent) {
  const Parsed parsed{GgufWriter()};
  const auto result = parsed->GetInt("llama.block_count", 1, 2);
  EXPECT_EQ(result.status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(std::string(result.status().message()),
            "x.gguf: llama.block_count: is absent");
}

TEST(GgufFileTest, ReadsVersionTwoToo) {
  GgufWriter writer = OneTensor();
  writer.version = 2;
  const Parsed parsed(writer);
  EXPECT_EQ(parsed->version(), 2u);
  EXPECT_EQ(parsed->tensor_table().tensors().size(), 1u);
}

// What is handed out would take more than twice the bytes in the file.
TEST(GgufFileTest, LongArraysOfTinyValuesAreRefused) {
  GgufWriter writer;
  const std::vector<int64_t> zeros(1025);
  writer.AddIntArray("u8", Type::kUint8, zeros);
  writer.AddIntArray("i16", Type::kInt16, zeros);
  writer.AddIntArray("i32", Type::kInt32, zeros);
  writer.AddIntArray("short", Type::kUint8, std::vector<int64_t>(1024));
  writer.AddStringArray("letters", std::vector<std::string>(1025, "x"));
  writer.AddStringArray("pairs", std::vector<std::string>(1025, "xx"));
  writer.AddStringArray("few", std::vector<std::string>(1024));
  const Parsed parsed(writer);
  ExpectError(parsed->GetIntArray("u8"),
              "x.gguf: u8: 1025 elements are too many for U8; use I32 or U32");
  ExpectError(
      parsed->GetIntArray("i16"),
      "x.gguf: i16: 1025 elements are too many for I16; use I32 or U32");
  EXPECT_EQ(parsed->GetIntArray("i32")->size(), 1025u);
  EXPECT_EQ(parsed->GetIntArray("short")->size(), 1024u);
  ExpectError(parsed->GetStringArray("letters"),
              "x.gguf: letters: 1025 strings of less than 2 bytes on average "
              "are too many");
  EXPECT_EQ(parsed->GetStringArray("pairs")->size(), 1025u);
  EXPECT_EQ(parsed->GetStringArray("few")->size(), 1024u);
}

TEST(GgufFileTest, GivesTensorsInOrderWithTheirBytes) {
  GgufWriter writer = OneTensor();
  writer.AddTensor("b", GgmlType::kQ8_0, {2, 64}, std::string(4 * 34, 'b'));
  writer.AddTensor("scalar", GgmlType::kF16, {}, "zz");
  const Parsed parsed(writer);
  ASSERT_EQ(parsed->tensor_table().tensors().size(), 3u);
  const FileTensor& a = parsed->tensor_table().tensors()[0];
  EXPECT_EQ(a.name, "a");
  EXPECT_EQ(a.type, GgmlType::kF32);
  EXPECT_THAT(a.shape, ElementsAre(2, 3));
  EXPECT_EQ(a.num_elements(), 6);
  std::vector<float> values(6);
  ASSERT_TRUE(ExpandToFloat(a, absl::MakeSpan(values)).ok());
  EXPECT_THAT(values, ElementsAre(1, 2, 3, 4, 5, 6));
  const FileTensor& b = parsed->tensor_table().tensors()[1];
  EXPECT_EQ(std::string(b.data.begin(), b.data.end()), std::string(136, 'b'));
  EXPECT_EQ(parsed->tensor_table().tensors()[2].num_elements(), 1);
}

TEST(GgufFileTest, HonoursTheDeclaredAlignment) {
  for (const uint32_t alignment : {8u, 64u, 65536u}) {
    GgufWriter writer;
    writer.alignment = alignment;
    writer.AddInt("general.alignment", Type::kUint32, alignment);
    writer.AddTensor("a", GgmlType::kF32, {1}, PackFloats({1}));
    writer.AddTensor("b", GgmlType::kF32, {1}, PackFloats({2}));
    const Parsed parsed(writer);
    std::vector<float> value(1);
    ASSERT_TRUE(ExpandToFloat(parsed->tensor_table().tensors()[1],
                              absl::MakeSpan(value))
                    .ok());
    EXPECT_EQ(value[0], 2);
  }
}

TEST(GgufFileTest, AllowsTensorsOutOfOrderAndGapsBetweenThem) {
  GgufWriter writer;
  writer.AddTensor("a", GgmlType::kF32, {1}, PackFloats({1}));
  writer.AddTensor("b", GgmlType::kF32, {1}, std::string(200, '\0'));
  writer.AddTensor("c", GgmlType::kF32, {1}, PackFloats({3}));
  writer.tensors()[0].offset = 32 + 224;
  writer.tensors()[2].offset = 0;
  const Parsed parsed(writer);
  std::vector<float> value(1);
  ASSERT_TRUE(
      ExpandToFloat(parsed->tensor_table().tensors()[0], absl::MakeSpan(value))
          .ok());
  EXPECT_EQ(value[0], 3);
}

TEST(GgufFileTest, EscapesNamesInErrors) {
  const Parsed parsed{GgufWriter()};
  EXPECT_EQ(std::string(parsed->Error("a\nb", "c").message()),
            "x.gguf: a\\nb: c");
}

TEST_F(GgufFileOpenTest, ReadsAFile) {
  const std::string path = Path("a.gguf");
  ASSERT_TRUE(WriteBytes(path, OneTensor().Build()));
  const auto file = GgufFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ((*file)->path(), path);
  EXPECT_EQ((*file)->version(), 3u);
  EXPECT_EQ(*(*file)->GetString("general.architecture"), "llama");
}

TEST_F(GgufFileOpenTest, RefusesWhatIsNotAFileWithContent) {
  const auto code = [](const std::string& path) {
    const absl::Status status = GgufFile::Open(path).status();
    EXPECT_THAT(std::string(status.message()), HasSubstr(path));
    return status.code();
  };
  EXPECT_EQ(code(Path("absent.gguf")), absl::StatusCode::kNotFound);
  EXPECT_EQ(code(folder_), absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(WriteBytes(Path("empty.gguf"), ""));
  EXPECT_EQ(code(Path("empty.gguf")), absl::StatusCode::kInvalidArgument);
  // Opening a FIFO must not wait for a writer either.
  ASSERT_EQ(mkfifo(Path("fifo.gguf").c_str(), 0600), 0);
  EXPECT_EQ(code(Path("fifo.gguf")), absl::StatusCode::kInvalidArgument);
}

TEST_F(GgufFileOpenTest, NamesTheFileInParseErrors) {
  ASSERT_TRUE(WriteBytes(Path("a.gguf"), "GGML and more"));
  const auto file = GgufFile::Open(Path("a.gguf"));
  EXPECT_EQ(std::string(file.status().message()),
            Path("a.gguf") + ": magic: this is not a GGUF file");
}

TEST_F(GgufFileOpenTest, SurvivesAFileThatOthersCutShort) {
  const std::string path = Path("a.gguf");
  ASSERT_TRUE(WriteBytes(path, OneTensor().Build()));
  ASSERT_EQ(chmod(path.c_str(), 0666), 0);
  const auto file = GgufFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  std::filesystem::resize_file(path, 0);
  std::vector<float> values(6);
  ASSERT_TRUE(ExpandToFloat((*file)->tensor_table().tensors()[0],
                            absl::MakeSpan(values))
                  .ok());
  EXPECT_THAT(values, ElementsAre(1, 2, 3, 4, 5, 6));
}

TEST(GgufFileTest, ReadsTheTinyModel) {
  const auto file = GgufFile::Open(SPECWIRE_TINY_MODEL);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(*(*file)->GetString("general.architecture"), "llama");
  EXPECT_EQ(*(*file)->GetInt("llama.block_count", 1, 100), 3);
  EXPECT_EQ((*file)->tensor_table().tensors().size(), 2 + 3 * 9u);
  for (const FileTensor& tensor : (*file)->tensor_table().tensors()) {
    std::vector<float> values(static_cast<size_t>(tensor.num_elements()));
    EXPECT_TRUE(ExpandToFloat(tensor, absl::MakeSpan(values)).ok());
  }
  EXPECT_TRUE(
      (*file)->tensor_table().FindTensor("token_embd.weight", {320, 64}).ok());
}

TEST(GgufFileTest, ReadsTheDefaultModel) {
  if (!std::filesystem::exists(kModelPath)) GTEST_SKIP() << "no " << kModelPath;
  const auto opened = GgufFile::Open(kModelPath);
  ASSERT_TRUE(opened.ok()) << opened.status();
  const GgufFile& file = **opened;
  EXPECT_EQ(file.version(), 3u);
  EXPECT_EQ(*file.GetInt("llama.block_count", 1, 1000), 30);
  EXPECT_EQ(*file.GetInt("llama.attention.head_count_kv", 1, 1000), 3);
  EXPECT_EQ(*file.GetFloat("llama.rope.freq_base", 1, 1e7), 100000);
  EXPECT_FALSE(*file.GetBool("tokenizer.ggml.add_bos_token"));
  EXPECT_EQ(file.GetStringArray("tokenizer.ggml.tokens")->size(), 49152u);
  std::map<GgmlType, int> types;
  for (const FileTensor& tensor : file.tensor_table().tensors())
    ++types[tensor.type];
  EXPECT_EQ(file.tensor_table().tensors().size(), 272u);
  EXPECT_EQ(types[GgmlType::kQ4_1], 210);
  EXPECT_EQ(types[GgmlType::kF32], 61);
  EXPECT_EQ(types[GgmlType::kQ8_0], 1);
  EXPECT_TRUE(
      file.tensor_table().FindTensor("token_embd.weight", {49152, 576}).ok());
  EXPECT_TRUE(file.tensor_table()
                  .FindTensor("blk.29.ffn_down.weight", {576, 1536})
                  .ok());
}

}  // namespace
}  // namespace specwire
