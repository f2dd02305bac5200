// SPDX-License-Identifier: Apache-2.0
#include "common/model/safetensors_parser.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/status_macros.h"
#include "common/model/bounded_json.h"

namespace specwire {
namespace {

constexpr absl::string_view kMetadataName = "__metadata__";

absl::Status Error(absl::string_view field, absl::string_view problem) {
  return absl::InvalidArgumentError(absl::StrCat(field, ": ", problem));
}

std::string FieldOf(absl::string_view name) {
  return absl::StrCat("tensor ", absl::CHexEscape(name));
}

std::optional<GgmlType> TypeOf(absl::string_view dtype) {
  if (dtype == "F32") return GgmlType::kF32;
  if (dtype == "F16") return GgmlType::kF16;
  if (dtype == "BF16") return GgmlType::kBF16;
  return std::nullopt;
}

// What the header says of one tensor.
struct Entry {
  std::optional<std::string> dtype;
  std::optional<std::vector<uint64_t>> shape;
  std::optional<std::vector<uint64_t>> offsets;
};

// The tensor of an entry in `data`, the bytes behind the header; without its
// name. Errors are "<problem>".
absl::StatusOr<FileTensor> MakeTensor(const Entry& entry,
                                      absl::Span<const uint8_t> data) {
  const auto error = [](auto... parts) {
    return absl::InvalidArgumentError(absl::StrCat(parts...));
  };
  if (!entry.dtype || !entry.shape || !entry.offsets) {
    return error("lacks one of dtype, shape and data_offsets");
  }
  const std::optional<GgmlType> type = TypeOf(*entry.dtype);
  if (!type.has_value()) {
    return error("dtype ",
                 absl::CHexEscape(entry.dtype->substr(0, 16)),
                 " is not supported; use F32, F16 or BF16");
  }
  FileTensor tensor = {{}, *type, {}, {}};
  auto size = static_cast<uint64_t>(InfoOf(*type).block_bytes);
  for (const uint64_t dimension : *entry.shape) {
    if (dimension > uint64_t{std::numeric_limits<int64_t>::max()} ||
        __builtin_mul_overflow(size, dimension, &size)) {
      return error("the dimension ", dimension, " makes too many values");
    }
    tensor.shape.push_back(static_cast<int64_t>(dimension));
  }
  const uint64_t begin = (*entry.offsets)[0];
  const uint64_t end = (*entry.offsets)[1];
  if (begin > end || end > data.size()) {
    return error("data_offsets from ",
                 begin,
                 " to ",
                 end,
                 " are not inside the ",
                 data.size(),
                 " bytes of tensor data");
  }
  if (end - begin != size) {
    return error("takes ",
                 size,
                 " bytes, but its data_offsets are ",
                 end - begin,
                 " apart");
  }
  tensor.data = data.subspan(static_cast<size_t>(begin),  //
                             static_cast<size_t>(end - begin));
  return tensor;
}

// Reads the header:
//   {"__metadata__": {text: text, ...},
//    <name>: {"dtype": text, "shape": [n, ...], "data_offsets": [begin, end]},
//    ...}
class HeaderEvents final : public JsonEvents {
 public:
  HeaderEvents(absl::Span<const uint8_t> data,
               size_t max_tensors,
               TensorTable* table)
      : data_(data), max_tensors_(max_tensors), table_(table) {}

  bool StartObject() override {
    if (state_ == State::kStart) {
      state_ = State::kHeader;
    } else if (state_ == State::kHeader) {
      state_ = name_ == kMetadataName ? State::kMetadata : State::kEntry;
      entry_ = {};
    } else {
      return Unexpected();
    }
    return true;
  }
  bool key(string_t& name) override {
    if (state_ == State::kHeader) return TakeName(name);
    if (state_ == State::kMetadata) return true;
    if (name != "dtype" && name != "shape" && name != "data_offsets") {
      return Fail(absl::StrCat(FieldOf(name_),
                               ": has the unknown field ",
                               absl::CHexEscape(name.substr(0, 64))));
    }
    field_ = name;
    if ((field_ == "dtype" && entry_.dtype) ||
        (field_ == "shape" && entry_.shape) ||
        (field_ == "data_offsets" && entry_.offsets)) {
      return Fail(absl::StrCat(FieldOf(name_), ": has ", field_, " twice"));
    }
    return true;
  }
  bool string(string_t& value) override {
    if (state_ == State::kMetadata) return true;
    if (state_ != State::kEntry || field_ != "dtype") return Unexpected();
    entry_.dtype = value;
    return true;
  }
  bool StartArray() override {
    if (state_ != State::kEntry || field_ == "dtype") return Unexpected();
    state_ = State::kNumbers;
    Numbers().emplace();
    return true;
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (state_ != State::kNumbers) return Unexpected();
    std::vector<uint64_t>& numbers = *Numbers();
    if (numbers.size() == MostNumbers()) return WrongCount();
    numbers.push_back(value);
    return true;
  }
  bool EndArray() override {
    state_ = State::kEntry;
    if (field_ == "data_offsets" && entry_.offsets->size() != 2) {
      return WrongCount();
    }
    return true;
  }
  bool EndObject() override {
    const bool is_entry = state_ == State::kEntry;
    state_ = state_ == State::kHeader ? State::kEnd : State::kHeader;
    return !is_entry || AddTensor();
  }

 private:
  // What the next value belongs to.
  enum class State { kStart, kHeader, kMetadata, kEntry, kNumbers, kEnd };

  bool Unexpected() override {
    switch (state_) {
      case State::kStart:
      case State::kEnd:
        return Fail("header: must be a JSON object");
      case State::kMetadata:
        return Fail(absl::StrCat(kMetadataName, ": must map texts to texts"));
      case State::kHeader:
        return Fail(absl::StrCat(FieldOf(name_), ": must be a JSON object"));
      default:
        return Fail(absl::StrCat(FieldOf(name_),
                                 ": ",
                                 field_,
                                 field_ == "dtype"
                                     ? " must be a text"
                                     : " must be an array of whole numbers "
                                       "that are not negative"));
    }
  }
  bool TakeName(const std::string& name) {
    if (name.size() > SafetensorsLimits::kMaxNameBytes) {
      return Fail(absl::StrCat("header: a tensor's name of ",
                               name.size(),
                               " bytes is above the limit of ",
                               SafetensorsLimits::kMaxNameBytes));
    }
    if (name.empty()) return Fail("header: a tensor's name is empty");
    if (name == kMetadataName && std::exchange(has_metadata_, true)) {
      return Fail(absl::StrCat(kMetadataName, ": occurs twice"));
    }
    name_ = name;
    return true;
  }
  std::optional<std::vector<uint64_t>>& Numbers() {
    return field_ == "shape" ? entry_.shape : entry_.offsets;
  }
  size_t MostNumbers() const {
    return field_ == "shape" ? SafetensorsLimits::kMaxRank : 2;
  }
  bool WrongCount() {
    return Fail(field_ == "shape"
                    ? absl::StrCat(FieldOf(name_),
                                   ": its rank is above the limit of ",
                                   SafetensorsLimits::kMaxRank)
                    : absl::StrCat(FieldOf(name_),
                                   ": data_offsets must be two numbers"));
  }
  bool AddTensor() {
    absl::StatusOr<FileTensor> tensor = MakeTensor(entry_, data_);
    if (!tensor.ok()) {
      return Fail(
          absl::StrCat(FieldOf(name_), ": ", tensor.status().message()));
    }
    if (table_->tensors().size() >= max_tensors_) {
      return Fail(absl::StrCat("header: more than ",
                               max_tensors_,
                               " tensors, too many for a model of this size"));
    }
    tensor->name = name_;
    if (!table_->Add(*std::move(tensor))) {
      return Fail(absl::StrCat(FieldOf(name_), ": the name occurs twice"));
    }
    return true;
  }

  const absl::Span<const uint8_t> data_;
  const size_t max_tensors_;
  TensorTable* const table_;
  State state_ = State::kStart;
  bool has_metadata_ = false;
  std::string name_;
  std::string field_;
  Entry entry_;
};

// The format wants the tensors to fill the data without overlaps and holes.
absl::Status CheckCover(absl::Span<const FileTensor> tensors,
                        absl::Span<const uint8_t> data) {
  std::vector<uint32_t> order(tensors.size());
  std::iota(order.begin(), order.end(), uint32_t{0});
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    const auto& x = tensors[a].data;
    const auto& y = tensors[b].data;
    return x.data() != y.data() ? std::less<>()(x.data(), y.data())
                                : x.size() < y.size();
  });
  uint64_t at = 0;
  for (const uint32_t i : order) {
    const auto begin = static_cast<uint64_t>(tensors[i].data.data() -  //
                                             data.data());
    if (begin != at) {
      return Error(FieldOf(tensors[i].name),
                   absl::StrCat("its data begins at ",
                                begin,
                                ", but that before it ends at ",
                                at));
    }
    at += tensors[i].data.size();
  }
  if (at != data.size()) {
    return Error("data",
                 absl::StrCat("the tensors end after ",
                              at,
                              " bytes, but there are ",
                              data.size()));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ParseSafetensors(absl::Span<const uint8_t> bytes,
                              size_t max_tensors,
                              TensorTable* table) {
  uint64_t header_size;
  if (bytes.size() < sizeof(header_size)) {
    return Error("header",
                 "the file has no 8 bytes; this is not a safetensors file");
  }
  std::memcpy(&header_size, bytes.data(), sizeof(header_size));
  bytes.remove_prefix(sizeof(header_size));
  if (header_size > SafetensorsLimits::kMaxHeaderBytes) {
    return Error("header",
                 absl::StrCat(header_size,
                              " bytes are above the limit of ",
                              SafetensorsLimits::kMaxHeaderBytes,
                              "; is this a safetensors file?"));
  }
  if (header_size > bytes.size()) {
    return Error("header",
                 absl::StrCat("needs ",
                              header_size,
                              " bytes, but the file ends after ",
                              bytes.size()));
  }
  const auto size = static_cast<size_t>(header_size);
  absl::string_view header(reinterpret_cast<const char*>(bytes.data()), size);
  const absl::Span<const uint8_t> data = bytes.subspan(size);
  // Writers fill it up with spaces to a multiple of 8 bytes.
  const size_t last = header.find_last_not_of(' ');
  if (header.empty() || header.front() != '{' || header[last] != '}') {
    return Error("header", "is not a JSON object");
  }
  HeaderEvents events(data, max_tensors, table);
  const size_t first_tensor = table->tensors().size();
  header = header.substr(0, last + 1);
  SPECWIRE_RETURN_IF_ERROR(
      ReadJson("header", header, TightJsonLimits(header), &events));
  return CheckCover(table->tensors().subspan(first_tensor), data);
}

}  // namespace specwire
