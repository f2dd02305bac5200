// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/texts.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <set>

namespace specwire::cli::bench {
namespace {

constexpr char kChat[] = "chat";
constexpr absl::string_view kChatTopics[] = {"writing",
                                             "roleplay",
                                             "reasoning",
                                             "math",
                                             "coding",
                                             "extraction",
                                             "stem",
                                             "humanities",
                                             "mt_bench"};

}  // namespace

absl::string_view GroupOf(absl::string_view category) {
  const bool is_chat =
      std::find(std::begin(kChatTopics), std::end(kChatTopics), category) !=
      std::end(kChatTopics);
  return is_chat ? kChat : category;
}

double RepeatRate(const std::vector<int32_t>& prompt,
                  const std::vector<int32_t>& completion,
                  int length) {
  const ptrdiff_t num_runs =
      static_cast<ptrdiff_t>(completion.size()) - length + 1;
  if (num_runs <= 0) return 0;
  std::vector<int32_t> text = prompt;
  text.insert(text.end(), completion.begin(), completion.end());
  const ptrdiff_t num_all = static_cast<ptrdiff_t>(text.size()) - length + 1;
  std::set<std::vector<int32_t>> seen;
  int64_t num_repeated = 0;
  for (ptrdiff_t i = 0; i < num_all; ++i) {
    const bool is_new =
        seen.emplace(text.begin() + i, text.begin() + i + length).second;
    if (!is_new && i >= static_cast<ptrdiff_t>(prompt.size())) ++num_repeated;
  }
  return static_cast<double>(num_repeated) / static_cast<double>(num_runs);
}

}  // namespace specwire::cli::bench
