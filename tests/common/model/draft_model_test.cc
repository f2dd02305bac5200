// SPDX-License-Identifier: Apache-2.0
#include "common/model/draft_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/model/gguf.h"
#include "common/text/tokenizer.h"
#include "tests/common/model/engine_test_util.h"
#include "tests/common/model/tiny_file.h"

namespace specwire {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kFingerprint[] = "specwire.draft.vocabulary_fingerprint";
constexpr char kHeadTokenIds[] = "specwire.draft.head_token_ids";

// The tiny model as a draft model with a head for these tokens.
TinyFile DraftFile(const std::vector<int64_t>& head) {
  TinyFile tiny;
  tiny.tokens.clear();
  for (const char* key :
       {"tokenizer.ggml.bos_token_id", "tokenizer.ggml.eos_token_id"}) {
    tiny.ints.erase(key);
  }
  for (const char* key : {"tokenizer.ggml.model",
                          "tokenizer.ggml.pre",
                          "tokenizer.chat_template"}) {
    tiny.strings.erase(key);
  }
  tiny.ints["llama.vocab_size"] = 320;
  tiny.strings[kFingerprint] = std::string(64, 'a');
  tiny.int_arrays[kHeadTokenIds] = head;
  const TinyFile::Tensor& embedding = tiny.tensors.at("token_embd.weight");
  const auto row_bytes =
      embedding.data.size() / static_cast<size_t>(embedding.shape[0]);
  TinyFile::Tensor output = {
      .type = embedding.type,
      .shape = {static_cast<int64_t>(head.size()), embedding.shape[1]},
      .data = {}};
  for (const int64_t id : head) {
    output.data +=
        embedding.data.substr(static_cast<size_t>(id) * row_bytes, row_bytes);
  }
  tiny.tensors["output.weight"] = std::move(output);
  return tiny;
}

EngineOptions Drafting() {
  EngineOptions options;
  options.allow_draft_model = true;
  return options;
}

absl::Status LoadStatus(const TinyFile& file) {
  return LoadEngine(file.Write("draft"), Drafting()).status();
}

absl::StatusOr<std::optional<DraftModelInfo>> ReadFile(
    const std::string& path) {
  const auto file = GgufFile::Open(path);
  EXPECT_TRUE(file.ok()) << file.status();
  return ReadDraftModelInfo(**file);
}

TEST(DraftModelTest, AFileWithATokenizerIsNone) {
  const auto info = ReadFile(SPECWIRE_TINY_MODEL);
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_FALSE(info->has_value());
}

TEST(DraftModelTest, ReadsWhatTheFileSays) {
  const auto info = ReadFile(SPECWIRE_TINY_DRAFT_MODEL);
  ASSERT_TRUE(info.ok()) << info.status();
  ASSERT_TRUE(info->has_value());
  EXPECT_EQ((*info)->vocab_size, 320);
  EXPECT_EQ((*info)->head_token_ids.size(), 200u);
  EXPECT_EQ((*info)->name, "tiny");
  EXPECT_EQ((*info)->description, "The tiny model with a trimmed head.");
  EXPECT_EQ((*info)->target, "tiny");
  EXPECT_EQ((*info)->target_digest, std::string(64, '0'));
  EXPECT_EQ((*info)->training_tokens, 7);
  EXPECT_EQ((*info)->training_steps, 5);
  EXPECT_EQ((*info)->data, "noise");
  // It is the one of the vocabulary that it was made for.
  const auto target = Load(EngineCase{}, SPECWIRE_TINY_MODEL);
  const auto tokenizer = Tokenizer::Create(target->tokenizer_model());
  ASSERT_TRUE(tokenizer.ok());
  EXPECT_EQ((*info)->vocabulary_fingerprint, (*tokenizer)->fingerprint());
}

TEST(DraftModelTest, AHeadOfAllTokensIsNotTrimmed) {
  std::vector<int64_t> all;
  for (int64_t id = 0; id < 320; ++id) all.push_back(id);
  const auto info = ReadFile(DraftFile(all).Write("whole"));
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_THAT((*info)->head_token_ids, IsEmpty());
  EXPECT_TRUE(LoadStatus(DraftFile(all)).ok());
}

TEST(DraftModelTest, TheCardAndTheTrimmedHeadMayBeMissing) {
  TinyFile file = DraftFile({1, 5});
  file.int_arrays.clear();
  file.tensors.erase("output.weight");
  file.strings.erase("general.name");
  const auto engine = Load(EngineCase{}, file.Write("no_card"), Drafting());
  ASSERT_NE(engine, nullptr);
  ASSERT_TRUE(engine->info().draft.has_value());
  EXPECT_EQ(engine->info().draft->name, "");
  EXPECT_EQ(engine->info().draft->training_tokens, 0);
  EXPECT_EQ(engine->info().num_logits(), 320);
}

TEST(DraftModelTest, RefusesWhatDoesNotFitTogether) {
  const struct {
    const char* what;
    std::function<void(TinyFile&)> change;
    std::vector<const char*> said;
  } cases[] = {
      {"no ids",
       [](TinyFile& f) { f.int_arrays[kHeadTokenIds] = {}; },
       {kHeadTokenIds, "has no elements"}},
      {"twice",
       [](TinyFile& f) {
         f.int_arrays[kHeadTokenIds] = {3, 8, 8};
       },
       {kHeadTokenIds, "element 2: 8 is not above 8"}},
      {"descending",
       [](TinyFile& f) {
         f.int_arrays[kHeadTokenIds] = {3, 8, 7};
       },
       {kHeadTokenIds, "element 2: 7 is not above 8"}},
      {"outside",
       [](TinyFile& f) {
         f.int_arrays[kHeadTokenIds] = {3, 8, 320};
       },
       {kHeadTokenIds, "element 2: 320 is not in [0, 320)"}},
      {"no numbers",
       [](TinyFile& f) {
         f.int_arrays.clear();
         f.strings[kHeadTokenIds] = "3,8,9";
       },
       {kHeadTokenIds, "not an array of integers"}},
      {"fewer rows",
       [](TinyFile& f) {
         f.int_arrays[kHeadTokenIds] = {3, 8, 9, 20};
       },
       {"tensor output.weight", "[4, 64]", kHeadTokenIds}},
      {"more rows",
       [](TinyFile& f) {
         f.int_arrays[kHeadTokenIds] = {3, 8};
       },
       {"tensor output.weight", "[2, 64]", kHeadTokenIds}},
      {"no rows",
       [](TinyFile& f) { f.tensors.erase("output.weight"); },
       {"tensor output.weight", "is absent", "[3, 64]"}},
      {"no fingerprint",
       [](TinyFile& f) { f.strings.erase(kFingerprint); },
       {kHeadTokenIds, "needs", kFingerprint}},
      {"a short fingerprint",
       [](TinyFile& f) { f.strings[kFingerprint].pop_back(); },
       {kFingerprint, "64 lower-case hexadecimal digits"}},
      {"upper case",
       [](TinyFile& f) { f.strings[kFingerprint][9] = 'A'; },
       {kFingerprint, "64 lower-case hexadecimal digits"}},
      {"a tokenizer",
       [](TinyFile& f) { f.strings["tokenizer.ggml.model"] = "gpt2"; },
       {kFingerprint, "tokenizer.ggml.model"}},
      {"no vocabulary",
       [](TinyFile& f) { f.ints.erase("llama.vocab_size"); },
       {"llama.vocab_size"}},
      {"too large a vocabulary",
       [](TinyFile& f) { f.ints["llama.vocab_size"] = (1 << 20) + 1; },
       {"llama.vocab_size", "1048576"}},
      {"too few embeddings",
       [](TinyFile& f) { f.ints["llama.vocab_size"] = 321; },
       {"tensor token_embd.weight", "[321 or more, 64]"}},
      {"no count",
       [](TinyFile& f) { f.strings["specwire.draft.training_steps"] = "5"; },
       {"specwire.draft.training_steps"}},
  };
  for (const auto& [what, change, said] : cases) {
    SCOPED_TRACE(what);
    TinyFile file = DraftFile({3, 8, 9});
    ASSERT_TRUE(LoadStatus(file).ok());
    change(file);
    const absl::Status status = LoadStatus(file);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    for (const char* part : said) {
      EXPECT_THAT(std::string(status.message()), HasSubstr(part));
    }
  }
}

TEST(DraftModelTest, IsNothingThatAVerifierCanServe) {
  const absl::Status status =
      LoadEngine(SPECWIRE_TINY_DRAFT_MODEL, EngineOptions()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("is a draft model for tiny"));
}

TEST(DraftModelTest, ItsDigestCoversTheHead) {
  const auto digest = [](const TinyFile& file) {
    return Load(EngineCase{}, file.Write("digest"), Drafting())
        ->info()
        .model_digest;
  };
  TinyFile file = DraftFile({3, 8, 9});
  const std::string before = digest(file);
  EXPECT_EQ(digest(DraftFile({3, 8, 9})), before);
  file.int_arrays[kHeadTokenIds] = {3, 8, 10};
  EXPECT_NE(digest(file), before);
  file = DraftFile({3, 8, 9});
  file.strings[kFingerprint] = std::string(64, 'b');
  EXPECT_NE(digest(file), before);
}

class TrimmedEngineTest : public ::testing::TestWithParam<EngineCase> {};

TEST_P(TrimmedEngineTest, ItsLogitsAreThoseOfTheWholeModelsRows) {
  if (!IsSupported(GetParam())) GTEST_SKIP() << "not on this processor";
  const auto whole = Load(GetParam(), SPECWIRE_TINY_MODEL);
  const auto trimmed = Load(GetParam(), SPECWIRE_TINY_DRAFT_MODEL, Drafting());
  ASSERT_NE(trimmed, nullptr);
  const absl::Span<const int32_t> head = trimmed->info().head_token_ids();
  EXPECT_EQ(trimmed->info().vocab_size, 320);
  ASSERT_EQ(trimmed->info().num_logits(), 200);
  ASSERT_EQ(head.size(), 200u);
  EXPECT_EQ(whole->info().num_logits(), 320);

  // Tokens that are not in the head are read all the same.
  const Tokens text = RandomTokens(7, 40);
  const auto whole_kv = whole->NewSequence();
  const auto kv = trimmed->NewSequence();
  const std::vector<LogitRow> expected = Compute(*whole, whole_kv.get(), text);
  const std::vector<LogitRow> rows = Compute(*trimmed, kv.get(), text);
  ASSERT_EQ(rows.size(), text.size());
  std::vector<LogitRow> expected_rows;
  Tokens expected_best;
  for (size_t row = 0; row < text.size(); ++row) {
    LogitRow& wanted = expected_rows.emplace_back();
    for (const int32_t id : head) {
      wanted.push_back(expected[row][static_cast<size_t>(id)]);
    }
    expected_best.push_back(head[static_cast<size_t>(PlainArgMax(rows[row]))]);
  }
  if (GetParam().engine == "int8") {
    ExpectSameRows(rows, expected_rows);
  } else {
    EXPECT_LT(RelativeError(rows, expected_rows), 1e-6);
  }

  // The arg-max is told as a token.
  const auto again = trimmed->NewSequence();
  Tokens best(text.size());
  const ForwardRun best_run = {.kv = again.get(),
                               .tokens = text,
                               .num_logits = static_cast<int>(text.size()),
                               .best = absl::MakeSpan(best)};
  ASSERT_TRUE(trimmed->Forward(absl::MakeConstSpan(&best_run, 1)).ok());
  EXPECT_EQ(best, expected_best);
}

INSTANTIATE_TEST_SUITE_P(Engines,
                         TrimmedEngineTest,
                         ::testing::ValuesIn(AllEngines()),
                         [](const auto& instance) {
                           return instance.param.Name();
                         });

}  // namespace
}  // namespace specwire
