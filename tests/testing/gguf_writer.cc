// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/gguf_writer.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"

namespace specwire {
namespace {

void Pad(std::string& bytes, uint64_t alignment) {
  while (bytes.size() % alignment != 0) bytes.push_back('\0');
}

std::string PackArray(GgufValueType type,
                      size_t count,
                      absl::string_view elements) {
  return absl::StrCat(LittleEndian(static_cast<uint32_t>(type), 4),
                      LittleEndian(count, 8),
                      elements);
}

}  // namespace

std::string LittleEndian(uint64_t value, int size) {
  std::string bytes;
  for (int i = 0; i < size; ++i) {
    bytes.push_back(static_cast<char>(value & 0xff));
    value >>= 8;
  }
  return bytes;
}

std::string PackFloats(absl::Span<const float> values) {
  std::string bytes;
  for (const float value : values) {
    bytes += LittleEndian(std::bit_cast<uint32_t>(value), 4);
  }
  return bytes;
}

std::string PackString(absl::string_view text) {
  return absl::StrCat(LittleEndian(text.size(), 8), text);
}

bool WriteBytes(const std::string& path, absl::string_view bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  return !file.fail();
}

void GgufWriter::AddRaw(absl::string_view key,
                        uint32_t type,
                        absl::string_view bytes) {
  absl::StrAppend(&metadata_, PackString(key), LittleEndian(type, 4), bytes);
  ++num_metadata_;
}

void GgufWriter::AddInt(absl::string_view key,
                        GgufValueType type,
                        int64_t value) {
  AddRaw(key,
         static_cast<uint32_t>(type),
         LittleEndian(static_cast<uint64_t>(value),
                      static_cast<int>(GgufValueSize(type))));
}

void GgufWriter::AddFloat32(absl::string_view key, float value) {
  AddRaw(
      key, static_cast<uint32_t>(GgufValueType::kFloat32), PackFloats({value}));
}

void GgufWriter::AddFloat64(absl::string_view key, double value) {
  AddRaw(key,
         static_cast<uint32_t>(GgufValueType::kFloat64),
         LittleEndian(std::bit_cast<uint64_t>(value), 8));
}

void GgufWriter::AddBool(absl::string_view key, bool value) {
  AddRaw(key,
         static_cast<uint32_t>(GgufValueType::kBool),
         LittleEndian(value ? 1 : 0, 1));
}

void GgufWriter::AddString(absl::string_view key, absl::string_view value) {
  AddRaw(key, static_cast<uint32_t>(GgufValueType::kString), PackString(value));
}

void GgufWriter::AddIntArray(absl::string_view key,
                             GgufValueType type,
                             absl::Span<const int64_t> values) {
  std::string elements;
  for (const int64_t value : values) {
    elements += LittleEndian(static_cast<uint64_t>(value),
                             static_cast<int>(GgufValueSize(type)));
  }
  AddRaw(key,
         static_cast<uint32_t>(GgufValueType::kArray),
         PackArray(type, values.size(), elements));
}

void GgufWriter::AddStringArray(absl::string_view key,
                                absl::Span<const std::string> values) {
  std::string elements;
  for (const std::string& value : values) elements += PackString(value);
  AddRaw(key,
         static_cast<uint32_t>(GgufValueType::kArray),
         PackArray(GgufValueType::kString, values.size(), elements));
}

void GgufWriter::AddTensor(absl::string_view name,
                           GgmlType type,
                           absl::Span<const int64_t> shape,
                           absl::string_view data) {
  GgufTensorSpec tensor;
  tensor.name = std::string(name);
  tensor.type = static_cast<uint32_t>(type);
  tensor.data = std::string(data);
  for (const int64_t dimension : shape) {
    tensor.dimensions.push_back(static_cast<uint64_t>(dimension));
  }
  std::reverse(tensor.dimensions.begin(), tensor.dimensions.end());
  tensors_.push_back(std::move(tensor));
}

std::string GgufWriter::Build() const {
  std::string infos;
  std::string data;
  for (const GgufTensorSpec& tensor : tensors_) {
    Pad(data, alignment);
    const uint32_t rank = static_cast<uint32_t>(tensor.dimensions.size());
    absl::StrAppend(&infos,
                    PackString(tensor.name),
                    LittleEndian(tensor.rank.value_or(rank), 4));
    for (const uint64_t dimension : tensor.dimensions) {
      infos += LittleEndian(dimension, 8);
    }
    absl::StrAppend(&infos,
                    LittleEndian(tensor.type, 4),
                    LittleEndian(tensor.offset.value_or(data.size()), 8));
    data += tensor.data;
  }
  std::string file =
      absl::StrCat(magic,
                   LittleEndian(version, 4),
                   LittleEndian(tensor_count.value_or(tensors_.size()), 8),
                   LittleEndian(metadata_count.value_or(num_metadata_), 8),
                   metadata_,
                   infos);
  Pad(file, alignment);
  return file + data;
}

}  // namespace specwire
