// SPDX-License-Identifier: Apache-2.0
#include "common/model/gguf_parser.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/model/ggml_types.h"

namespace specwire {
namespace {

constexpr uint32_t kMagic = 0x46554747;  // "GGUF", read little-endian.
constexpr uint32_t kDefaultAlignment = 32;
// Least bytes that an entry takes: key length, a key of one byte, type, value.
constexpr uint64_t kMinMetadataBytes = 8 + 1 + 4 + 1;
// Name length, a name of one byte, rank 0, type, offset.
constexpr uint64_t kMinTensorBytes = 8 + 1 + 4 + 4 + 8;

absl::Status Error(absl::string_view field, absl::string_view problem) {
  return absl::InvalidArgumentError(absl::StrCat(field, ": ", problem));
}

// a * b, or nothing if it does not fit.
std::optional<uint64_t> CheckedMultiply(uint64_t a, uint64_t b) {
  uint64_t product;
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

// Reads a file from front to back and never past its end.
class Cursor {
 public:
  explicit Cursor(absl::Span<const uint8_t> bytes) : bytes_(bytes) {}

  uint64_t position() const { return position_; }
  uint64_t remaining() const { return bytes_.size() - position_; }

  // The next `size` bytes.
  absl::StatusOr<absl::Span<const uint8_t>> Take(absl::string_view field,
                                                 uint64_t size) {
    if (size > remaining()) {
      return Error(field,
                   absl::StrCat("needs ",
                                size,
                                " bytes at offset ",
                                position_,
                                ", but the file ends after ",
                                remaining()));
    }
    const auto taken = bytes_.subspan(static_cast<size_t>(position_),
                                      static_cast<size_t>(size));
    position_ += size;
    return taken;
  }

  template <typename T>
  absl::StatusOr<T> Read(absl::string_view field) {
    SPECWIRE_ASSIGN_OR_RETURN(const auto bytes, Take(field, sizeof(T)));
    T value;
    std::memcpy(&value, bytes.data(), sizeof(T));
    return value;
  }

  absl::StatusOr<absl::string_view> ReadString(absl::string_view field,
                                               uint64_t max_bytes) {
    SPECWIRE_ASSIGN_OR_RETURN(const uint64_t size, Read<uint64_t>(field));
    if (size > max_bytes) {
      return Error(field,
                   absl::StrCat("a string of ",
                                size,
                                " bytes is above the limit of ",
                                max_bytes));
    }
    SPECWIRE_ASSIGN_OR_RETURN(const auto bytes, Take(field, size));
    return absl::string_view(reinterpret_cast<const char*>(bytes.data()),
                             bytes.size());
  }

  // Everything between an earlier position and this one.
  absl::Span<const uint8_t> Since(uint64_t start) const {
    return bytes_.subspan(static_cast<size_t>(start),
                          static_cast<size_t>(position_ - start));
  }

 private:
  const absl::Span<const uint8_t> bytes_;
  uint64_t position_ = 0;
};

// A count of things that each take at least `min_bytes`.
absl::StatusOr<uint64_t> ReadCount(Cursor& cursor,
                                   absl::string_view field,
                                   uint64_t limit,
                                   uint64_t min_bytes) {
  SPECWIRE_ASSIGN_OR_RETURN(const uint64_t count, cursor.Read<uint64_t>(field));
  if (count > limit) {
    return Error(field, absl::StrCat(count, " is above the limit of ", limit));
  }
  // Cannot overflow: limit * min_bytes is far below 2^64.
  if (count * min_bytes > cursor.remaining()) {
    return Error(field,
                 absl::StrCat(count,
                              " entries take at least ",
                              count * min_bytes,
                              " bytes, but the file ends after ",
                              cursor.remaining()));
  }
  return count;
}

// For each of them far more is kept than the least that it takes in the file.
absl::Status CheckCount(absl::string_view field,
                        uint64_t count,
                        size_t file_bytes) {
  if (count <= MaxTensors(file_bytes)) return absl::OkStatus();
  return Error(
      field,
      absl::StrCat(count, " is too many for a file of ", file_bytes, " bytes"));
}

// Values of one type, packed.
absl::StatusOr<absl::Span<const uint8_t>> ReadElements(Cursor& cursor,
                                                       absl::string_view field,
                                                       GgufValueType type,
                                                       uint64_t count) {
  const uint64_t start = cursor.position();
  if (type == GgufValueType::kString) {
    for (uint64_t i = 0; i < count; ++i) {
      SPECWIRE_RETURN_IF_ERROR(
          cursor.ReadString(field, GgufLimits::kMaxStringBytes).status());
    }
    return cursor.Since(start);
  }
  SPECWIRE_ASSIGN_OR_RETURN(const auto bytes,
                            cursor.Take(field, count * GgufValueSize(type)));
  if (type == GgufValueType::kBool &&
      std::any_of(
          bytes.begin(), bytes.end(), [](uint8_t b) { return b > 1; })) {
    return Error(field, "a BOOL is neither 0 nor 1");
  }
  return bytes;
}

absl::StatusOr<GgufValueType> ReadValueType(Cursor& cursor,
                                            absl::string_view field) {
  SPECWIRE_ASSIGN_OR_RETURN(const uint32_t type, cursor.Read<uint32_t>(field));
  if (type > static_cast<uint32_t>(GgufValueType::kFloat64)) {
    return Error(field, absl::StrCat("unknown value type ", type));
  }
  return static_cast<GgufValueType>(type);
}

absl::StatusOr<GgufValue> ReadValue(Cursor& cursor, absl::string_view field) {
  GgufValue value = {};
  SPECWIRE_ASSIGN_OR_RETURN(value.type, ReadValueType(cursor, field));
  value.element_type = value.type;
  value.count = 1;
  if (value.type == GgufValueType::kArray) {
    SPECWIRE_ASSIGN_OR_RETURN(value.element_type, ReadValueType(cursor, field));
    if (value.element_type == GgufValueType::kArray) {
      return Error(field, "arrays of arrays are not supported");
    }
    const uint64_t min_bytes = value.element_type == GgufValueType::kString
                                   ? sizeof(uint64_t)
                                   : GgufValueSize(value.element_type);
    SPECWIRE_ASSIGN_OR_RETURN(
        value.count,
        ReadCount(cursor, field, GgufLimits::kMaxArrayLength, min_bytes));
  }
  SPECWIRE_ASSIGN_OR_RETURN(
      value.bytes,
      ReadElements(cursor, field, value.element_type, value.count));
  return value;
}

absl::Status ReadMetadata(Cursor& cursor, uint64_t count, GgufHeader& header) {
  header.metadata.reserve(static_cast<size_t>(count));
  for (uint64_t i = 0; i < count; ++i) {
    const std::string place = absl::StrCat("metadata entry ", i);
    SPECWIRE_ASSIGN_OR_RETURN(
        const absl::string_view key,
        cursor.ReadString(place, GgufLimits::kMaxKeyBytes));
    if (key.empty()) return Error(place, "the key is empty");
    // A key may be long, and an escape is longer still.
    constexpr size_t kMaxShown = 256;
    const std::string field = absl::CHexEscape(key.substr(0, kMaxShown));
    SPECWIRE_ASSIGN_OR_RETURN(const GgufValue value, ReadValue(cursor, field));
    if (!header.metadata.emplace(key, value).second) {
      return Error(field, "the key occurs twice");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> ReadAlignment(const GgufHeader& header) {
  constexpr absl::string_view kKey = "general.alignment";
  const auto it = header.metadata.find(kKey);
  if (it == header.metadata.end()) return kDefaultAlignment;
  const GgufValue& value = it->second;
  if (value.type != GgufValueType::kUint32) {
    return Error(
        kKey, absl::StrCat("is ", GgufValueTypeName(value.type), ", not U32"));
  }
  uint32_t alignment;
  std::memcpy(&alignment, value.bytes.data(), sizeof(alignment));
  if (!std::has_single_bit(alignment) ||
      alignment < GgufLimits::kMinAlignment ||
      alignment > GgufLimits::kMaxAlignment) {
    return Error(kKey,
                 absl::StrCat(alignment,
                              " is not a power of two in [",
                              GgufLimits::kMinAlignment,
                              ", ",
                              GgufLimits::kMaxAlignment,
                              "]"));
  }
  return alignment;
}

// A tensor's place in the data section: `offset` bytes from its start.
struct Extent {
  uint64_t offset = 0;
  uint64_t size = 0;
};

// Reads the dimensions (fastest first) and the type of `tensor` and returns its
// size in bytes.
absl::StatusOr<uint64_t> ReadShapeAndType(Cursor& cursor,
                                          absl::string_view field,
                                          FileTensor& tensor) {
  SPECWIRE_ASSIGN_OR_RETURN(const uint32_t rank, cursor.Read<uint32_t>(field));
  if (rank > GgufLimits::kMaxRank) {
    return Error(
        field,
        absl::StrCat(
            "rank ", rank, " is above the limit of ", GgufLimits::kMaxRank));
  }
  uint64_t num_elements = 1;
  tensor.shape.resize(rank);
  for (uint32_t i = 0; i < rank; ++i) {
    SPECWIRE_ASSIGN_OR_RETURN(const uint64_t dimension,
                              cursor.Read<uint64_t>(field));
    const auto product = CheckedMultiply(num_elements, dimension);
    if (dimension == 0 || !product.has_value() ||
        *product > uint64_t{std::numeric_limits<int64_t>::max()}) {
      return Error(field,
                   absl::StrCat("dimension ",
                                i,
                                " of ",
                                dimension,
                                " is zero or makes too many values"));
    }
    num_elements = *product;
    tensor.shape[rank - 1 - i] = static_cast<int64_t>(dimension);
  }
  SPECWIRE_ASSIGN_OR_RETURN(const uint32_t type, cursor.Read<uint32_t>(field));
  const std::optional<GgmlType> known = KnownGgmlType(type);
  if (!known.has_value()) {
    return Error(field,
                 absl::StrCat("type ",
                              GgmlTypeName(type),
                              " is not supported; use F32, F16, BF16, Q4_0, "
                              "Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K or Q6_K"));
  }
  tensor.type = *known;
  const GgmlTypeInfo& info = InfoOf(*known);
  const int64_t row = rank == 0 ? 1 : tensor.shape.back();
  if (row % info.block_size != 0) {
    return Error(field,
                 absl::StrCat("rows of ",
                              row,
                              " values are not whole ",
                              info.name,
                              " blocks of ",
                              info.block_size));
  }
  const auto size =
      CheckedMultiply(num_elements / static_cast<uint64_t>(info.block_size),
                      static_cast<uint64_t>(info.block_bytes));
  if (!size.has_value()) return Error(field, "its size in bytes overflows");
  return *size;
}

absl::Status ReadTensorInfos(Cursor& cursor,
                             uint64_t count,
                             uint64_t alignment,
                             std::vector<FileTensor>& tensors,
                             std::vector<Extent>& extents) {
  tensors.reserve(static_cast<size_t>(count));
  extents.reserve(static_cast<size_t>(count));
  for (uint64_t i = 0; i < count; ++i) {
    const std::string place = absl::StrCat("tensor entry ", i);
    SPECWIRE_ASSIGN_OR_RETURN(
        const absl::string_view name,
        cursor.ReadString(place, GgufLimits::kMaxTensorNameBytes));
    if (name.empty()) return Error(place, "the name is empty");
    const std::string field = absl::StrCat("tensor ", absl::CHexEscape(name));
    FileTensor tensor = {};
    tensor.name = std::string(name);
    Extent extent;
    SPECWIRE_ASSIGN_OR_RETURN(extent.size,
                              ReadShapeAndType(cursor, field, tensor));
    SPECWIRE_ASSIGN_OR_RETURN(extent.offset, cursor.Read<uint64_t>(field));
    if (extent.offset % alignment != 0) {
      return Error(field,
                   absl::StrCat("offset ",
                                extent.offset,
                                " is not a multiple of the alignment ",
                                alignment));
    }
    tensors.push_back(std::move(tensor));
    extents.push_back(extent);
  }
  return absl::OkStatus();
}

// Points every tensor at its bytes in `data`, the data section.
absl::Status PlaceTensors(absl::Span<const uint8_t> data,
                          const std::vector<Extent>& extents,
                          std::vector<FileTensor>& tensors) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Extent& extent = extents[i];
    if (extent.offset > data.size() ||
        extent.size > data.size() - extent.offset) {
      return Error(absl::StrCat("tensor ", absl::CHexEscape(tensors[i].name)),
                   absl::StrCat(extent.size,
                                " bytes at offset ",
                                extent.offset,
                                " reach beyond the ",
                                data.size(),
                                " bytes of tensor data"));
    }
    tensors[i].data = data.subspan(static_cast<size_t>(extent.offset),
                                   static_cast<size_t>(extent.size));
  }
  std::vector<size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return extents[a].offset < extents[b].offset;
  });
  for (size_t i = 1; i < order.size(); ++i) {
    const Extent& before = extents[order[i - 1]];
    if (before.offset + before.size > extents[order[i]].offset) {
      return Error(
          absl::StrCat("tensor ", absl::CHexEscape(tensors[order[i]].name)),
          absl::StrCat("overlaps tensor ",
                       absl::CHexEscape(tensors[order[i - 1]].name)));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<uint32_t> ReadMagicAndVersion(Cursor& cursor) {
  SPECWIRE_ASSIGN_OR_RETURN(const uint32_t magic,
                            cursor.Read<uint32_t>("magic"));
  if (magic != kMagic) return Error("magic", "this is not a GGUF file");
  SPECWIRE_ASSIGN_OR_RETURN(const uint32_t version,
                            cursor.Read<uint32_t>("version"));
  if (version != 2 && version != 3) {
    const uint32_t swapped = __builtin_bswap32(version);
    return Error(
        "version",
        swapped == 2 || swapped == 3
            ? std::string("big-endian files are not supported")
            : absl::StrCat(version, " is not supported, only 2 and 3"));
  }
  return version;
}

}  // namespace

absl::string_view GgufValueTypeName(GgufValueType type) {
  static constexpr absl::string_view kNames[] = {"U8",
                                                 "I8",
                                                 "U16",
                                                 "I16",
                                                 "U32",
                                                 "I32",
                                                 "F32",
                                                 "BOOL",
                                                 "STRING",
                                                 "ARRAY",
                                                 "U64",
                                                 "I64",
                                                 "F64"};
  return kNames[static_cast<size_t>(type)];
}

size_t GgufValueSize(GgufValueType type) {
  static constexpr size_t kSizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
  return kSizes[static_cast<size_t>(type)];
}

absl::StatusOr<GgufHeader> ParseGguf(const std::string& path,
                                     absl::Span<const uint8_t> bytes) {
  Cursor cursor(bytes);
  GgufHeader header = {0, {}, TensorTable(path)};
  SPECWIRE_ASSIGN_OR_RETURN(header.version, ReadMagicAndVersion(cursor));
  SPECWIRE_ASSIGN_OR_RETURN(
      const uint64_t num_tensors,
      ReadCount(
          cursor, "tensor count", GgufLimits::kMaxTensors, kMinTensorBytes));
  SPECWIRE_ASSIGN_OR_RETURN(const uint64_t num_metadata,
                            ReadCount(cursor,
                                      "metadata count",
                                      GgufLimits::kMaxMetadata,
                                      kMinMetadataBytes));
  SPECWIRE_RETURN_IF_ERROR(
      CheckCount("tensor count", num_tensors, bytes.size()));
  SPECWIRE_RETURN_IF_ERROR(
      CheckCount("metadata count", num_metadata, bytes.size()));
  SPECWIRE_RETURN_IF_ERROR(ReadMetadata(cursor, num_metadata, header));
  SPECWIRE_ASSIGN_OR_RETURN(const uint64_t alignment, ReadAlignment(header));
  std::vector<FileTensor> tensors;
  std::vector<Extent> extents;
  SPECWIRE_RETURN_IF_ERROR(
      ReadTensorInfos(cursor, num_tensors, alignment, tensors, extents));
  // A file without tensors may end with its header, before any padding.
  const uint64_t data_start =
      std::min((cursor.position() + alignment - 1) / alignment * alignment,
               uint64_t{bytes.size()});
  SPECWIRE_RETURN_IF_ERROR(PlaceTensors(
      bytes.subspan(static_cast<size_t>(data_start)), extents, tensors));
  header.tensors.Reserve(tensors.size());
  for (FileTensor& tensor : tensors) {
    const std::string field =
        absl::StrCat("tensor ", absl::CHexEscape(tensor.name));
    if (!header.tensors.Add(std::move(tensor))) {
      return Error(field, "the name occurs twice");
    }
  }
  return header;
}

}  // namespace specwire
