// SPDX-License-Identifier: Apache-2.0
#include "common/model/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "tests/testing/gguf_writer.h"

namespace specwire {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

constexpr char kSingle[] = "model.safetensors";
constexpr char kIndex[] = "model.safetensors.index.json";

// A file of a header and data; `declared` is the header's length, by default
// the true one.
std::string File(const std::string& header,
                 const std::string& data,
                 std::optional<uint64_t> declared = std::nullopt) {
  return LittleEndian(declared.value_or(header.size()), 8) + header + data;
}

std::string Entry(const std::string& name,
                  const std::string& dtype,
                  const std::vector<uint64_t>& shape,
                  uint64_t begin,
                  uint64_t end) {
  return absl::StrCat("\"",
                      name,
                      "\":{\"dtype\":\"",
                      dtype,
                      "\",\"shape\":[",
                      absl::StrJoin(shape, ","),
                      "],\"data_offsets\":[",
                      begin,
                      ",",
                      end,
                      "]}");
}

std::string Header(const std::vector<std::string>& entries) {
  return absl::StrCat("{", absl::StrJoin(entries, ","), "}");
}

// A folder for one test's files.
class SafetensorsTest : public ::testing::Test {
 protected:
  SafetensorsTest() {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  ~SafetensorsTest() override { std::filesystem::remove_all(folder_); }

  void Write(const std::string& name, const std::string& bytes) {
    ASSERT_TRUE(WriteBytes(folder_ + "/" + name, bytes));
  }
  absl::StatusOr<std::unique_ptr<SafetensorsModel>> Open() const {
    return SafetensorsModel::Open(folder_);
  }
  // The error for these bytes as the only file, behind the file's name.
  std::string ErrorOf(const std::string& bytes) {
    Write(kSingle, bytes);
    return Problem(kSingle);
  }
  std::string Problem(const std::string& file) const {
    const absl::Status status = Open().status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    const std::string message(status.message());
    const std::string prefix = absl::StrCat(folder_, "/", file, ": ");
    EXPECT_THAT(message, StartsWith(prefix));
    return message.substr(std::min(prefix.size(), message.size()));
  }

  const std::string folder_ =
      ::testing::TempDir() + "specwire_safetensors_" +
      absl::StrReplaceAll(
          ::testing::UnitTest::GetInstance()->current_test_info()->name(),
          {{"/", "_"}});
};

std::vector<float> Values(const FileTensor& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.num_elements()));
  EXPECT_TRUE(ExpandToFloat(tensor, absl::MakeSpan(values)).ok());
  return values;
}

// 1.5 and -2 in each type.
const std::string kF32 = PackFloats({1.5f, -2.0f});
const std::string kF16 = LittleEndian(0x3e00, 2) + LittleEndian(0xc000, 2);
const std::string kBF16 = LittleEndian(0x3fc0, 2) + LittleEndian(0xc000, 2);

TEST_F(SafetensorsTest, ReadsTensorsOfEveryType) {
  Write(kSingle,
        File("{\"__metadata__\":{\"format\":\"pt\",\"a\":\"b\"}," +
                 Header({Entry("z", "F32", {2, 1}, 4, 12),
                         Entry("h", "F16", {1, 2}, 0, 4),
                         Entry("b", "BF16", {2}, 12, 16)})
                     .substr(1) +
                 "   ",
             kF16 + kF32 + kBF16));
  const auto model = Open();
  ASSERT_TRUE(model.ok()) << model.status();
  const TensorTable& table = (*model)->tensor_table();
  EXPECT_EQ(table.path(), folder_ + "/" + kSingle);
  ASSERT_EQ(table.tensors().size(), 3u);
  const std::pair<const char*, GgmlType> expected[] = {
      {"z", GgmlType::kF32}, {"h", GgmlType::kF16}, {"b", GgmlType::kBF16}};
  for (size_t i = 0; i < 3; ++i) {
    const FileTensor& tensor = table.tensors()[i];
    EXPECT_EQ(tensor.name, expected[i].first);
    EXPECT_EQ(tensor.type, expected[i].second);
    EXPECT_THAT(Values(tensor), ElementsAre(1.5f, -2.0f));
  }
  EXPECT_TRUE(table.FindTensor("z", {2, 1}).ok());
  EXPECT_TRUE(table.FindTensor("h", {1, 2}).ok());
  EXPECT_TRUE(table.FindTensor("b", {2}).ok());
}

// Written by the format's own package: tests/data/make_safetensors.py.
TEST_F(SafetensorsTest, ReadsWhatThePackageWrites) {
  std::filesystem::copy_file(SPECWIRE_TEST_DATA "/written.safetensors",
                             folder_ + "/" + kSingle);
  const auto model = Open();
  ASSERT_TRUE(model.ok()) << model.status();
  const TensorTable& table = (*model)->tensor_table();
  EXPECT_EQ(table.tensors().size(), 5u);
  std::vector<float> expected;
  for (int i = 0; i < 24; ++i) {
    expected.push_back(static_cast<float>(i) / 8 - 1);
  }
  for (const auto& [name, shape] : std::map<std::string, std::vector<int64_t>>{
           {"model.norm.weight", {24}},
           {"model.layers.0.mlp.down_proj.weight", {4, 6}},
           {"model.embed_tokens.weight", {6, 4}}}) {
    const auto tensor = table.FindTensor(name, shape);
    ASSERT_TRUE(tensor.ok()) << tensor.status();
    EXPECT_EQ(Values(**tensor), expected) << name;
  }
  ASSERT_TRUE(table.FindTensor("scalar", {}).ok());
  EXPECT_THAT(Values(*table.Find("scalar")), ElementsAre(-1));
  EXPECT_TRUE(table.FindTensor("none", {0, 3}).ok());
}

TEST_F(SafetensorsTest, ScalarsAndEmptyTensorsAreLegal) {
  Write(kSingle,
        File(Header({Entry("none", "F32", {0, 3}, 2, 2),
                     Entry("one", "F16", {}, 0, 2),
                     Entry("after", "F16", {}, 2, 4)}),
             kF16));
  const auto model = Open();
  ASSERT_TRUE(model.ok()) << model.status();
  const auto tensors = (*model)->tensor_table().tensors();
  EXPECT_THAT(Values(tensors[0]), IsEmpty());
  EXPECT_THAT(Values(tensors[1]), ElementsAre(1.5f));
  EXPECT_THAT(Values(tensors[2]), ElementsAre(-2.0f));
}

TEST_F(SafetensorsTest, NamesMayBeEscapedAndNotAscii) {
  Write(kSingle,
        File(Header({Entry("\\u00e4\\n\\ud83d\\ude00é", "F16", {2}, 0, 4)}),
             kF16));
  const auto model = Open();
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_NE((*model)->tensor_table().Find("ä\n😀é"), nullptr);
}

TEST_F(SafetensorsTest, AFolderWithoutWeightsIsNotFound) {
  const absl::Status status = Open().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(std::string(status.message()),
            folder_ +
                ": has neither model.safetensors nor "
                "model.safetensors.index.json");
  // What is there and cannot be read is another matter.
  std::filesystem::create_directories(folder_ + "/" + kSingle);
  EXPECT_EQ(Problem(kSingle), "is not a regular file");
}

TEST_F(SafetensorsTest, SurvivesAFileThatOthersCutShort) {
  Write(kSingle, File(Header({Entry("a", "F32", {2}, 0, 8)}), kF32));
  const std::string path = folder_ + "/" + kSingle;
  ASSERT_EQ(chmod(path.c_str(), 0666), 0);
  const auto model = Open();
  ASSERT_TRUE(model.ok()) << model.status();
  std::filesystem::resize_file(path, 0);
  EXPECT_THAT(Values((*model)->tensor_table().tensors()[0]),
              ElementsAre(1.5f, -2.0f));
}

struct BrokenHeader {
  const char* name;
  std::string file;
  const char* message;
};
void PrintTo(const BrokenHeader& c, std::ostream* out) { *out << c.name; }

class SafetensorsBrokenTest
    : public SafetensorsTest,
      public ::testing::WithParamInterface<BrokenHeader> {};

TEST_P(SafetensorsBrokenTest, IsRefusedWithTheFieldNamed) {
  EXPECT_THAT(ErrorOf(GetParam().file), HasSubstr(GetParam().message));
}

// One tensor of two F32 values, whose entry is `text`.
std::string With(const std::string& text) {
  return File("{" + text + "}", kF32);
}

std::vector<BrokenHeader> BrokenHeaders() {
  const std::string good = Entry("a", "F32", {2}, 0, 8);
  const auto changed = [&](const char* from, const char* to) {
    return With(absl::StrReplaceAll(good, {{from, to}}));
  };
  const std::string deep(100000, '[');
  return {
      {"SevenBytes", "1234567", "header: the file has no 8 bytes"},
      {"HugeHeader",
       File("{}", "", ~uint64_t{0}),
       "header: 18446744073709551615 bytes are above the limit of 100000000"},
      {"HeaderBeyondTheFile",
       File("{}", "", 3),
       "header: needs 3 bytes, but the file ends after 2"},
      {"EmptyHeader", File("", "{}"), "header: is not a JSON object"},
      {"BlankHeader", File("        ", ""), "header: is not a JSON object"},
      {"HeaderAfterASpace", File(" {}", ""), "header: is not a JSON object"},
      {"HeaderCut", File(Header({good}), kF32, 20), "is not a JSON object"},
      {"Array", File("[]", ""), "header: is not a JSON object"},
      {"TwoObjects", File("{}{}", ""), "header: malformed JSON at byte 3"},
      {"NoJson", With("a"), "malformed JSON at byte 2"},
      {"NotUtf8", With("\"\xff\":1"), "header: malformed JSON at byte 3"},
      {"HalfASurrogate", With("\"\\ud800\":1"), "malformed JSON"},
      {"NulInAName", With(std::string("\"\0\":1", 5)), "malformed JSON"},
      {"LongName",
       With(absl::StrCat("\"", std::string(257, 'n'), "\":1")),
       "header: a tensor's name of 257 bytes is above the limit of 256"},
      {"LongString",
       With(absl::StrCat("\"", std::string(5000, 'n'), "\":1")),
       "header: the string at byte 1 is longer than 2048 bytes"},
      {"LongBlank",
       With(std::string(5000, ' ')),
       "what follows the string at byte 0 is longer than 2048 bytes"},
      {"LongNumber", With("\"a\":" + std::string(5000, '1')), "is longer than"},
      {"EmptyName", changed("\"a\"", "\"\""), "a tensor's name is empty"},
      {"Deep", File("{\"a\":" + deep + "}", ""), "is longer than"},
      {"DeepMetadata",
       With("\"__metadata__\":{\"a\":{\"b\":1}}"),
       "__metadata__: must map texts to texts"},
      {"MetadataOfNumbers",
       With("\"__metadata__\":{\"a\":1}"),
       "__metadata__: must map texts to texts"},
      {"MetadataTwice",
       With("\"__metadata__\":{},\"__metadata__\":{}"),
       "__metadata__: occurs twice"},
      {"EntryIsANumber", With("\"a\":1"), "tensor a: must be a JSON object"},
      {"EntryIsNull", With("\"a\":null"), "tensor a: must be a JSON object"},
      {"EntryIsAnArray", With("\"a\":[]"), "tensor a: must be a JSON object"},
      {"NoFields", With("\"a\":{}"), "tensor a: lacks one of dtype, shape"},
      {"NoShape", changed("\"shape\":[2],", ""), "tensor a: lacks one of"},
      {"UnknownField",
       changed("dtype", "d\\ntype"),
       "tensor a: has the unknown field d\\ntype"},
      {"DtypeTwice",
       changed("\"dtype\"", "\"dtype\":\"F32\",\"dtype\""),
       "tensor a: has dtype twice"},
      {"ShapeTwice",
       changed("\"shape\"", "\"shape\":[],\"shape\""),
       "tensor a: has shape twice"},
      {"OffsetsTwice",
       changed("\"data_offsets\"", "\"data_offsets\":[0,8],\"data_offsets\""),
       "tensor a: has data_offsets twice"},
      {"DtypeIsANumber", changed("\"F32\"", "32"), "dtype must be a text"},
      {"DtypeIsAnArray", changed("\"F32\"", "[]"), "dtype must be a text"},
      {"DtypeI64",
       changed("F32", "I64"),
       "tensor a: dtype I64 is not supported; use F32, F16 or BF16"},
      {"DtypeF8", changed("F32", "F8_E4M3"), "dtype F8_E4M3 is not supported"},
      {"ShapeIsAText", changed("[2]", "\"2\""), "shape must be an array"},
      {"ShapeIsANumber", changed("[2]", "2"), "shape must be an array"},
      {"ShapeOfTexts", changed("[2]", "[\"2\"]"), "shape must be an array"},
      {"ShapeOfArrays", changed("[2]", "[[2]]"), "shape must be an array"},
      {"ShapeOfObjects", changed("[2]", "[{}]"), "shape must be an array"},
      {"Negative", changed("[2]", "[-2]"), "shape must be an array of whole"},
      {"Fraction", changed("[2]", "[2.0]"), "shape must be an array of whole"},
      {"Beyond64Bits",
       changed("[2]", "[18446744073709551618]"),
       "shape must be an array of whole"},
      {"Infinite", changed("[2]", "[1e999]"), "malformed JSON"},
      {"RankFive",
       changed("[2]", "[1,1,1,1,2]"),
       "tensor a: its rank is above the limit of 4"},
      {"WrappingProduct",
       changed("[2]", "[4611686018427387904,2,2]"),
       "tensor a: the dimension"},
      {"NegativeAsInt64",
       changed("[2]", "[9223372036854775808]"),
       "tensor a: the dimension 9223372036854775808 makes too many values"},
      {"OneOffset",
       changed("[0,8]", "[8]"),
       "tensor a: data_offsets must be two numbers"},
      {"ThreeOffsets",
       changed("[0,8]", "[0,8,8]"),
       "tensor a: data_offsets must be two numbers"},
      {"NegativeOffset", changed("[0,8]", "[-8,0]"), "data_offsets must be"},
      {"OffsetsSwapped",
       changed("[0,8]", "[8,0]"),
       "tensor a: data_offsets from 8 to 0 are not inside"},
      {"OffsetBeyondTheFile",
       changed("[0,8]", "[0,9]"),
       "tensor a: data_offsets from 0 to 9 are not inside the 8 bytes"},
      {"HugeOffsets",
       changed("[0,8]", "[18446744073709551608,18446744073709551615]"),
       "are not inside the 8 bytes"},
      {"ShapeAndOffsetsDiffer",
       changed("[2]", "[1]"),
       "tensor a: takes 4 bytes, but its data_offsets are 8 apart"},
      {"NameTwice",
       With(Entry("a", "F32", {1}, 0, 4) + "," + Entry("a", "F32", {1}, 4, 8)),
       "tensor a: the name occurs twice"},
      {"Overlap",
       With(Entry("a", "F32", {2}, 0, 8) + "," + Entry("b", "F32", {1}, 4, 8)),
       "tensor b: its data begins at 4, but that before it ends at 8"},
      {"SamePlace",
       With(Entry("a", "F32", {2}, 0, 8) + "," + Entry("b", "F32", {2}, 0, 8)),
       "its data begins at 0, but that before it ends at 8"},
      {"HoleInFront",
       With(Entry("a", "F32", {1}, 4, 8)),
       "tensor a: its data begins at 4, but that before it ends at 0"},
      {"HoleBehind",
       With(Entry("a", "F32", {1}, 0, 4)),
       "data: the tensors end after 4 bytes, but there are 8"},
      {"DataWithoutTensors",
       With(""),
       "data: the tensors end after 0 bytes, but there are 8"},
  };
}

INSTANTIATE_TEST_SUITE_P(All,
                         SafetensorsBrokenTest,
                         ::testing::ValuesIn(BrokenHeaders()),
                         [](const auto& i) { return i.param.name; });

TEST_F(SafetensorsTest, RefusesMoreTensorsThanASmallFileCanNeed) {
  std::vector<std::string> entries;
  for (int i = 0; i < 80; ++i) {
    entries.push_back(Entry(absl::StrCat(i), "F32", {0}, 0, 0));
  }
  EXPECT_EQ(ErrorOf(File(Header(entries), "")),
            "header: more than 66 tensors, too many for a model of this size");
  entries.resize(60);
  Write(kSingle, File(Header(entries), ""));
  EXPECT_TRUE(Open().ok());
}

TEST_F(SafetensorsTest, EveryProperPrefixIsRefused) {
  const std::string whole = File(
      Header({Entry("a", "F32", {2}, 0, 8), Entry("b", "F16", {2}, 8, 12)}),
      kF32 + kF16);
  for (size_t size = 1; size < whole.size(); ++size) {
    EXPECT_FALSE(ErrorOf(whole.substr(0, size)).empty());
  }
  Write(kSingle, whole);
  EXPECT_TRUE(Open().ok());
}

// A model in two files.
class SafetensorsIndexTest : public SafetensorsTest {
 protected:
  SafetensorsIndexTest() {
    Write("one.safetensors",
          File(Header({Entry("a", "F32", {2}, 0, 8),
                       Entry("b", "F16", {2}, 8, 12)}),
               kF32 + kF16));
    Write("two.safetensors",
          File(Header({Entry("c", "BF16", {2}, 0, 4)}), kBF16));
  }

  // The error for an index with this text as its weight_map.
  std::string MapError(const std::string& map) {
    Write(kIndex,
          "{\"metadata\":{\"total_size\":16},\"weight_map\":" + map + "}");
    return Problem(kIndex);
  }
  static constexpr char kMap[] =
      R"({"a":"one.safetensors","b":"one.safetensors","c":"two.safetensors"})";
};

TEST_F(SafetensorsIndexTest, ReadsEveryFile) {
  for (const std::string around :
       {R"({"weight_map":MAP})",
        R"({"metadata":{"total_size":16,"x":[1.5,{"weight_map":null}]},
            "weight_map":MAP,"more":[true,null,-1,"text",{}]})"}) {
    Write(kIndex, absl::StrReplaceAll(around, {{"MAP", kMap}}));
    const auto model = Open();
    ASSERT_TRUE(model.ok()) << model.status();
    const TensorTable& table = (*model)->tensor_table();
    EXPECT_EQ(table.path(), folder_ + "/" + kIndex);
    ASSERT_EQ(table.tensors().size(), 3u);
    for (const char* name : {"a", "b", "c"}) {
      ASSERT_NE(table.Find(name), nullptr);
      EXPECT_THAT(Values(*table.Find(name)), ElementsAre(1.5f, -2.0f));
    }
  }
}

TEST_F(SafetensorsIndexTest, TheSingleFileComesFirst) {
  Write(kIndex, "nonsense");
  Write(kSingle, File(Header({Entry("a", "F32", {2}, 0, 8)}), kF32));
  const auto model = Open();
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->tensor_table().tensors().size(), 1u);
}

TEST_F(SafetensorsIndexTest, RefusesAnIndexThatIsNoObject) {
  for (const auto& [text, message] : std::map<std::string, std::string>{
           {"", "is empty"},
           {"[]", "must be a JSON object"},
           {"3", "must be a JSON object"},
           {"{", "malformed JSON at byte 2"},
           {"{} x", "malformed JSON at byte 4"},
           {"{}", "weight_map: is absent"},
           {R"({"metadata":{"weight_map":{}}})", "weight_map: is absent"},
           {R"({"a":[[[[[[[[1]]]]]]]]})", "more than 8 levels deep"},
           {R"({"weight_map":{},"weight_map":{}})", "weight_map: occurs twice"},
           {R"({"weight_map":[]})", "weight_map: must map texts to texts"},
           {R"({"weight_map":7})", "weight_map: must map texts to texts"}}) {
    Write(kIndex, text);
    EXPECT_EQ(Problem(kIndex), message) << text;
  }
}

TEST_F(SafetensorsIndexTest, RefusesAMapThatIsNotTheFiles) {
  const auto with = [](const char* from, const char* to) {
    return absl::StrReplaceAll(kMap, {{from, to}});
  };
  EXPECT_EQ(MapError(with(R"("c":"two)", R"("c":"one)")),
            "weight_map: tensor \"c\" is not in \"one.safetensors\"");
  EXPECT_EQ(MapError(with(R"("b":"one)", R"("b":"two)")),
            "weight_map: tensor \"b\" is not in \"two.safetensors\"");
  EXPECT_EQ(MapError(with(R"("b":)", R"("d":)")),
            "weight_map: tensor \"d\" is not in \"one.safetensors\"");
  EXPECT_EQ(MapError(with(R"("b":)", R"("a":)")),
            "weight_map: tensor \"a\" occurs twice");
  EXPECT_EQ(MapError(with(R"("b":"one.safetensors",)", "")),
            "tensor b: is in a file, but not in the weight_map");
  for (const char* value : {"1", "-1", "1.5", "true", "null", "[]", "{}"}) {
    EXPECT_EQ(MapError(with(R"("one.safetensors")", value)),
              "weight_map: must map texts to texts");
  }
}

TEST_F(SafetensorsIndexTest, RefusesNamesOfFilesElsewhere) {
  for (const char* name : {"../one.safetensors",
                           "/etc/x.safetensors",
                           "./one.safetensors",
                           "sub/one.safetensors",
                           "..",
                           "",
                           ".safetensors",
                           ".x.safetensors",
                           "one.bin",
                           "one.safetensors\\u0000"}) {
    EXPECT_THAT(MapError(absl::StrCat("{\"a\":\"", name, "\"}")),
                HasSubstr("is not a plain name of a .safetensors file"));
  }
  EXPECT_THAT(MapError(absl::StrCat(
                  "{\"a\":\"", std::string(300, 'x'), ".safetensors\"}")),
              HasSubstr("is not a plain name of a .safetensors file"));
}

TEST_F(SafetensorsIndexTest, AMissingFileIsNotFound) {
  Write(kIndex, R"({"weight_map":{"a":"three.safetensors"}})");
  const absl::Status status = Open().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()),
              StartsWith(folder_ + "/three.safetensors: cannot open"));
}

TEST_F(SafetensorsIndexTest, NamesTheFileWithTheBrokenHeader) {
  Write(kIndex, absl::StrCat("{\"weight_map\":", kMap, "}"));
  Write("two.safetensors", File("{}", "x"));
  EXPECT_EQ(Problem("two.safetensors"),
            "data: the tensors end after 0 bytes, but there are 1");
  Write("two.safetensors",
        File(Header({Entry("a", "BF16", {2}, 0, 4)}), kBF16));
  EXPECT_EQ(Problem("two.safetensors"), "tensor a: the name occurs twice");
}

TEST_F(SafetensorsIndexTest, RefusesMoreFilesThanASmallIndexCanNeed) {
  std::vector<std::string> pairs;
  for (int i = 0; i < 40; ++i) {
    pairs.push_back(absl::StrCat("\"", i, "\":\"", i, ".safetensors\""));
  }
  EXPECT_EQ(MapError(Header(pairs)),
            "weight_map: more than 33 files, too many for its size");
}

}  // namespace
}  // namespace specwire
