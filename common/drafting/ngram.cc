// SPDX-License-Identifier: Apache-2.0
#include "common/drafting/ngram.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "common/base/common_length.h"
#include "common/base/stable_hash.h"

namespace specwire {
namespace {

// A text, and where in it the n-grams of one size end, by their hashes: the
// latest such place, and for each place the one before it. Extended and cut as
// the text is.
class NgramIndex {
 public:
  explicit NgramIndex(int n) : n_(static_cast<size_t>(n)) {}

  void SetText(absl::Span<const int32_t> text) {
    const size_t common = CommonLength(text_, text);
    while (text_.size() > common) RemoveLast();
    if (2 * text.size() > latest_.size()) Grow(text.size());
    for (const int32_t token : text.subspan(text_.size())) Append(token);
  }

  absl::Span<const int32_t> text() const { return text_; }

  // The last place before `end` where what ends has the hash of what ends at
  // `end`; 0: none. REQUIRES: 0 < end <= text().size().
  size_t Before(size_t end) const { return before_[end - 1]; }

 private:
  // Where the latest place of what ends at the text's end is kept.
  uint32_t* Latest() {
    uint64_t hash = 0;
    for (size_t i = text_.size() - n_; i < text_.size(); ++i) {
      hash = MixBits(hash + static_cast<uint32_t>(text_[i]) + 1);
    }
    return &latest_[hash & (latest_.size() - 1)];
  }

  void Append(int32_t token) {
    text_.push_back(token);
    uint32_t before = 0;
    if (text_.size() >= n_) {
      uint32_t* const latest = Latest();
      before = *latest;
      *latest = static_cast<uint32_t>(text_.size());
    }
    before_.push_back(before);
  }

  void RemoveLast() {
    if (text_.size() >= n_) *Latest() = before_.back();
    text_.pop_back();
    before_.pop_back();
  }

  // Makes room for a text of that size, and twice as much.
  void Grow(size_t size) {
    size_t slots = 64;
    while (slots < 4 * size) slots *= 2;
    latest_.assign(slots, 0);
    before_.clear();
    const std::vector<int32_t> text = std::exchange(text_, {});
    for (const int32_t token : text) Append(token);
  }

  const size_t n_;
  std::vector<int32_t> text_;
  // By the lower bits of the hash; 0: none.
  std::vector<uint32_t> latest_;
  // By place, less one.
  std::vector<uint32_t> before_;
};

// Index of the token that followed the best earlier occurrence of a suffix of
// the text; 0 if there is none.
size_t FindContinuation(const NgramIndex& index, const NgramOptions& options) {
  const absl::Span<const int32_t> text = index.text();
  const auto longest = static_cast<size_t>(options.max_ngram);
  size_t best = 0;
  size_t best_length = static_cast<size_t>(options.min_ngram) - 1;
  // `next` falls, so the most recent of equally long matches is kept.
  for (size_t next = index.Before(text.size()); next > best_length;
       next = index.Before(next)) {
    const size_t limit = std::min(longest, next);
    size_t length = 0;
    while (length < limit &&
           text[next - 1 - length] == text[text.size() - 1 - length]) {
      ++length;
    }
    if (length > best_length) {
      best = next;
      best_length = length;
      if (length == longest) break;
    }
  }
  return best;
}

class NgramSequence final : public DraftSequence {
 public:
  explicit NgramSequence(const NgramOptions& options)
      : options_(options), index_(options.min_ngram) {}

  absl::StatusOr<DraftRun> Propose(absl::Span<const int32_t> path,
                                   const DraftLimits& limits) override {
    DraftRun run;
    if (path.empty() || limits.max_tokens < 1) return run;
    index_.SetText(path);
    const size_t begin = FindContinuation(index_, options_);
    if (begin == 0) return run;
    const auto size = static_cast<size_t>(limits.max_tokens);
    run.tokens.reserve(size);
    for (size_t from = begin; from < begin + size; ++from) {
      run.tokens.push_back(from < path.size() ? path[from]
                                              : run.tokens[from - path.size()]);
    }
    return run;
  }

 private:
  const NgramOptions options_;
  NgramIndex index_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<NgramDrafter>> NgramDrafter::Create(
    const NgramOptions& options) {
  if (options.min_ngram < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("min_ngram must be at least 1, got ", options.min_ngram));
  }
  if (options.max_ngram < options.min_ngram) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_ngram must be at least min_ngram = ",
                     options.min_ngram,
                     ", got ",
                     options.max_ngram));
  }
  return absl::WrapUnique(new NgramDrafter(options));
}

std::unique_ptr<DraftSequence> NgramDrafter::NewSequence(
    const DraftSequenceParams&) {
  return std::make_unique<NgramSequence>(options_);
}

}  // namespace specwire
