// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "common/text/text_segment.h"

namespace specwire::jinja {

// A string that remembers, byte by byte, who wrote it: the template (literal)
// or someone whose text is only data. Every operation of a template keeps the
// marks, so the result of a rendering can tell a control token that the
// template wrote from one that a message merely contains.
//
// Thread safety: const methods from any thread.
class MarkedString {
 public:
  MarkedString() = default;
  static MarkedString Literal(absl::string_view bytes);
  static MarkedString Data(absl::string_view bytes);

  absl::string_view bytes() const { return bytes_; }
  size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }

  void Append(absl::string_view bytes, bool literal);
  void Append(const MarkedString& other);
  // Appends other[begin, end).
  // REQUIRES: begin <= end <= other.size().
  void AppendSlice(const MarkedString& other, size_t begin, size_t end);
  // REQUIRES: begin <= end <= size().
  MarkedString Slice(size_t begin, size_t end) const;

  // Calls `visit` for each stretch of one mark, in order.
  void ForEachRun(absl::FunctionRef<void(absl::string_view bytes, bool literal)>
                      visit) const;

  // The string as segments; neighbours differ in who wrote them.
  std::vector<TextSegment> ToSegments() const;

 private:
  struct Run {
    size_t end;
    bool literal;
  };

  std::string bytes_;
  // In order; neighbours differ in `literal`; none is empty.
  std::vector<Run> runs_;
};

}  // namespace specwire::jinja
