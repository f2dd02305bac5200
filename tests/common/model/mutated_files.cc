// SPDX-License-Identifier: Apache-2.0
#include "tests/common/model/mutated_files.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "common/base/status_macros.h"
#include "common/model/gguf.h"
#include "common/model/safetensors.h"
#include "tests/testing/gguf_writer.h"

namespace specwire {
namespace {

constexpr GgmlType kTypes[] = {GgmlType::kF32,
                               GgmlType::kF16,
                               GgmlType::kBF16,
                               GgmlType::kQ4_0,
                               GgmlType::kQ4_1,
                               GgmlType::kQ5_0,
                               GgmlType::kQ5_1,
                               GgmlType::kQ8_0,
                               GgmlType::kQ4_K,
                               GgmlType::kQ5_K,
                               GgmlType::kQ6_K};
constexpr const char* kKeys[] = {"int",
                                 "float",
                                 "bool",
                                 "text",
                                 "ints",
                                 "texts",
                                 "odd",
                                 "odder",
                                 "general.alignment"};

bool OneIn(Mutator& random, size_t n) { return random.Below(n) == 0; }

template <typename T, size_t n>
const T& PickOf(const T (&from)[n], Mutator& random) {
  return from[random.Below(n)];
}

// Expands every tensor, a row at a time, into memory that is not the reader's.
// An error of its own kind if the table promises what is not so.
absl::Status ExpandAll(const TensorTable& table) {
  static float values[1 << 18];
  for (const FileTensor& tensor : table.tensors()) {
    const GgmlTypeInfo& info = InfoOf(tensor.type);
    const int64_t blocks = tensor.num_elements() / info.block_size;
    if (static_cast<int64_t>(tensor.data.size()) != blocks * info.block_bytes ||
        table.Find(tensor.name) != &tensor) {
      return absl::InternalError(tensor.name);
    }
    const int64_t rows = tensor.num_rows();
    const int64_t columns = rows == 0 ? 0 : tensor.num_elements() / rows;
    if (columns > int64_t{1} << 18) continue;
    const auto row = absl::MakeSpan(values).first(static_cast<size_t>(columns));
    for (int64_t i = 0; i < std::min<int64_t>(rows, 64); ++i) {
      (void)ExpandRows(tensor, i, 1, row).ok();
    }
  }
  return absl::OkStatus();
}

// GGUF.

absl::Status OpenGguf(const std::string& folder) {
  SPECWIRE_ASSIGN_OR_RETURN(const auto file,
                            GgufFile::Open(folder + "/model.gguf"));
  for (const char* key : kKeys) {
    (void)file->Has(key);
    (void)file->GetInt(key, -100, 100).status().ok();
    (void)file->GetFloat(key, -100, 100).status().ok();
    (void)file->GetBool(key).status().ok();
    (void)file->GetString(key).status().ok();
    (void)file->GetStringArray(key).status().ok();
    (void)file->GetIntArray(key).status().ok();
  }
  return ExpandAll(file->tensor_table());
}

GgufWriter GoodGguf() {
  GgufWriter writer;
  writer.AddInt("int", GgufValueType::kUint32, 7);
  writer.AddFloat32("float", 0.5f);
  writer.AddBool("bool", true);
  writer.AddString("text", "a text");
  writer.AddIntArray("ints", GgufValueType::kInt32, {1, -2, 3});
  writer.AddStringArray("texts", {"one", "", "three"});
  for (const GgmlType type : kTypes) {
    const GgmlTypeInfo& info = InfoOf(type);
    writer.AddTensor(
        info.name,
        type,
        {2, info.block_size},
        std::string(2 * static_cast<size_t>(info.block_bytes), '\1'));
  }
  return writer;
}

// A metadata entry that readers find hard.
void AddOddMetadata(Mutator& random, GgufWriter* writer) {
  const std::string key = OneIn(random, 8)
                              ? PickOf(kKeys, random)
                              : random.Pick<std::string>({"odd", "odder"});
  const auto type = static_cast<GgufValueType>(random.Below(13));
  // Now and then more than may be handed out.
  const size_t count = OneIn(random, 4) ? random.Below(90000) : random.Below(9);
  switch (random.Below(7)) {
    case 0:
      if (GgufValueSize(type) == 0) break;
      writer->AddIntArray(
          key, type, std::vector<int64_t>(count, random.Below(300)));
      break;
    case 1:
      writer->AddStringArray(
          key,
          std::vector<std::string>(count, std::string(random.Below(4), 'x')));
      break;
    case 2:
      writer->AddString(key,
                        std::string(count, random.Below(2) ? 'x' : '\xc3'));
      break;
    case 3:
      writer->AddBool(std::string(count, '\1'), true);
      break;
    case 4:
      for (size_t i = 0; i < count / 8; ++i) {
        writer->AddBool(absl::StrCat("k", i), true);
      }
      break;
    case 5:
      writer->AddInt("general.alignment",
                     OneIn(random, 4) ? type : GgufValueType::kUint32,
                     static_cast<int64_t>(OddNumber(random)));
      break;
    default:
      // An array of any type, of which some bytes follow.
      writer->AddRaw(key,
                     9,
                     LittleEndian(random.Below(14), 4) +
                         LittleEndian(OddNumber(random), 8) +
                         std::string(random.Below(100), '\0'));
  }
}

void ChangeGguf(Mutator& random, GgufWriter* writer) {
  GgufTensorSpec& tensor =
      writer->tensors()[random.Below(writer->tensors().size())];
  switch (random.Below(18)) {
    case 0:
      writer->version = static_cast<uint32_t>(OddNumber(random));
      break;
    case 1:
      writer->tensor_count = OddNumber(random);
      break;
    case 2:
      writer->metadata_count = OddNumber(random);
      break;
    case 3:
      tensor.rank = static_cast<uint32_t>(OddNumber(random));
      break;
    case 4:
      if (tensor.dimensions.empty()) break;
      tensor.dimensions[random.Below(tensor.dimensions.size())] =
          OddNumber(random);
      break;
    case 5:
      tensor.dimensions.push_back(OneIn(random, 2) ? 1 : OddNumber(random));
      break;
    case 6:
      tensor.type = static_cast<uint32_t>(random.Below(45));
      break;
    case 7:
      tensor.offset = OneIn(random, 2) ? 32 * random.Below(64)  //
                                       : OddNumber(random);
      break;
    case 8:
      tensor.name.resize(random.Below(80), '\xff');
      break;
    case 9:
      tensor.data.resize(random.Below(500));
      break;
    case 10:
      // As small as tensors can be, and perhaps far too many.
      for (size_t i = random.Below(OneIn(random, 4) ? 2000 : 40); i > 0; --i) {
        writer->AddTensor(absl::StrCat(i), GgmlType::kF16, {}, "ab");
      }
      break;
    default:
      AddOddMetadata(random, writer);
  }
}

Folder MutatedGguf(Mutator& random) {
  if (OneIn(random, 2)) {
    Mutator bytes(static_cast<uint32_t>(random.Below(1u << 31)),
                  {GoodGguf().Build()},
                  {LittleEndian(0, 8),
                   LittleEndian(~uint64_t{0}, 8),
                   LittleEndian(1, 4),
                   LittleEndian(9, 4),
                   PackString("int"),
                   PackString("F32")});
    return {{"model.gguf", bytes.Next()}};
  }
  GgufWriter writer = GoodGguf();
  for (size_t left = 1 + random.Below(3); left > 0; --left) {
    ChangeGguf(random, &writer);
  }
  return {{"model.gguf", writer.Build()}};
}

// safetensors.

absl::Status OpenSafetensors(const std::string& folder) {
  SPECWIRE_ASSIGN_OR_RETURN(const auto model, SafetensorsModel::Open(folder));
  return ExpandAll(model->tensor_table());
}

// An entry's parts as they stand in the header.
struct Entry {
  std::string name;
  std::string dtype;
  std::string shape;
  std::string offsets;
};

std::string HeaderOf(const std::vector<Entry>& entries) {
  std::vector<std::string> texts = {R"("__metadata__":{"format":"pt"})"};
  for (const Entry& entry : entries) {
    texts.push_back(absl::StrCat("\"",
                                 entry.name,
                                 "\":{\"dtype\":",
                                 entry.dtype,
                                 ",\"shape\":",
                                 entry.shape,
                                 ",\"data_offsets\":",
                                 entry.offsets,
                                 "}"));
  }
  return absl::StrCat("{", absl::StrJoin(texts, ","), "}");
}

std::vector<Entry> GoodEntries() {
  return {{"a", "\"F32\"", "[2,3]", "[0,24]"},
          {"b", "\"F16\"", "[4]", "[24,32]"},
          {"c", "\"BF16\"", "[2,1,2]", "[32,40]"}};
}

std::string SafetensorsFile(const std::string& header) {
  return LittleEndian(header.size(), 8) + header + std::string(40, '\1');
}

const std::vector<std::string>& JsonWords() {
  static const auto* const words =
      new std::vector<std::string>{"\"dtype\"",
                                   "\"shape\"",
                                   "\"F32\"",
                                   "\"BF16\"",
                                   "\"a\"",
                                   "\"__metadata__\"",
                                   "\"weight_map\"",
                                   "\"data_offsets\":[0,24]",
                                   "[",
                                   "]",
                                   "{",
                                   "}",
                                   ",",
                                   ":",
                                   "\\u0000",
                                   "\\ud800",
                                   "null",
                                   "-1",
                                   "0.5",
                                   "1e999",
                                   "0",
                                   "18446744073709551615",
                                   "..",
                                   "/",
                                   "\"\"",
                                   std::string(300, ' '),
                                   std::string(3000, 'x'),
                                   std::string(40000, '['),
                                   std::string(40000, '1')};
  return *words;
}

std::string MutatedJson(const std::string& text, Mutator& random) {
  return Mutator(
             static_cast<uint32_t>(random.Below(1u << 31)), {text}, JsonWords())
      .Next();
}

void ChangeEntries(Mutator& random, std::vector<Entry>* entries) {
  Entry& entry = (*entries)[random.Below(entries->size())];
  switch (random.Below(8)) {
    case 0:
      entry.name = random.Pick<std::string>({"a", "", "__metadata__", "\\n"});
      break;
    case 1:
      entry.dtype = random.Pick<std::string>(
          {"\"F64\"", "\"F16\"", "16", "\"\"", "null"});
      break;
    case 2:
      entry.shape = absl::StrCat("[", OddNumber(random), "]");
      break;
    case 3:
      entry.shape = absl::StrCat("[2,", OddNumber(random), ",3]");
      break;
    case 4:
      entry.offsets = absl::StrCat("[", OddNumber(random), ",24]");
      break;
    case 5:
      entry.offsets = absl::StrCat("[0,", OddNumber(random), "]");
      break;
    case 6:
      // The same tensor in other clothes: still right.
      entry = {"\\u0061\\ud83d\\ude00", "\"F32\"", " [ 2 ,3]", "[0 , 24 ]"};
      break;
    default:
      // Empty tensors, and perhaps far too many.
      for (size_t i = random.Below(OneIn(random, 4) ? 2000 : 40); i > 0; --i) {
        entries->push_back({absl::StrCat(i), "\"F32\"", "[0]", "[0,0]"});
      }
  }
}

std::string MutatedSafetensors(Mutator& random) {
  std::vector<Entry> entries = GoodEntries();
  switch (random.Below(4)) {
    case 0:
      // Bytes of the file, its length included.
      return MutatedJson(SafetensorsFile(HeaderOf(entries)), random);
    case 1:
      return SafetensorsFile(MutatedJson(HeaderOf(entries), random));
    default:
      for (size_t left = 1 + random.Below(2); left > 0; --left) {
        ChangeEntries(random, &entries);
      }
      return SafetensorsFile(HeaderOf(entries));
  }
}

Folder GoodSafetensors() {
  return {{"model.safetensors", SafetensorsFile(HeaderOf(GoodEntries()))}};
}

Folder GoodShards() {
  std::vector<Entry> others = GoodEntries();
  for (Entry& entry : others) entry.name += "2";
  return {{"one.safetensors", SafetensorsFile(HeaderOf(GoodEntries()))},
          {"two.safetensors", SafetensorsFile(HeaderOf(others))},
          {"model.safetensors.index.json",
           R"({"metadata":{"total_size":80},"weight_map":{)"
           R"("a":"one.safetensors","b":"one.safetensors",)"
           R"("c":"one.safetensors","a2":"two.safetensors",)"
           R"("b2":"two.safetensors","c2":"two.safetensors"}})"}};
}

Folder MutatedShards(Mutator& random) {
  Folder files = GoodShards();
  std::string& index = files["model.safetensors.index.json"];
  switch (random.Below(8)) {
    case 0:
      files["two.safetensors"] = MutatedSafetensors(random);
      break;
    case 1:
      files.erase(OneIn(random, 2) ? "one.safetensors" : "two.safetensors");
      break;
    case 2:
      // Nothing that the reader wants to know.
      index.insert(1,
                   absl::StrCat("\"x\":",
                                std::string(random.Below(10), '['),
                                OddNumber(random),
                                ","));
      break;
    case 3: {
      // Names of files by the hundred.
      std::vector<std::string> pairs;
      for (size_t i = random.Below(600); i > 0; --i) {
        pairs.push_back(absl::StrCat("\"", i, "\":\"", i, ".safetensors\""));
      }
      index =
          absl::StrCat("{\"weight_map\":{", absl::StrJoin(pairs, ","), "}}");
      break;
    }
    case 4:
      index = absl::StrCat(index, std::string(random.Below(100000), ' '));
      break;
    case 5:
      index.insert(1, absl::StrCat("\"y\":", OddNumber(random), ","));
      break;
    default:
      index = MutatedJson(index, random);
  }
  return files;
}

}  // namespace

uint64_t OddNumber(Mutator& random) {
  static constexpr uint64_t kBases[] = {0,
                                        8,
                                        16,
                                        24,
                                        32,
                                        64,
                                        256,
                                        1 << 16,
                                        uint64_t{1} << 31,
                                        uint64_t{1} << 32,
                                        uint64_t{1} << 42,
                                        uint64_t{1} << 61,
                                        uint64_t{1} << 62,
                                        uint64_t{1} << 63};
  return PickOf(kBases, random) + random.Below(5) - 2;
}

std::vector<FileKind> FileKinds() {
  return {
      {"gguf",
       [] {
         return Folder{{"model.gguf", GoodGguf().Build()}};
       },
       MutatedGguf,
       OpenGguf},
      {"safetensors",
       GoodSafetensors,
       [](Mutator& random) {
         return Folder{{"model.safetensors", MutatedSafetensors(random)}};
       },
       OpenSafetensors},
      {"safetensors_index", GoodShards, MutatedShards, OpenSafetensors},
      ConfigKind(),
      TokenizerKind(),
  };
}

}  // namespace specwire
