// SPDX-License-Identifier: Apache-2.0
// That the prefix cache never shows in a logit: what is taken over has the bits
// that computing it would give. Everything that belongs to nobody is NaN here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/model/engine.h"
#include "tests/common/model/engine_test_util.h"

namespace specwire {
namespace {

Tokens Join(const Tokens& first, const Tokens& second) {
  Tokens joined = first;
  joined.insert(joined.end(), second.begin(), second.end());
  return joined;
}

Tokens First(const Tokens& tokens, size_t count) {
  return {tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(count)};
}

class EnginePrefixTest : public ::testing::TestWithParam<EngineCase> {
 protected:
  void SetUp() override {
    if (!IsSupported(GetParam())) {
      GTEST_SKIP() << "NOT TESTED: this processor lacks the instruction set";
    }
    EngineOptions options;
    options.kv_cache_mib = 1;
    options.poison_free_kv = true;
    engine_ = Load(GetParam(), SPECWIRE_TINY_MODEL, options);
    plain_ = Load(GetParam(), SPECWIRE_TINY_MODEL);
  }

  // Logits of the last of `tokens`, by an engine that shares nothing.
  const LogitRow& Expected(const Tokens& tokens) {
    LogitRow& row = expected_[tokens];
    if (row.empty()) {
      const auto kv = plain_->NewSequence();
      row = Compute(*plain_,
                    {{.kv = kv.get(), .tokens = tokens, .num_logits = 1}})
                .at(0);
    }
    return row;
  }

  // Computes what is missing of `tokens` and checks the last one's logits.
  void ExpectLast(KvSequence* kv, const Tokens& tokens) {
    const auto rest =
        absl::MakeConstSpan(tokens).subspan(static_cast<size_t>(kv->length()));
    ASSERT_FALSE(rest.empty());
    const auto rows =
        Compute(*engine_, {{.kv = kv, .tokens = rest, .num_logits = 1}});
    ASSERT_EQ(rows.size(), 1u);
    ASSERT_TRUE(SameBits(rows[0], Expected(tokens)));
  }

  // A sequence of a salt that has computed `tokens` is there and gone.
  void Cache(const std::string& salt, const Tokens& tokens) {
    const auto kv = engine_->NewSequence();
    kv->ReusePrefix(salt, tokens);
    ExpectLast(kv.get(), tokens);
  }

  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Engine> plain_;
  std::map<Tokens, LogitRow> expected_;
};

TEST_P(EnginePrefixTest, AHitChangesNoBitAndSavesItsRows) {
  const Tokens text = RandomTokens(1, 100);
  Cache("a", text);
  EXPECT_EQ(engine_->kv_blocks_used(), 0);
  EXPECT_EQ(engine_->kv_blocks_cached(), 6);
  for (const int length : {1, 15, 16, 17, 32, 33, 64, 99, 100, 130}) {
    SCOPED_TRACE(absl::StrCat("length ", length));
    Tokens prompt = First(text, static_cast<size_t>(std::min(length, 100)));
    if (length > 100) prompt = Join(prompt, RandomTokens(2, length - 100));
    const auto kv = engine_->NewSequence();
    const int taken = std::min((length - 1) / 16, 6) * 16;
    EXPECT_EQ(kv->ReusePrefix("a", prompt), taken);
    EXPECT_EQ(engine_->kv_blocks_used(), taken / 16);
    const int64_t before = engine_->rows_computed();
    ExpectLast(kv.get(), prompt);
    EXPECT_EQ(engine_->rows_computed() - before, length - taken);
  }
}

TEST_P(EnginePrefixTest, SaltsAndTextsAreKeptApart) {
  const Tokens text = RandomTokens(3, 50);
  Cache("a", text);
  Tokens other = text;
  other[3] = (other[3] + 1) % 320;
  for (const auto& [salt, tokens] : std::vector<std::pair<std::string, Tokens>>{
           {"b", text}, {"", text}, {"a", other}}) {
    const auto kv = engine_->NewSequence();
    EXPECT_EQ(kv->ReusePrefix(salt, tokens), 0);
    ExpectLast(kv.get(), tokens);
  }
  const auto kv = engine_->NewSequence();
  EXPECT_EQ(kv->ReusePrefix("a", text), 48);
}

// Two sequences stand on the same blocks; one is cut anywhere and continues
// with another text.
TEST_P(EnginePrefixTest, TruncationToEachPositionEqualsAFreshPrefill) {
  const Tokens text = RandomTokens(4, 70);
  const int step = GetParam().isa == "scalar" ? 7 : 1;
  for (const bool is_shared : {false, true}) {
    for (int kept = 0; kept <= 70; kept += step) {
      SCOPED_TRACE(absl::StrCat("kept ", kept, ", shared ", is_shared));
      const std::string salt = absl::StrCat("salt ", kept, " ", is_shared);
      const auto kv = engine_->NewSequence();
      kv->ReusePrefix(salt, text);
      ExpectLast(kv.get(), text);
      const Tokens longer = Join(text, {1, 2, 3});
      // Its blocks are offered now.
      ExpectLast(kv.get(), longer);
      const auto other = engine_->NewSequence();
      if (is_shared) {
        ASSERT_EQ(other->ReusePrefix(salt, text), 64);
      }
      kv->Truncate(kept);
      const bool cuts = is_shared && kept < 64;
      ASSERT_EQ(kv->length(), cuts ? kept / 16 * 16 : kept);
      const Tokens changed =
          Join(First(text, static_cast<size_t>(kept)), RandomTokens(5, 20));
      ExpectLast(kv.get(), changed);
      // Who stood on the same blocks, and who comes later.
      ExpectLast(other.get(), text);
      const auto late = engine_->NewSequence();
      late->ReusePrefix(salt, changed);
      ExpectLast(late.get(), changed);
    }
  }
}

// A verify pass writes draft rows into the block that it fills up; those that
// are wrong are overwritten before the block is offered.
TEST_P(EnginePrefixTest, RejectedDraftRowsAtABlocksEdgeAreNotOffered) {
  const Tokens text = RandomTokens(6, 60);
  const Tokens wrong = RandomTokens(7, 8);
  for (size_t start = 28; start <= 32; ++start) {
    for (size_t accepted = 0; accepted <= 7; ++accepted) {
      SCOPED_TRACE(absl::StrCat("start ", start, ", accepted ", accepted));
      const std::string salt = absl::StrCat(start, " ", accepted);
      const auto kv = engine_->NewSequence();
      kv->ReusePrefix(salt, First(text, start));
      ExpectLast(kv.get(), First(text, start));
      const size_t right = start + accepted;
      const Tokens drafted = Join(First(text, right), wrong);
      ExpectLast(kv.get(), drafted);
      kv->Truncate(static_cast<int>(right));
      ExpectLast(kv.get(), First(text, right + 1));
      const auto one = engine_->NewSequence();
      EXPECT_EQ(one->ReusePrefix(salt, text),
                static_cast<int>(right / 16 * 16));
      ExpectLast(one.get(), text);
      const auto another = engine_->NewSequence();
      another->ReusePrefix(salt, drafted);
      EXPECT_EQ(another->length(), static_cast<int>(right / 16 * 16));
      ExpectLast(another.get(), drafted);
    }
  }
}

// Texts that branch off each other come and go, far more than the pool holds.
TEST_P(EnginePrefixTest, RandomUseWithEvictionEqualsComputingEverything) {
  std::mt19937 random(8);
  std::vector<std::unique_ptr<KvSequence>> sequences(5);
  std::vector<Tokens> texts(5);
  std::vector<Tokens> seen = {{}};
  int64_t taken = 0;
  bool was_full = false;
  const auto open = [&](size_t i) {
    const Tokens& from = seen[random() % seen.size()];
    texts[i] = Join(First(from, random() % (from.size() + 1)),
                    RandomTokens(static_cast<uint32_t>(random()),
                                 1 + static_cast<int>(random() % 60)));
    if (texts[i].size() > 200) texts[i].resize(200);
    sequences[i] = engine_->NewSequence();
    taken += sequences[i]->ReusePrefix(random() % 8 == 0 ? "a" : "b", texts[i]);
  };
  // Scalar code takes many times as long.
  const bool is_slow = GetParam().isa == "scalar";
  for (int step = 0; step < (is_slow ? 150 : 600); ++step) {
    const size_t i = random() % sequences.size();
    if (sequences[i] == nullptr) {
      open(i);
    } else if (random() % 3 == 0 || texts[i].size() > 220) {
      seen.push_back(texts[i]);
      if (seen.size() > 12) seen.erase(seen.begin());
      sequences[i] = nullptr;
      continue;
    } else {
      const size_t kept = texts[i].size() -
                          std::min<size_t>(random() % 30, texts[i].size() - 1);
      sequences[i]->Truncate(static_cast<int>(kept) - 1);
      texts[i] = Join(First(texts[i], kept),
                      RandomTokens(static_cast<uint32_t>(random()),
                                   static_cast<int>(random() % 30)));
    }
    ASSERT_NO_FATAL_FAILURE(ExpectLast(sequences[i].get(), texts[i]))
        << "step " << step;
    was_full |= engine_->kv_blocks_used() + engine_->kv_blocks_cached() ==
                engine_->kv_blocks_total();
  }
  EXPECT_GT(taken, is_slow ? 200 : 1000);
  EXPECT_TRUE(is_slow || was_full);
  for (auto& sequence : sequences) sequence = nullptr;
  EXPECT_EQ(engine_->kv_blocks_used(), 0);
}

// What is cached is no reason to refuse.
TEST_P(EnginePrefixTest, CachedBlocksMakeRoom) {
  const int64_t total = engine_->kv_blocks_total();
  int64_t prompts = 0;
  for (; engine_->kv_blocks_cached() < total - 15; ++prompts) {
    Cache("a", RandomTokens(static_cast<uint32_t>(prompts), 250));
  }
  std::vector<std::unique_ptr<KvSequence>> sequences;
  for (int64_t i = 0; i < total / 16; ++i) {
    sequences.push_back(engine_->NewSequence());
    const Tokens text = RandomTokens(static_cast<uint32_t>(100 + i), 256);
    Compute(*engine_,
            {{.kv = sequences.back().get(), .tokens = text, .num_logits = 0}});
    ASSERT_EQ(sequences.back()->length(), 256);
  }
  EXPECT_EQ(engine_->kv_blocks_used(), total / 16 * 16);
  EXPECT_LE(engine_->kv_blocks_cached(), total % 16);
}

INSTANTIATE_TEST_SUITE_P(All,
                         EnginePrefixTest,
                         ::testing::ValuesIn(AllEngines()),
                         [](const auto& test) { return test.param.Name(); });

}  // namespace
}  // namespace specwire
