// SPDX-License-Identifier: Apache-2.0
#include "common/model/gguf.h"

#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/model/gguf_parser.h"
#include "common/model/mapped_file.h"
#include "common/text/utf8.h"

namespace specwire {
namespace {

constexpr absl::string_view kChanged = "the file has changed while in use";

template <typename T>
T Load(const uint8_t* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(T));
  return value;
}

// The integer of type `type` at `bytes`; nothing if `type` is not an integer
// type or the value is above the largest int64.
std::optional<int64_t> LoadInt(GgufValueType type, const uint8_t* bytes) {
  switch (type) {
    case GgufValueType::kUint8:
      return Load<uint8_t>(bytes);
    case GgufValueType::kInt8:
      return Load<int8_t>(bytes);
    case GgufValueType::kUint16:
      return Load<uint16_t>(bytes);
    case GgufValueType::kInt16:
      return Load<int16_t>(bytes);
    case GgufValueType::kUint32:
      return Load<uint32_t>(bytes);
    case GgufValueType::kInt32:
      return Load<int32_t>(bytes);
    case GgufValueType::kInt64:
      return Load<int64_t>(bytes);
    case GgufValueType::kUint64: {
      const uint64_t value = Load<uint64_t>(bytes);
      if (value > uint64_t{std::numeric_limits<int64_t>::max()}) break;
      return static_cast<int64_t>(value);
    }
    default:
      break;
  }
  return std::nullopt;
}

bool IsIntType(GgufValueType type) {
  return type <= GgufValueType::kInt32 || type == GgufValueType::kUint64 ||
         type == GgufValueType::kInt64;
}

// Takes a string off the front of `rest`. The parser has checked its length,
// but in a mapped file the owner may have changed it since; nothing then.
std::optional<absl::string_view> TakeString(absl::Span<const uint8_t>& rest) {
  if (rest.size() < sizeof(uint64_t)) return std::nullopt;
  const uint64_t size = Load<uint64_t>(rest.data());
  rest.remove_prefix(sizeof(uint64_t));
  if (size > rest.size()) return std::nullopt;
  const absl::string_view text(reinterpret_cast<const char*>(rest.data()),
                               static_cast<size_t>(size));
  rest.remove_prefix(text.size());
  return text;
}

std::string TypeText(const GgufValue& value) {
  if (value.type != GgufValueType::kArray) {
    return std::string(GgufValueTypeName(value.type));
  }
  return absl::StrCat("an array of ", GgufValueTypeName(value.element_type));
}

}  // namespace

struct GgufFile::Impl {
  // Absent if the caller of Parse owns the bytes.
  std::unique_ptr<MappedFile> file;
  GgufHeader header;

  // NOT_FOUND if there is no such key.
  absl::StatusOr<const GgufValue*> Find(absl::string_view key) const {
    const auto it = header.metadata.find(key);
    if (it == header.metadata.end()) {
      return absl::NotFoundError(absl::StrCat(
          header.tensors.path(), ": ", absl::CHexEscape(key), ": is absent"));
    }
    return &it->second;
  }
};

GgufFile::GgufFile(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

GgufFile::~GgufFile() = default;

absl::StatusOr<std::unique_ptr<GgufFile>> GgufFile::Open(
    const std::string& path) {
  SPECWIRE_ASSIGN_OR_RETURN(std::unique_ptr<MappedFile> file,
                            MappedFile::Open(path));
  SPECWIRE_ASSIGN_OR_RETURN(std::unique_ptr<GgufFile> gguf,
                            Parse(path, file->bytes()));
  gguf->impl_->file = std::move(file);
  return gguf;
}

absl::StatusOr<std::unique_ptr<GgufFile>> GgufFile::Parse(
    const std::string& path, absl::Span<const uint8_t> bytes) {
  absl::StatusOr<GgufHeader> header = ParseGguf(path, bytes);
  if (!header.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": ", header.status().message()));
  }
  return std::unique_ptr<GgufFile>(
      new GgufFile(std::make_unique<Impl>(Impl{nullptr, *std::move(header)})));
}

const std::string& GgufFile::path() const { return tensor_table().path(); }

uint32_t GgufFile::version() const { return impl_->header.version; }

bool GgufFile::Has(absl::string_view key) const {
  return impl_->header.metadata.contains(key);
}

absl::StatusOr<int64_t> GgufFile::GetInt(absl::string_view key,
                                         int64_t min,
                                         int64_t max) const {
  SPECWIRE_ASSIGN_OR_RETURN(const GgufValue* value, impl_->Find(key));
  if (!IsIntType(value->type)) {
    return Error(key,
                 absl::StrCat("is ", TypeText(*value), ", not an integer"));
  }
  const std::optional<int64_t> number =
      LoadInt(value->type, value->bytes.data());
  if (!number.has_value() || *number < min || *number > max) {
    const std::string text =
        number.has_value() ? absl::StrCat(*number)
                           : absl::StrCat(Load<uint64_t>(value->bytes.data()));
    return Error(key, absl::StrCat(text, " is outside [", min, ", ", max, "]"));
  }
  return *number;
}

absl::StatusOr<double> GgufFile::GetFloat(absl::string_view key,
                                          double min,
                                          double max) const {
  SPECWIRE_ASSIGN_OR_RETURN(const GgufValue* value, impl_->Find(key));
  double number;
  if (value->type == GgufValueType::kFloat32) {
    number = Load<float>(value->bytes.data());
  } else if (value->type == GgufValueType::kFloat64) {
    number = Load<double>(value->bytes.data());
  } else {
    return Error(key, absl::StrCat("is ", TypeText(*value), ", not a float"));
  }
  // So written that NaN fails too.
  if (!(number >= min && number <= max)) {
    return Error(key,
                 absl::StrCat(number, " is outside [", min, ", ", max, "]"));
  }
  return number;
}

absl::StatusOr<bool> GgufFile::GetBool(absl::string_view key) const {
  SPECWIRE_ASSIGN_OR_RETURN(const GgufValue* value, impl_->Find(key));
  if (value->type != GgufValueType::kBool) {
    return Error(key, absl::StrCat("is ", TypeText(*value), ", not BOOL"));
  }
  return value->bytes[0] != 0;
}

absl::StatusOr<absl::string_view> GgufFile::GetString(
    absl::string_view key) const {
  SPECWIRE_ASSIGN_OR_RETURN(const GgufValue* value, impl_->Find(key));
  if (value->type != GgufValueType::kString) {
    return Error(key, absl::StrCat("is ", TypeText(*value), ", not STRING"));
  }
  absl::Span<const uint8_t> rest = value->bytes;
  const std::optional<absl::string_view> text = TakeString(rest);
  if (!text.has_value()) return Error(key, kChanged);
  if (!IsValidUtf8(*text)) return Error(key, "is not valid UTF-8");
  return *text;
}

absl::StatusOr<std::vector<absl::string_view>> GgufFile::GetStringArray(
    absl::string_view key) const {
  SPECWIRE_ASSIGN_OR_RETURN(const GgufValue* value, impl_->Find(key));
  if (value->type != GgufValueType::kArray ||
      value->element_type != GgufValueType::kString) {
    return Error(
        key, absl::StrCat("is ", TypeText(*value), ", not an array of STRING"));
  }
  if (value->count > GgufLimits::kMaxSmallArray &&
      value->bytes.size() < value->count * (sizeof(uint64_t) + 2)) {
    return Error(key,
                 absl::StrCat(value->count,
                              " strings of less than 2 bytes on average are "
                              "too many"));
  }
  std::vector<absl::string_view> texts;
  texts.reserve(static_cast<size_t>(value->count));
  absl::Span<const uint8_t> rest = value->bytes;
  for (uint64_t i = 0; i < value->count; ++i) {
    const std::optional<absl::string_view> text = TakeString(rest);
    if (!text.has_value()) return Error(key, kChanged);
    if (!IsValidUtf8(*text)) {
      return Error(key, absl::StrCat("element ", i, " is not valid UTF-8"));
    }
    texts.push_back(*text);
  }
  return texts;
}

absl::StatusOr<std::vector<int32_t>> GgufFile::GetIntArray(
    absl::string_view key) const {
  SPECWIRE_ASSIGN_OR_RETURN(const GgufValue* value, impl_->Find(key));
  if (value->type != GgufValueType::kArray || !IsIntType(value->element_type)) {
    return Error(
        key,
        absl::StrCat("is ", TypeText(*value), ", not an array of integers"));
  }
  const size_t size = GgufValueSize(value->element_type);
  if (value->count > GgufLimits::kMaxSmallArray && size < sizeof(int32_t)) {
    return Error(key,
                 absl::StrCat(value->count,
                              " elements are too many for ",
                              GgufValueTypeName(value->element_type),
                              "; use I32 or U32"));
  }
  std::vector<int32_t> numbers;
  numbers.reserve(static_cast<size_t>(value->count));
  for (uint64_t i = 0; i < value->count; ++i) {
    const std::optional<int64_t> number =
        LoadInt(value->element_type, value->bytes.data() + i * size);
    if (!number.has_value() || *number < std::numeric_limits<int32_t>::min() ||
        *number > std::numeric_limits<int32_t>::max()) {
      return Error(key, absl::StrCat("element ", i, " does not fit 32 bits"));
    }
    numbers.push_back(static_cast<int32_t>(*number));
  }
  return numbers;
}

absl::StatusOr<std::vector<bool>> GgufFile::GetBoolArray(
    absl::string_view key) const {
  SPECWIRE_ASSIGN_OR_RETURN(const GgufValue* value, impl_->Find(key));
  if (value->type != GgufValueType::kArray ||
      value->element_type != GgufValueType::kBool) {
    return Error(
        key, absl::StrCat("is ", TypeText(*value), ", not an array of BOOL"));
  }
  std::vector<bool> flags;
  flags.reserve(static_cast<size_t>(value->count));
  for (const uint8_t flag : value->bytes) flags.push_back(flag != 0);
  return flags;
}

absl::StatusOr<std::vector<float>> GgufFile::GetFloatArray(
    absl::string_view key) const {
  SPECWIRE_ASSIGN_OR_RETURN(const GgufValue* value, impl_->Find(key));
  if (value->type != GgufValueType::kArray ||
      value->element_type != GgufValueType::kFloat32) {
    return Error(
        key, absl::StrCat("is ", TypeText(*value), ", not an array of floats"));
  }
  std::vector<float> numbers;
  numbers.reserve(static_cast<size_t>(value->count));
  for (uint64_t i = 0; i < value->count; ++i) {
    numbers.push_back(Load<float>(value->bytes.data() + i * sizeof(float)));
  }
  return numbers;
}

const TensorTable& GgufFile::tensor_table() const {
  return impl_->header.tensors;
}

absl::Status GgufFile::Error(absl::string_view field,
                             absl::string_view problem) const {
  return tensor_table().Error(field, problem);
}

}  // namespace specwire
