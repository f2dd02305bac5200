// SPDX-License-Identifier: Apache-2.0
// What the int8 engine computes is pinned in tests/data/int8_digests.json, for
// every instruction set and number of threads: the only check that sees another
// compiler, C library or processor change a bit.
//
// A change of the numerics that is meant needs new digests and another
// numerics_version. This writes them, after checking that all instruction sets
// agree:
//   SPECWIRE_PRINT_DIGESTS=1 build/release/tests/int8_digest_test |
//     sed -n '/^{/,/^}/p' > new.json && mv new.json
//     tests/data/int8_digests.json
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/sha256.h"
#include "common/model/engine.h"
#include "common/sampling/coupled.h"
#include "common/sampling/logprobs.h"
#include "tests/common/model/engine_test_util.h"

namespace specwire {
namespace {

constexpr char kDigestFile[] = SPECWIRE_TEST_DATA "/int8_digests.json";
constexpr char kDefaultModel[] =
    SPECWIRE_MODEL_DIR "/SmolLM2-135M-Instruct.Q4_1.gguf";

// The parameters of the drawn tokens: all of the vocabulary, and what most of
// the pipeline leaves of it.
std::vector<SamplingParams> AllParams() {
  SamplingParams plain;
  plain.seed = 11;
  SamplingParams cut;
  cut.temperature = 0.7f;
  cut.top_k = 40;
  cut.top_p = 0.9f;
  cut.min_p = 0.02f;
  cut.repetition_penalty = 1.1f;
  cut.seed = -5;
  return {plain, cut};
}

std::string DigestOfFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  Sha256 digest;
  std::string piece(1 << 20, '\0');
  while (in.read(piece.data(), static_cast<std::streamsize>(piece.size())) ||
         in.gcount() > 0) {
    digest.Update(
        absl::string_view(piece).substr(0, static_cast<size_t>(in.gcount())));
  }
  return digest.FinishHex();
}

// Hashes logits, log-probabilities and drawn ids of some texts.
class Digester {
 public:
  explicit Digester(Engine* engine) : engine_(engine) {}

  // All rows of a prompt, in pieces of `rows`, then `count` drawn tokens under
  // each of AllParams().
  void Add(const Tokens& prompt, size_t rows, int count) {
    const auto kv = engine_->NewSequence();
    const auto text = absl::MakeConstSpan(prompt);
    LogitRow last;
    for (size_t done = 0; done < text.size();) {
      const auto part = text.subspan(done, rows);
      for (LogitRow& row : Compute(*engine_, kv.get(), part)) {
        AddRow(row, ++done < text.size() ? text[done] : 0);
        last = std::move(row);
      }
    }
    for (const SamplingParams& params : AllParams()) {
      kv->Truncate(static_cast<int>(prompt.size()));
      Draw(params, prompt, last, kv.get(), count);
    }
  }

  // `path` is the model's file.
  nlohmann::json Finish(const std::string& path) {
    return {{"file", DigestOfFile(path)},
            {"model", engine_->info().model_digest},
            {"logits", logits_.FinishHex()},
            {"log_probabilities", log_probabilities_.FinishHex()},
            {"drawn_ids", ids_.FinishHex()}};
  }

 private:
  void AddRow(const LogitRow& row, int32_t next) {
    logits_.Update(absl::string_view(reinterpret_cast<const char*>(row.data()),
                                     row.size() * sizeof(float)));
    PositionLogprobs read;
    reader_.Read(row, next, 5, &read);
    AddLogprob(read.chosen);
    for (const TokenLogprob& top : read.top) AddLogprob(top);
  }

  void AddLogprob(const TokenLogprob& logprob) {
    log_probabilities_.UpdateInt(logprob.token_id);
    log_probabilities_.Update(
        absl::string_view(reinterpret_cast<const char*>(&logprob.logprob),
                          sizeof(logprob.logprob)));
  }

  void Draw(const SamplingParams& params,
            Tokens text,
            LogitRow row,
            KvSequence* kv,
            int count) {
    CoupledSampler sampler(params,
                           0,
                           {.prompt_length = static_cast<int>(text.size()),
                            .min_tokens = 0,
                            .end_token_ids = {}});
    for (int i = 0; i < count; ++i) {
      const int32_t id = sampler.Choose(row, {.settled = text, .run = {}});
      ids_.UpdateInt(id);
      ASSERT_GE(id, 0);
      text.push_back(id);
      row = Compute(*engine_, kv, absl::MakeConstSpan(&id, 1)).at(0);
    }
  }

  Engine* const engine_;
  LogprobReader reader_;
  Sha256 logits_;
  Sha256 log_probabilities_;
  Sha256 ids_;
};

class Int8DigestTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    std::ifstream in(kDigestFile);
    ASSERT_TRUE(in) << kDigestFile;
    digests_ = new nlohmann::json(nlohmann::json::parse(in));
  }
  static void TearDownTestSuite() {
    if (print()) std::cout << digests_->dump(2) << std::endl;
    delete digests_;
    digests_ = nullptr;
  }

  static bool print() {
    const char* const asked = std::getenv("SPECWIRE_PRINT_DIGESTS");
    return asked != nullptr && *asked != '\0';
  }

  // Compares digests with those of the file; or puts the first ones there.
  static void Check(const std::string& model, const nlohmann::json& digest) {
    if (print() && !printed_.contains(model)) {
      (*digests_)[model] = digest;
      printed_[model] = true;
    }
    ASSERT_EQ(digest["file"], (*digests_)[model]["file"])
        << "the model is another one: its maker has changed, or (tiny) "
           "Python's own maths differ here";
    EXPECT_EQ(digest, (*digests_)[model]) << "see the head of this file";
  }

  static inline nlohmann::json* digests_ = nullptr;
  static inline nlohmann::json printed_ = nlohmann::json::object();
};

TEST_F(Int8DigestTest, TinyModel) {
  for (const EngineCase& engine : Int8Engines()) {
    for (const int threads : {1, 2}) {
      SCOPED_TRACE(absl::StrCat(engine.Name(), ", threads: ", threads));
      EngineOptions options;
      options.num_threads = threads;
      const auto loaded = Load(engine, SPECWIRE_TINY_MODEL, options);
      Digester digester(loaded.get());
      digester.Add(RandomTokens(41, 1), 1, 24);
      digester.Add(RandomTokens(42, 33), 5, 24);
      digester.Add(RandomTokens(43, 130), 100, 24);
      Check("tiny", digester.Finish(SPECWIRE_TINY_MODEL));
    }
  }
}

// What Llama's family does not use: windows, norms of heads and of branches,
// biases, another gate. Prompts longer than the windows.
TEST_F(Int8DigestTest, OtherFamilies) {
  for (const char* family : {"gemma3", "qwen2_window", "qwen3"}) {
    const std::string folder =
        absl::StrCat(SPECWIRE_TEST_DATA "/families/", family);
    for (const EngineCase& engine : Int8Engines()) {
      SCOPED_TRACE(absl::StrCat(family, ", ", engine.Name()));
      const auto loaded = Load(engine, folder);
      Digester digester(loaded.get());
      digester.Add(RandomTokens(45, 33), 5, 24);
      digester.Add(RandomTokens(46, 290), 100, 24);
      Check(family, digester.Finish(folder + "/model.safetensors"));
    }
  }
}

TEST_F(Int8DigestTest, DefaultModel) {
  if (!std::filesystem::exists(kDefaultModel)) {
    GTEST_SKIP() << "NOT TESTED: models/SmolLM2-135M-Instruct.Q4_1.gguf is "
                    "absent; scripts/setup.sh fetches it";
  }
  // The start of a chat, and ids at random.
  const Tokens chat = {1, 9690, 198, 2683, 359, 253, 5356, 5646, 11173, 3365};
  const Tokens noise = RandomTokens(44, 27, 49152);
  for (const EngineCase& engine : Int8Engines()) {
    for (const int threads : {1, 2}) {
      // Scalar code takes seconds.
      if (engine.isa == "scalar" && threads > 1) continue;
      SCOPED_TRACE(absl::StrCat(engine.Name(), ", threads: ", threads));
      EngineOptions options;
      options.num_threads = threads;
      options.max_model_len = 64;
      const auto loaded = Load(engine, kDefaultModel, options);
      Digester digester(loaded.get());
      digester.Add(chat, 4, 4);
      digester.Add(noise, 27, 2);
      Check("SmolLM2-135M-Instruct.Q4_1", digester.Finish(kDefaultModel));
    }
  }
}

}  // namespace
}  // namespace specwire
