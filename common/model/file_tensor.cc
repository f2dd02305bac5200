// SPDX-License-Identifier: Apache-2.0
#include "common/model/file_tensor.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace specwire {
namespace {

std::string ShapeText(absl::Span<const int64_t> shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

}  // namespace

int64_t FileTensor::num_elements() const {
  int64_t product = 1;
  for (const int64_t dimension : shape) product *= dimension;
  return product;
}

int64_t FileTensor::num_rows() const {
  int64_t product = 1;
  for (size_t i = 0; i + 1 < shape.size(); ++i) product *= shape[i];
  return product;
}

absl::Status ExpandRows(const FileTensor& tensor,
                        int64_t first_row,
                        int64_t num_rows,
                        absl::Span<float> out) {
  const GgmlTypeInfo& info = InfoOf(tensor.type);
  const size_t block_size = static_cast<size_t>(info.block_size);
  const size_t block_bytes = static_cast<size_t>(info.block_bytes);
  const auto all_rows =
      static_cast<size_t>(std::max<int64_t>(tensor.num_rows(), 1));
  const size_t row_blocks = tensor.data.size() / block_bytes / all_rows;
  const size_t first_block = static_cast<size_t>(first_row) * row_blocks;
  const size_t num_blocks = static_cast<size_t>(num_rows) * row_blocks;
  if (out.size() != num_blocks * block_size ||
      (first_block + num_blocks) * block_bytes > tensor.data.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor ",
                     absl::CHexEscape(tensor.name),
                     ": rows ",
                     first_row,
                     " to ",
                     first_row + num_rows,
                     " of ",
                     info.name,
                     " do not fill an output of ",
                     out.size()));
  }
  const BlockExpander expand = BlockExpanderOf(tensor.type);
  const size_t bad = expand(
      tensor.data.data() + first_block * block_bytes, num_blocks, out.data());
  if (bad < num_blocks) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor ",
                     absl::CHexEscape(tensor.name),
                     ": ",
                     block_size == 1 ? "value " : "the scale of block ",
                     first_block + bad,
                     " is not finite"));
  }
  return absl::OkStatus();
}

absl::Status ExpandToFloat(const FileTensor& tensor, absl::Span<float> out) {
  return ExpandRows(tensor, 0, tensor.num_rows(), out);
}

void TensorTable::Reserve(size_t num_tensors) {
  tensors_.reserve(num_tensors);
  index_.reserve(num_tensors);
}

bool TensorTable::Add(FileTensor tensor) {
  if (!index_.emplace(tensor.name, tensors_.size()).second) return false;
  tensors_.push_back(std::move(tensor));
  return true;
}

const FileTensor* TensorTable::Find(absl::string_view name) const {
  const auto it = index_.find(name);
  return it == index_.end() ? nullptr : &tensors_[it->second];
}

absl::StatusOr<const FileTensor*> TensorTable::FindTensor(
    absl::string_view name, absl::Span<const int64_t> shape) const {
  const std::string field = absl::StrCat("tensor ", name);
  const FileTensor* const tensor = Find(name);
  if (tensor == nullptr) {
    return absl::NotFoundError(
        absl::StrCat(path_, ": ", absl::CHexEscape(field), ": is absent"));
  }
  if (absl::MakeConstSpan(tensor->shape) != shape) {
    return Error(field,
                 absl::StrCat("has shape ",
                              ShapeText(tensor->shape),
                              ", but the model needs ",
                              ShapeText(shape)));
  }
  return tensor;
}

absl::Status TensorTable::Error(absl::string_view field,
                                absl::string_view problem) const {
  return absl::InvalidArgumentError(
      absl::StrCat(path_, ": ", absl::CHexEscape(field), ": ", problem));
}

}  // namespace specwire
