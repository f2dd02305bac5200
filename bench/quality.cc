// SPDX-License-Identifier: Apache-2.0
// How far the int8 engine is from the float32 reference: perplexity, agreement
// of the likeliest token and divergence over a text, and where greedy
// completions part. Run from the repository's root; docs/performance.md has the
// last output.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "common/model/engine.h"
#include "common/text/tokenizer.h"

namespace specwire {
namespace {

using Tokens = std::vector<int32_t>;

struct Options {
  std::string model = "models/SmolLM2-135M-Instruct.Q4_1.gguf";
  std::string data = "tests/data/reference";
  std::vector<std::string> texts = {
      "LICENSE", "README.md", "CONTRIBUTING.md", "docs/design.md"};
  int threads = 1;
  int window = 512;
};

[[noreturn]] void Fail(absl::string_view what) {
  std::fprintf(stderr, "%s\n", std::string(what).c_str());
  std::exit(1);
}

std::unique_ptr<Engine> Load(const Options& options, const char* name) {
  EngineOptions engine_options;
  engine_options.engine = name;
  engine_options.num_threads = options.threads;
  auto engine = LoadEngine(options.model, engine_options);
  if (!engine.ok()) Fail(engine.status().message());
  return *std::move(engine);
}

std::vector<nlohmann::json> Rows(const std::string& path) {
  std::ifstream in(path);
  if (!in) Fail(absl::StrCat("cannot read ", path));
  std::vector<nlohmann::json> rows;
  for (std::string line; std::getline(in, line);) {
    rows.push_back(nlohmann::json::parse(line));
  }
  return rows;
}

// Logits of the last `wanted` tokens after appending all of `tokens`.
std::vector<float> Compute(Engine* engine,
                           KvSequence* kv,
                           absl::Span<const int32_t> tokens,
                           size_t wanted) {
  const ForwardRun run = {
      .kv = kv, .tokens = tokens, .num_logits = static_cast<int>(wanted)};
  const auto logits = engine->Forward({&run, 1});
  if (!logits.ok()) Fail(logits.status().message());
  return {logits->begin(), logits->end()};
}

// Log-probabilities of one row of logits.
std::vector<double> LogSoftmax(absl::Span<const float> logits) {
  const double top = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - top);
  const double shift = top + std::log(sum);
  std::vector<double> result;
  for (const float logit : logits) result.push_back(logit - shift);
  return result;
}

int32_t ArgMax(absl::Span<const float> row) {
  return static_cast<int32_t>(std::max_element(row.begin(), row.end()) -
                              row.begin());
}

struct Totals {
  int64_t tokens = 0;
  double reference_nll = 0;
  double int8_nll = 0;
  double divergence = 0;
  int64_t same_best = 0;

  void Print(const char* name) const {
    const double n = static_cast<double>(tokens);
    const double reference = std::exp(reference_nll / n);
    const double int8 = std::exp(int8_nll / n);
    std::printf(
        "%-34s %6lld tokens  perplexity reference %.4f  int8 %.4f  (%+.3f %%)  "
        "KL %.5f  same likeliest token %.4f\n",
        name,
        static_cast<long long>(tokens),
        reference,
        int8,
        100 * (int8 / reference - 1),
        divergence / n,
        static_cast<double>(same_best) / n);
  }

  void Add(const Totals& other) {
    tokens += other.tokens;
    reference_nll += other.reference_nll;
    int8_nll += other.int8_nll;
    divergence += other.divergence;
    same_best += other.same_best;
  }
};

class Comparison {
 public:
  explicit Comparison(const Options& options)
      : options_(options),
        reference_(Load(options, "reference")),
        int8_(Load(options, "int8")) {}

  // Scores every token but the first of each window.
  Totals Score(absl::Span<const int32_t> ids) const {
    Totals totals;
    const auto window = static_cast<size_t>(options_.window);
    for (size_t start = 0; start + 1 < ids.size(); start += window) {
      ScoreWindow(ids.subspan(start, window), &totals);
    }
    return totals;
  }

  Tokens Encode(const std::string& path) const {
    std::ifstream in(path);
    if (!in) Fail(absl::StrCat("cannot read ", path));
    std::stringstream text;
    text << in.rdbuf();
    auto tokenizer = Tokenizer::Create(int8_->tokenizer_model());
    if (!tokenizer.ok()) Fail(tokenizer.status().message());
    auto ids = (*tokenizer)->Encode(text.str(), SpecialTokens::kAsText);
    if (!ids.ok()) Fail(ids.status().message());
    return *std::move(ids);
  }

  // Greedy completions against the reference's own.
  void Greedy(const std::vector<nlohmann::json>& rows) const {
    int equal = 0;
    int near_tie = 0;
    int other = 0;
    double widest = 0;
    for (const auto& row : rows) {
      const Tokens prompt = row["prompt_ids"];
      const Tokens expected = row["completion_ids"];
      const size_t same = SameTokens(prompt, expected);
      if (same == expected.size()) {
        ++equal;
        continue;
      }
      const double gap = GapBehind(prompt, expected, same);
      widest = std::max(widest, gap);
      ++(gap <= 0.5 ? near_tie : other);
    }
    std::printf(
        "greedy: %d of %zu completions equal the reference's; %d part where "
        "its two best logits lie within 0.5; %d part elsewhere; widest gap "
        "%.3f\n",
        equal,
        rows.size(),
        near_tie,
        other,
        widest);
  }

 private:
  void ScoreWindow(absl::Span<const int32_t> ids, Totals* totals) const {
    if (ids.size() < 2) return;
    const auto inputs = ids.first(ids.size() - 1);
    const auto of_reference = reference_->NewSequence();
    const auto of_int8 = int8_->NewSequence();
    const auto a =
        Compute(reference_.get(), of_reference.get(), inputs, inputs.size());
    const auto b = Compute(int8_.get(), of_int8.get(), inputs, inputs.size());
    const auto width = static_cast<size_t>(int8_->info().vocab_size);
    for (size_t i = 0; i < inputs.size(); ++i) {
      const auto row_a = absl::MakeConstSpan(a).subspan(i * width, width);
      const auto row_b = absl::MakeConstSpan(b).subspan(i * width, width);
      const auto log_a = LogSoftmax(row_a);
      const auto log_b = LogSoftmax(row_b);
      const auto next = static_cast<size_t>(ids[i + 1]);
      ++totals->tokens;
      totals->reference_nll -= log_a[next];
      totals->int8_nll -= log_b[next];
      totals->same_best += ArgMax(row_a) == ArgMax(row_b) ? 1 : 0;
      for (size_t j = 0; j < width; ++j) {
        totals->divergence += std::exp(log_a[j]) * (log_a[j] - log_b[j]);
      }
    }
  }

  // How many of the expected tokens the int8 engine decodes.
  size_t SameTokens(const Tokens& prompt, const Tokens& expected) const {
    const auto kv = int8_->NewSequence();
    Tokens next = prompt;
    for (size_t i = 0; i < expected.size(); ++i) {
      const int32_t got = ArgMax(Compute(int8_.get(), kv.get(), next, 1));
      if (got != expected[i]) return i;
      next = {got};
    }
    return expected.size();
  }

  // The reference's best logit less its second best after some of the tokens.
  double GapBehind(Tokens text, const Tokens& expected, size_t count) const {
    text.insert(text.end(),
                expected.begin(),
                expected.begin() + static_cast<std::ptrdiff_t>(count));
    const auto kv = reference_->NewSequence();
    auto logits = Compute(reference_.get(), kv.get(), text, 1);
    std::partial_sort(
        logits.begin(), logits.begin() + 2, logits.end(), std::greater<>());
    return logits[0] - logits[1];
  }

  const Options options_;
  const std::unique_ptr<Engine> reference_;
  const std::unique_ptr<Engine> int8_;
};

int Main(int argc, char** argv) {
  Options options;
  CLI::App app{"Compares the int8 engine with the float32 reference."};
  app.add_option("--model", options.model, "GGUF file")->capture_default_str();
  app.add_option(
         "--data", options.data, "folder of perplexity and greedy.jsonl")
      ->capture_default_str();
  app.add_option("--texts", options.texts, "further text files")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--threads", options.threads, "threads")
      ->capture_default_str();
  app.add_option("--window", options.window, "tokens scored together")
      ->check(CLI::Range(2, 512))
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);

  const Comparison comparison(options);
  const auto greedy = Rows(options.data + "/greedy.jsonl");
  Totals all;
  Totals part;
  for (const auto& row : Rows(options.data + "/perplexity.jsonl")) {
    part.Add(comparison.Score(row["ids"].get<Tokens>()));
  }
  part.Print("perplexity.jsonl");
  all.Add(part);
  part = {};
  for (const auto& row : greedy) {
    Tokens ids = row["prompt_ids"];
    const Tokens completion = row["completion_ids"];
    ids.insert(ids.end(), completion.begin(), completion.end());
    part.Add(comparison.Score(ids));
  }
  part.Print("greedy.jsonl");
  all.Add(part);
  for (const std::string& path : options.texts) {
    part = comparison.Score(comparison.Encode(path));
    part.Print(path.c_str());
    all.Add(part);
  }
  all.Print("all");
  comparison.Greedy(greedy);
  return 0;
}

}  // namespace
}  // namespace specwire

int main(int argc, char** argv) { return specwire::Main(argc, argv); }
