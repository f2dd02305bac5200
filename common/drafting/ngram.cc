// SPDX-License-Identifier: Apache-2.0
#include "common/drafting/ngram.h"

#include <algorithm>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"

namespace specwire {
namespace {

// Index of the token that followed the best earlier occurrence of a suffix of
// `path`; 0 if there is none.
size_t FindContinuation(absl::Span<const int32_t> path,
                        const NgramOptions& options) {
  const size_t size = path.size();
  const size_t longest = static_cast<size_t>(options.max_ngram);
  size_t best = 0;
  size_t best_length = static_cast<size_t>(options.min_ngram) - 1;
  // `next` falls, so the most recent of equally long matches is kept.
  for (size_t next = size - 1; next > best_length; --next) {
    const size_t limit = std::min(longest, next);
    size_t length = 0;
    while (length < limit &&
           path[next - 1 - length] == path[size - 1 - length]) {
      ++length;
    }
    if (length > best_length) {
      best = next;
      best_length = length;
      if (length == longest) {
        break;
      }
    }
  }
  return best;
}

class NgramSequence final : public DraftSequence {
 public:
  explicit NgramSequence(const NgramOptions& options) : options_(options) {}

  absl::StatusOr<DraftRun> Propose(absl::Span<const int32_t> path,
                                   int max_tokens) override {
    DraftRun run;
    if (path.empty() || max_tokens < 1) {
      return run;
    }
    const size_t begin = FindContinuation(path, options_);
    if (begin == 0) {
      return run;
    }
    run.tokens.reserve(static_cast<size_t>(max_tokens));
    for (size_t i = 0; i < static_cast<size_t>(max_tokens); ++i) {
      const size_t from = begin + i;
      run.tokens.push_back(from < path.size() ? path[from]
                                              : run.tokens[from - path.size()]);
    }
    return run;
  }

 private:
  const NgramOptions options_;
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
