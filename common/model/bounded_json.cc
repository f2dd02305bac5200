// SPDX-License-Identifier: Apache-2.0
#include "common/model/bounded_json.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace specwire {
namespace {

// Every name of up to 256 bytes fits, even if each is an escape of 6.
constexpr size_t kMinPieceLimit = 2048;

// The parser keeps twice what it has read since the last string began, in
// buffers that grow by doubling, and a third time in its errors. So pieces are
// measured before it sees them: a string, or what lies between two. Where the
// text is well-formed it sees the same strings; it stops where it is not.
absl::Status CheckPieces(absl::string_view prefix,
                         absl::string_view text,
                         size_t limit) {
  bool in_string = false;
  size_t start = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (i - start > limit) {
      return absl::InvalidArgumentError(
          absl::StrCat(prefix,
                       in_string ? "the string" : "what follows the string",
                       " at byte ",
                       start,
                       " is longer than ",
                       limit,
                       " bytes"));
    }
    if (in_string && text[i] == '\\') {
      ++i;
    } else if (text[i] == '"') {
      in_string = !in_string;
      start = i;
    }
  }
  return absl::OkStatus();
}

}  // namespace

JsonLimits TightJsonLimits(absl::string_view text) {
  return {std::max(kMinPieceLimit, text.size() / 32), 8};
}

bool JsonEvents::Deeper() {
  if (++depth_ <= max_depth_) return true;
  const std::string field = Field();
  return Fail(absl::StrCat(prefix_,
                           field,
                           field.empty() ? "" : ": ",
                           "more than ",
                           max_depth_,
                           " levels deep"));
}

bool JsonEvents::Fail(std::string problem) {
  if (problem_.empty()) problem_ = std::move(problem);
  return false;
}

bool JsonEvents::parse_error(size_t position,
                             const std::string& /*token*/,
                             const nlohmann::json::exception& /*error*/) {
  return Fail(absl::StrCat(prefix_, "malformed JSON at byte ", position));
}

absl::Status ReadJson(absl::string_view field,
                      absl::string_view text,
                      const JsonLimits& limits,
                      JsonEvents* events) {
  events->prefix_ = field.empty() ? "" : absl::StrCat(field, ": ");
  events->max_depth_ = limits.depth;
  absl::Status status = CheckPieces(events->prefix_, text, limits.piece_bytes);
  if (!status.ok()) return status;
  // The parser would take it for the end and leave the rest unread.
  const size_t zero = text.find('\0');
  if (zero != absl::string_view::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat(events->prefix_, "malformed JSON at byte ", zero));
  }
  if (nlohmann::json::sax_parse(text.begin(), text.end(), events)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(events->problem_);
}

}  // namespace specwire
