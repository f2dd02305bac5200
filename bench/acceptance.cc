// SPDX-License-Identifier: Apache-2.0
// What a drafter is worth on texts of the target, by exact replay without a
// verifier: survival by position, tokens a pass, and whether its own estimates
// are honest. Writes the accept traces that simulate_bench replays.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "bench/simulate/replay.h"
#include "bench/simulate/trace.h"
#include "cli/bench/texts.h"
#include "common/drafting/draft_path.h"
#include "common/model/engine.h"
#include "draft_node/make_drafter.h"

namespace specwire::replay {
namespace {

constexpr int kBins = 10;
constexpr char kAll[] = "all";

struct Flags {
  std::string texts;
  draft::DrafterOptions drafter;
  int run_length = 4;
  float min_survival = 0;
  int vocab_size = 49152;
  std::string record;
  bool json = false;
};

// Draft tokens whose survival was estimated, and what became of them.
struct Bin {
  int64_t count = 0;
  double predicted = 0;
  int64_t right = 0;
};

// Of one category, or of all.
struct Tally {
  int64_t num_texts = 0;
  int64_t num_tokens = 0;
  int64_t num_passes = 0;
  int64_t num_answered = 0;
  int64_t num_drafted = 0;
  int64_t num_model = 0;
  double repeat_rate = 0;
  // Passes whose first 1, 2, ... draft tokens were right.
  std::vector<int64_t> survived;
  std::array<Bin, kBins> bins;
  std::vector<double> proposal_us;

  double tokens_per_pass() const {
    return static_cast<double>(num_tokens) / static_cast<double>(num_passes);
  }
  double Share(int64_t count) const {
    return static_cast<double>(count) / static_cast<double>(num_passes);
  }
  Bin sum() const {
    Bin sum;
    for (const Bin& bin : bins) {
      sum.count += bin.count;
      sum.predicted += bin.predicted;
      sum.right += bin.right;
    }
    return sum;
  }
  double Percentile(double part) const {
    std::vector<double> sorted = proposal_us;
    if (sorted.empty()) return 0;
    std::sort(sorted.begin(), sorted.end());
    const double at = part * static_cast<double>(sorted.size() - 1);
    return sorted[static_cast<size_t>(std::lround(at))];
  }
};

[[noreturn]] void Fail(const absl::Status& status) {
  std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  std::exit(1);
}

template <typename T>
T Get(absl::StatusOr<T> value) {
  if (!value.ok()) Fail(value.status());
  return *std::move(value);
}

// As a draft node does.
void Cut(float min_survival, Answer* answer) {
  CutRun(min_survival, &answer->run);
  answer->right =
      std::min(answer->right, static_cast<int>(answer->run.tokens.size()));
}

void Count(const Answer& answer, int num_committed, Tally* tally) {
  tally->num_tokens += num_committed;
  ++tally->num_passes;
  if (!answer.run.tokens.empty()) ++tally->num_answered;
  if (answer.model) ++tally->num_model;
  tally->num_drafted += static_cast<int64_t>(answer.run.tokens.size());
  for (int i = 0; i < answer.right; ++i) {
    ++tally->survived[static_cast<size_t>(i)];
  }
  for (size_t i = 0; i < answer.run.survival.size(); ++i) {
    const double predicted = answer.run.survival[i];
    const int bin =
        std::clamp(static_cast<int>(predicted * kBins), 0, kBins - 1);
    Bin& into = tally->bins[static_cast<size_t>(bin)];
    ++into.count;
    into.predicted += predicted;
    into.right += static_cast<int>(i) < answer.right ? 1 : 0;
  }
  tally->proposal_us.push_back(absl::ToDoubleMicroseconds(answer.time));
}

// Walks a text as a verifier would: draft tokens up to the first wrong one, and
// one of its own.
void Walk(const Flags& flags,
          Drafter* drafter,
          const Text& text,
          const std::vector<Tally*>& tallies) {
  for (Tally* tally : tallies) {
    tally->survived.resize(static_cast<size_t>(flags.run_length));
    ++tally->num_texts;
    tally->repeat_rate += cli::bench::RepeatRate(text.prompt, text.completion);
  }
  Replay replay(drafter, &text);
  const int size = static_cast<int>(text.completion.size());
  // The first token comes with the prompt.
  for (int at = 1; at < size;) {
    Answer answer = Get(replay.At(at, flags.run_length));
    Cut(flags.min_survival, &answer);
    const int committed = std::min(answer.right + 1, size - at);
    for (Tally* tally : tallies) Count(answer, committed, tally);
    at += committed;
  }
}

void PrintTable(const std::map<std::string, Tally>& tallies) {
  std::printf("%-16s %6s %7s %7s %7s %8s %8s %9s %9s  survival\n",
              "category",
              "texts",
              "tokens",
              "repeat",
              "tok/pas",
              "answered",
              "drafted",
              "predicted",
              "accepted");
  for (const auto& [name, tally] : tallies) {
    const Bin sum = tally.sum();
    std::printf("%-16s %6lld %7lld %7.3f %7.3f %8.3f %8.2f ",
                name.c_str(),
                static_cast<long long>(tally.num_texts),
                static_cast<long long>(tally.num_tokens),
                tally.repeat_rate / static_cast<double>(tally.num_texts),
                tally.tokens_per_pass(),
                tally.Share(tally.num_answered),
                tally.Share(tally.num_drafted));
    if (sum.count > 0) {
      std::printf("%9.3f ",
                  sum.predicted / static_cast<double>(tally.num_passes));
    } else {
      std::printf("%9s ", "-");
    }
    std::printf("%9.3f ", tally.tokens_per_pass() - 1);
    for (const int64_t survived : tally.survived) {
      std::printf(" %.3f", tally.Share(survived));
    }
    std::printf("\n");
  }
}

void PrintHonesty(const Tally& tally) {
  std::printf("\nestimated survival against what was seen\n");
  for (const Bin& bin : tally.bins) {
    if (bin.count == 0) continue;
    const double count = static_cast<double>(bin.count);
    std::printf("  %8lld tokens: estimated %.3f, seen %.3f\n",
                static_cast<long long>(bin.count),
                bin.predicted / count,
                static_cast<double>(bin.right) / count);
  }
}

void PrintJson(const std::string& drafter,
               int run_length,
               const std::map<std::string, Tally>& tallies) {
  nlohmann::ordered_json json = {{"drafter", drafter},
                                 {"run_length", run_length}};
  for (const auto& [name, tally] : tallies) {
    nlohmann::ordered_json& one = json["categories"][name];
    const Bin sum = tally.sum();
    one["texts"] = tally.num_texts;
    one["tokens"] = tally.num_tokens;
    one["passes"] = tally.num_passes;
    one["repeat_rate"] =
        tally.repeat_rate / static_cast<double>(tally.num_texts);
    one["tokens_per_pass"] = tally.tokens_per_pass();
    one["answered"] = tally.Share(tally.num_answered);
    one["drafted_per_pass"] = tally.Share(tally.num_drafted);
    one["model_share"] = tally.Share(tally.num_model);
    if (sum.count > 0) {
      one["predicted_per_pass"] =
          sum.predicted / static_cast<double>(tally.num_passes);
    }
    for (const int64_t survived : tally.survived) {
      one["survival"].push_back(tally.Share(survived));
    }
    one["proposal_us"] = {{"p50", tally.Percentile(.5)},
                          {"p99", tally.Percentile(.99)}};
    for (const Bin& bin : tally.bins) {
      if (bin.count == 0) continue;
      one["estimates"].push_back(
          {{"count", bin.count},
           {"estimated", bin.predicted / static_cast<double>(bin.count)},
           {"seen",
            static_cast<double>(bin.right) / static_cast<double>(bin.count)}});
    }
  }
  std::printf("%s\n", json.dump(1).c_str());
}

void WriteTraces(const Flags& flags, const std::vector<Text>& texts) {
  std::ofstream out(flags.record, std::ios::out | std::ios::trunc);
  if (!out) {
    Fail(absl::NotFoundError(
        absl::StrCat("--record: cannot write ", flags.record)));
  }
  // Another one: the first has seen the texts.
  const std::unique_ptr<Drafter> drafter = Get(MakeDrafter(flags.drafter));
  for (const Text& text : texts) {
    out << simulate::FormatTrace(Get(Record(drafter.get(), text))) << "\n";
  }
  out.close();
  if (!out) Fail(absl::DataLossError("--record: could not be written"));
}

void AddFlags(CLI::App* app, Flags* flags) {
  app->add_option("--texts",
                  flags->texts,
                  "JSON lines with category, prompt_token_ids and token_ids, "
                  "as `specwire bench --raw` writes them")
      ->required();
  app->add_option("--drafter", flags->drafter.name, "As draft_node's")
      ->required();
  app->add_option("--draft_model", flags->drafter.model, "As draft_node's");
  app->add_option(
      "--draft_layers", flags->drafter.engine.num_layers, "As draft_node's");
  app->add_option("--engine", flags->drafter.engine.engine, "As draft_node's");
  app->add_option(
      "--kv_cache_mib", flags->drafter.engine.kv_cache_mib, "As draft_node's");
  app->add_option(
      "--threads", flags->drafter.engine.num_threads, "As draft_node's");
  app->add_option("--run_length", flags->run_length, "Most tokens of a run")
      ->check(CLI::Range(1, kMaxRunLength));
  app->add_option("--min_survival",
                  flags->min_survival,
                  "Cuts runs before the first token that is estimated lower")
      ->check(CLI::Range(0.0, 0.999));
  app->add_option(
         "--vocab_size", flags->vocab_size, "Tokens in the target's vocabulary")
      ->check(CLI::PositiveNumber);
  app->add_option("--record",
                  flags->record,
                  "Write accept traces for simulate_bench to this file");
  app->add_flag("--json", flags->json, "Print JSON");
}

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app("What a drafter is worth on given texts");
  AddFlags(&app, &flags);
  CLI11_PARSE(app, argc, argv);
  if (const absl::Status status = CheckDrafterOptions(flags.drafter);
      !status.ok()) {
    Fail(status);
  }
  std::ifstream file(flags.texts);
  if (!file) {
    Fail(absl::NotFoundError(
        absl::StrCat("--texts: cannot read ", flags.texts)));
  }
  std::vector<Text> texts = Get(ReadTexts(&file, flags.texts));
  for (Text& text : texts) text.vocab_size = flags.vocab_size;
  const std::unique_ptr<Drafter> drafter = Get(MakeDrafter(flags.drafter));
  std::map<std::string, Tally> tallies;
  for (const Text& text : texts) {
    Walk(flags, drafter.get(), text, {&tallies[text.category], &tallies[kAll]});
  }
  const Tally& all = tallies.at(kAll);
  if (flags.json) {
    PrintJson(flags.drafter.name, flags.run_length, tallies);
  } else {
    PrintTable(tallies);
    if (all.sum().count > 0) PrintHonesty(all);
    std::printf("\nprocessor time of a proposal: p50 %.1f us, p99 %.1f us\n",
                all.Percentile(.5),
                all.Percentile(.99));
  }
  if (!flags.record.empty()) WriteTraces(flags, texts);
  return 0;
}

}  // namespace
}  // namespace specwire::replay

int main(int argc, char** argv) { return specwire::replay::Main(argc, argv); }
