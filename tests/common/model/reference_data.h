// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/types/span.h"
#include "common/model/engine.h"

namespace specwire {

// What the default model computes, checked against tests/data/reference. The
// tolerances are those of that data for a float32 engine: 2e-3 for a logit or a
// log-probability, 98 for the sum of a row's logits, 0.1 % for a perplexity. A
// suite for another engine has its own SetUpTestSuite.
//
// Skipped, with a line that says so, where the model file is absent.
class ReferenceTest : public ::testing::Test {
 protected:
  using Tokens = std::vector<int32_t>;

  static void SetUpTestSuite() { LoadSuiteEngine("reference"); }
  static void LoadSuiteEngine(const std::string& name) {
    const std::string path =
        SPECWIRE_MODEL_DIR "/SmolLM2-135M-Instruct.Q4_1.gguf";
    if (!std::filesystem::exists(path)) {
      return;
    }
    EngineOptions options;
    options.engine = name;
    auto engine = LoadEngine(path, options);
    ASSERT_TRUE(engine.ok()) << engine.status();
    engine_ = engine->release();
  }
  static void TearDownTestSuite() {
    delete engine_;
    engine_ = nullptr;
  }
  void SetUp() override {
    if (engine_ == nullptr) {
      GTEST_SKIP() << "NOT TESTED: models/SmolLM2-135M-Instruct.Q4_1.gguf is "
                      "absent; scripts/setup.sh fetches it";
    }
  }

  static std::vector<nlohmann::json> Rows(const std::string& file) {
    std::ifstream in(SPECWIRE_TEST_DATA "/reference/" + file);
    std::vector<nlohmann::json> rows;
    for (std::string line; std::getline(in, line);) {
      rows.push_back(nlohmann::json::parse(line));
    }
    return rows;
  }

  // Appends tokens to a sequence; logits of the last `num_logits`.
  static std::vector<std::vector<float>> Compute(
      KvSequence* kv, absl::Span<const int32_t> tokens, size_t num_logits) {
    std::vector<std::vector<float>> rows;
    for (size_t done = 0; done < tokens.size();) {
      const auto part = tokens.subspan(done, Engine::kMaxRows);
      done += part.size();
      const size_t behind = tokens.size() - done;
      const size_t wanted =
          num_logits > behind ? std::min(num_logits - behind, part.size()) : 0;
      const ForwardRun run{kv, part, static_cast<int>(wanted)};
      const auto logits = engine_->Forward({&run, 1});
      EXPECT_TRUE(logits.ok()) << logits.status();
      const auto width = static_cast<size_t>(engine_->info().vocab_size);
      for (size_t i = 0; logits.ok() && i < logits->size(); i += width) {
        const auto row = logits->subspan(i, width);
        rows.emplace_back(row.begin(), row.end());
      }
    }
    return rows;
  }

  static double LogProbability(const std::vector<float>& logits, int32_t id) {
    const double top = *std::max_element(logits.begin(), logits.end());
    double sum = 0;
    for (const float logit : logits) {
      sum += std::exp(logit - top);
    }
    return logits[static_cast<size_t>(id)] - top - std::log(sum);
  }

  static int32_t ArgMax(const std::vector<float>& row) {
    return static_cast<int32_t>(std::max_element(row.begin(), row.end()) -
                                row.begin());
  }

  // Sum of the negative log-likelihoods of the last `count` of `ids`.
  static double Nll(absl::Span<const int32_t> ids, size_t count) {
    const auto kv = engine_->NewSequence();
    const auto logits = Compute(
        kv.get(), ids.first(ids.size() - 1), std::min(count, ids.size() - 1));
    double sum = 0;
    for (size_t i = 0; i < logits.size(); ++i) {
      sum -= LogProbability(logits[i], ids[ids.size() - logits.size() + i]);
    }
    return sum;
  }

  // Checks a row of greedy.jsonl in one pass over prompt and completion: the
  // arg-max at each position must be the next id.
  static void CheckGreedyInOnePass(const nlohmann::json& row) {
    Tokens text = row["prompt_ids"];
    const Tokens completion = row["completion_ids"];
    text.insert(text.end(), completion.begin(), completion.end() - 1);
    const auto kv = engine_->NewSequence();
    const auto logits = Compute(kv.get(), text, completion.size());
    ASSERT_EQ(logits.size(), completion.size());
    for (size_t i = 0; i < completion.size(); ++i) {
      const int32_t got = ArgMax(logits[i]);
      if (row["min_top2_gap"] > 1e-3) {
        ASSERT_EQ(got, completion[i])
            << "question " << row["question_id"] << ", token " << i;
      } else {
        ASSERT_NEAR(logits[i][static_cast<size_t>(got)],
                    logits[i][static_cast<size_t>(completion[i])],
                    4e-3);
      }
    }
  }

  // Decodes token by token.
  static void CheckGreedyDecoding(const nlohmann::json& row) {
    const Tokens expected = row["completion_ids"];
    const auto kv = engine_->NewSequence();
    Tokens next = row["prompt_ids"];
    Tokens got;
    while (got.size() < expected.size()) {
      next = {ArgMax(Compute(kv.get(), next, 1).at(0))};
      got.push_back(next[0]);
    }
    EXPECT_EQ(got, expected) << "question " << row["question_id"];
    if (row["finish"] == "stop") {
      EXPECT_EQ(got.back(), engine_->info().eos_ids.at(0));
    }
  }

  static void CheckPerplexity(const nlohmann::json& row) {
    const Tokens ids = row["ids"];
    const auto all = absl::MakeConstSpan(ids);
    double sum = 0;
    double count = 0;
    double expected = row["perplexity"];
    if (row["method"] == "single_window") {
      sum = Nll(all, ids.size());
      count = row["num_scored_tokens"];
    } else {
      for (const auto& window : row["windows"]) {
        const size_t begin = window["begin"];
        const size_t end = window["end"];
        const double nll =
            Nll(all.subspan(begin, end - begin), window["targets"]);
        EXPECT_NEAR(nll, window["nll_sum"], 0.001 * nll);
        sum += nll;
      }
      count = row["token_count"];
      expected = row["token_perplexity"];
    }
    EXPECT_NEAR(std::exp(sum / count), expected, 0.001 * expected);
  }

  // Owned by the suite, so that the model is loaded once.
  static inline Engine* engine_ = nullptr;
};

}  // namespace specwire
