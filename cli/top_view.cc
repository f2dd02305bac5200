// SPDX-License-Identifier: Apache-2.0
#include "cli/top_view.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "cli/node_text.h"
#include "cli/table.h"
#include "common/drafting/drafter_names.h"

namespace specwire::cli {
namespace {

constexpr char kNone[] = "-";

// Two counts of the same thing, the earlier one if there is any to compare.
struct Change {
  int64_t now = 0;
  std::optional<int64_t> before;

  std::optional<int64_t> difference() const {
    if (!before.has_value()) return std::nullopt;
    return std::max<int64_t>(now - *before, 0);
  }
};

class Frame {
 public:
  Frame(const Reading& now, const Reading* before)
      : now_(now),
        before_(before != nullptr && before->time < now.time &&
                        !WasRestarted(*before, now)
                    ? before
                    : nullptr) {}

  std::vector<std::string> Lines() const {
    std::vector<std::string> lines = {RequestLine(), TokenLine(), DraftLine()};
    AddTable("NODES", NodeRows(), &lines);
    AddTable("DRAFTS", PairRows(), &lines);
    return lines;
  }

 private:
  template <class Value>
  Change Of(Value value) const {
    Change change;
    change.now = static_cast<int64_t>(value(now_.stats));
    if (before_ != nullptr) {
      change.before = static_cast<int64_t>(value(before_->stats));
    }
    return change;
  }

  std::string Rate(const Change& change) const {
    const std::optional<int64_t> difference = change.difference();
    if (!difference.has_value()) return kNone;
    return absl::StrFormat(
        "%.1f/s",
        static_cast<double>(*difference) /
            absl::ToDoubleSeconds(now_.time - before_->time));
  }

  static std::string Share(int64_t part, int64_t whole) {
    return whole > 0 ? absl::StrFormat("%.1f %%",
                                       100 * static_cast<double>(part) /
                                           static_cast<double>(whole))
                     : kNone;
  }
  // Since the earlier reading.
  static std::string LatelyShare(const Change& part, const Change& whole) {
    if (!part.before.has_value()) return kNone;
    return Share(*part.difference(), *whole.difference());
  }

  std::string RequestLine() const {
    const auto sum = [](const auto& counts) {
      int64_t total = 0;
      for (const v1::NamedCount& count : counts) total += count.count();
      return total;
    };
    const Change done =
        Of([&](const auto& stats) { return sum(stats.requests()); });
    // Who gives up a request has not seen it fail.
    const auto is_cancelled = [](const v1::NamedCount& count) {
      return count.name() == "CANCELLED";
    };
    const auto failures = [&](const auto& stats, bool cancelled) {
      int64_t total = 0;
      for (const v1::NamedCount& count : stats.failures()) {
        if (is_cancelled(count) == cancelled) total += count.count();
      }
      return total;
    };
    const Change failed =
        Of([&](const auto& stats) { return failures(stats, false); });
    const Change cancelled =
        Of([&](const auto& stats) { return failures(stats, true); });
    return absl::StrCat("requests  ",
                        now_.stats.num_requests_running(),
                        " running, ",
                        now_.stats.num_requests_waiting(),
                        " waiting; ",
                        done.now,
                        " done (",
                        Rate(done),
                        "), ",
                        failed.now,
                        " failed (",
                        Rate(failed),
                        "), ",
                        cancelled.now,
                        " cancelled (",
                        Rate(cancelled),
                        ")");
  }

  std::string TokenLine() const {
    const Change generated =
        Of([](const auto& stats) { return stats.num_generation_tokens(); });
    const Change prompts =
        Of([](const auto& stats) { return stats.num_prompt_tokens(); });
    const Change passes =
        Of([](const auto& stats) { return stats.total().num_passes(); });
    return absl::StrCat("tokens    ",
                        Rate(generated),
                        " generated, ",
                        Rate(prompts),
                        " of prompts; ",
                        Rate(passes),
                        " verify passes");
  }

  std::string DraftLine() const {
    const Change accepted = Of([](const auto& stats) {
      return stats.total().num_accepted_draft_tokens();
    });
    const Change verified =
        Of([](const auto& stats) { return stats.total().num_draft_tokens(); });
    return absl::StrCat(
        "drafts    ",
        LatelyShare(accepted, verified),
        " accepted lately, ",
        Share(accepted.now, verified.now),
        " in all; mean length ",
        absl::StrFormat("%.2f", now_.stats.total().mean_acceptance_length()));
  }

  std::vector<TableRow> NodeRows() const {
    std::vector<TableRow> rows = {{"NAME",
                                   "ROLE",
                                   "STATE",
                                   "SEQ",
                                   "WAIT",
                                   "KV",
                                   "KEPT",
                                   "SERVES",
                                   "REASON"}};
    for (const v1::Node& node : now_.nodes.nodes()) {
      const v1::NodeLoad& load = node.load();
      const auto share = [&](int64_t blocks) {
        return IsGone(node) ? kNone : Share(blocks, load.kv_blocks_total());
      };
      rows.push_back({Escaped(node.registration().name()),
                      RoleName(node),
                      StateName(node),
                      LoadText(node, load.num_sequences()),
                      LoadText(node, load.num_waiting()),
                      share(load.kv_blocks_used()),
                      share(load.kv_blocks_cached()),
                      Escaped(Serves(node)),
                      Escaped(node.reason())});
    }
    return rows;
  }

  // Kind of a draft node's drafter; the verifier's own has the node's name.
  std::string DrafterOf(const std::string& draft_node) const {
    if (draft_node == kLocalDrafter) return kLocalDrafter;
    for (const v1::Node& node : now_.nodes.nodes()) {
      if (node.registration().name() == draft_node && !node.drafter().empty()) {
        return Escaped(node.drafter());
      }
    }
    return kNone;
  }

  std::vector<TableRow> PairRows() const {
    using Key = std::pair<std::string, std::pair<std::string, std::string>>;
    const auto key = [](const v1::PairStats& pair) {
      return Key{pair.draft_node(), {pair.verifier_node(), pair.model()}};
    };
    std::map<Key, v1::SpeculationStats> before;
    if (before_ != nullptr) {
      for (const v1::PairStats& pair : before_->stats.pairs()) {
        before[key(pair)] = pair.stats();
      }
    }
    std::vector<TableRow> rows = {{"DRAFTER",
                                   "NODE",
                                   "VERIFIER",
                                   "DRAFTED",
                                   "ACCEPTED",
                                   "RATE",
                                   "IN ALL",
                                   "LENGTH"}};
    for (const v1::PairStats& pair : now_.stats.pairs()) {
      const v1::SpeculationStats& now = pair.stats();
      // A pair that is new has counted from 0.
      const v1::SpeculationStats& then = before[key(pair)];
      const auto change = [&](int64_t value, int64_t earlier) {
        Change made = {.now = value, .before = std::nullopt};
        if (before_ != nullptr) made.before = earlier;
        return made;
      };
      const Change accepted = change(now.num_accepted_draft_tokens(),
                                     then.num_accepted_draft_tokens());
      const Change verified =
          change(now.num_draft_tokens(), then.num_draft_tokens());
      const Change drafted =
          change(now.num_drafted_tokens(), then.num_drafted_tokens());
      rows.push_back({DrafterOf(pair.draft_node()),
                      Escaped(pair.draft_node()),
                      Escaped(pair.verifier_node()),
                      Rate(drafted),
                      Rate(accepted),
                      LatelyShare(accepted, verified),
                      Share(accepted.now, verified.now),
                      absl::StrFormat("%.2f", now.mean_acceptance_length())});
    }
    return rows;
  }

  static void AddTable(absl::string_view title,
                       const std::vector<TableRow>& rows,
                       std::vector<std::string>* lines) {
    lines->push_back("");
    if (rows.size() == 1) {
      lines->push_back(absl::StrCat(title, ": none"));
      return;
    }
    std::vector<std::string> table = absl::StrSplit(TableText(rows), '\n');
    // Behind the last line break there is nothing.
    table.pop_back();
    lines->insert(lines->end(), table.begin(), table.end());
  }

  const Reading& now_;
  // Null: nothing to compare with.
  const Reading* const before_;
};

}  // namespace

bool WasRestarted(const Reading& before, const Reading& now) {
  return now.stats.uptime_ms() < before.stats.uptime_ms();
}

std::vector<std::string> FrameLines(const Reading& now, const Reading* before) {
  return Frame(now, before).Lines();
}

std::vector<std::string> Fit(std::vector<std::string> lines,
                             int width,
                             int height) {
  const auto most = static_cast<size_t>(std::max(height, 0));
  if (most > 0 && lines.size() > most) {
    const size_t hidden = lines.size() - most + 1;
    lines.resize(most - 1);
    lines.push_back(absl::StrCat("... ", hidden, " more lines"));
  }
  if (width > 0) {
    for (std::string& line : lines) {
      if (line.size() > static_cast<size_t>(width)) {
        line.resize(static_cast<size_t>(width));
      }
    }
  }
  return lines;
}

}  // namespace specwire::cli
