// SPDX-License-Identifier: Apache-2.0
#include "common/text/jinja/marked_string.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace specwire::jinja {

MarkedString MarkedString::Literal(absl::string_view bytes) {
  MarkedString result;
  result.Append(bytes, /*literal=*/true);
  return result;
}

MarkedString MarkedString::Data(absl::string_view bytes) {
  MarkedString result;
  result.Append(bytes, /*literal=*/false);
  return result;
}

void MarkedString::Append(absl::string_view bytes, bool literal) {
  if (bytes.empty()) return;
  absl::StrAppend(&bytes_, bytes);
  if (runs_.empty() || runs_.back().literal != literal) {
    runs_.push_back({bytes_.size(), literal});
  } else {
    runs_.back().end = bytes_.size();
  }
}

void MarkedString::Append(const MarkedString& other) {
  AppendSlice(other, 0, other.size());
}

void MarkedString::AppendSlice(const MarkedString& other,
                               size_t begin,
                               size_t end) {
  auto run = std::upper_bound(
      other.runs_.begin(),
      other.runs_.end(),
      begin,
      [](size_t position, const Run& r) { return position < r.end; });
  while (begin < end) {
    const size_t stop = std::min(end, run->end);
    Append(other.bytes().substr(begin, stop - begin), run->literal);
    begin = stop;
    ++run;
  }
}

MarkedString MarkedString::Slice(size_t begin, size_t end) const {
  MarkedString result;
  result.AppendSlice(*this, begin, end);
  return result;
}

void MarkedString::ForEachRun(
    absl::FunctionRef<void(absl::string_view, bool)> visit) const {
  size_t begin = 0;
  for (const Run& run : runs_) {
    visit(bytes().substr(begin, run.end - begin), run.literal);
    begin = run.end;
  }
}

std::vector<TextSegment> MarkedString::ToSegments() const {
  std::vector<TextSegment> segments;
  ForEachRun([&](absl::string_view bytes, bool literal) {
    segments.push_back({std::string(bytes), literal});
  });
  return segments;
}

}  // namespace specwire::jinja
