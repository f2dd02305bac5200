// SPDX-License-Identifier: Apache-2.0
// Tokenizers of kind "llama".
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "common/text/detokenizer.h"
#include "common/text/tokenizer.h"
#include "common/text/utf8.h"

namespace specwire {
namespace {

using ::testing::HasSubstr;
using Ids = std::vector<int32_t>;
using Strings = std::vector<std::string>;

// "<unk>", "<s>", "</s>", 256 bytes, the words below, "<tool>".
constexpr int32_t kBytes = 3;
constexpr int32_t kWords = kBytes + 256;

const Strings& Words() {
  static const auto* const words = new Strings{"\u2581",
                                               "a",
                                               "b",
                                               "c",
                                               "<",
                                               "s",
                                               ">",
                                               "\u2581a",
                                               "ab",
                                               "bc",
                                               "\u2581\u2581",
                                               "\u2581abc",
                                               "aa"};
  return *words;
}

TokenizerModel Vocabulary() {
  TokenizerModel model;
  model.kind = "llama";
  const auto add = [&](const std::string& text, TokenType type) {
    model.tokens.push_back(text);
    model.types.push_back(static_cast<int32_t>(type));
    model.scores.push_back(0);
  };
  add("<unk>", TokenType::kUnknown);
  add("<s>", TokenType::kControl);
  add("</s>", TokenType::kControl);
  for (int byte = 0; byte < 256; ++byte) {
    add(absl::StrFormat("<0x%02X>", byte), TokenType::kByte);
  }
  for (size_t i = 0; i < Words().size(); ++i) {
    add(Words()[i], TokenType::kNormal);
    model.scores.back() = -static_cast<float>(i);
  }
  add("<tool>", TokenType::kUserDefined);
  model.unk_id = 0;
  model.bos_id = 1;
  model.eos_id = 2;
  return model;
}

TokenizerModel WithMerges(const Strings& merges) {
  TokenizerModel model = Vocabulary();
  model.scores.clear();
  model.merges = merges;
  return model;
}

std::unique_ptr<Tokenizer> Make(TokenizerModel model) {
  auto tokenizer = Tokenizer::Create(std::move(model));
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return *std::move(tokenizer);
}

Ids EncodeIds(const Tokenizer& tokenizer,
              absl::string_view text,
              SpecialTokens special = SpecialTokens::kRecognise) {
  const auto ids = tokenizer.Encode(text, special);
  EXPECT_TRUE(ids.ok()) << ids.status();
  return *ids;
}

// The spellings of the tokens, "_" for U+2581, with spaces between.
std::string Spell(const Tokenizer& tokenizer, const Ids& ids) {
  std::string text;
  for (const int32_t id : ids) {
    absl::StrAppend(&text,
                    text.empty() ? "" : " ",
                    tokenizer.model().tokens[static_cast<size_t>(id)]);
  }
  return absl::StrReplaceAll(text, {{"\u2581", "_"}});
}

std::string Encode(const Tokenizer& tokenizer,
                   absl::string_view text,
                   SpecialTokens special = SpecialTokens::kRecognise) {
  return Spell(tokenizer, EncodeIds(tokenizer, text, special));
}

std::unique_ptr<Tokenizer> WithSpace(LeadingSpace space,
                                     bool normalized = false) {
  TokenizerModel model = WithMerges({"\u2581 a", "a b", "\u2581 \u2581"});
  model.leading_space = space;
  if (normalized) model.normalized_ids = {1, 2};
  return Make(model);
}

TEST(SentencePieceTest, MergesByScore) {
  const auto tokenizer = Make(Vocabulary());
  EXPECT_EQ(Encode(*tokenizer, ""), "");
  // "_a" is better than "ab", "ab" than "bc".
  EXPECT_EQ(Encode(*tokenizer, "abc"), "ab c");
  EXPECT_EQ(Encode(*tokenizer, " abc"), "_abc");
  EXPECT_EQ(Encode(*tokenizer, "aaa"), "aa a");
  EXPECT_EQ(Encode(*tokenizer, "b abc"), "b _abc");
}

TEST(SentencePieceTest, MergesTheLeftmostOfEqualScores) {
  TokenizerModel model = Vocabulary();
  std::fill(model.scores.begin(), model.scores.end(), 1.0f);
  const auto tokenizer = Make(model);
  EXPECT_EQ(Encode(*tokenizer, "abc"), "ab c");
  EXPECT_EQ(Encode(*tokenizer, "cabc"), "c ab c");
}

TEST(SentencePieceTest, MergesByRank) {
  const auto tokenizer = Make(WithMerges({"b c", "a b", "a a"}));
  EXPECT_EQ(Encode(*tokenizer, "abc"), "a bc");
  EXPECT_EQ(Encode(*tokenizer, " ab"), "_ ab");
}

TEST(SentencePieceTest, FallsBackToBytes) {
  const auto tokenizer = Make(Vocabulary());
  EXPECT_EQ(Encode(*tokenizer, "a\u00E9a"), "a <0xC3> <0xA9> a");
  EXPECT_EQ(Encode(*tokenizer, "\xFF\n"), "<0xFF> <0x0A>");
  // A byte's token is no text.
  EXPECT_EQ(Encode(*tokenizer, "<0x41>"), "< <0x30> <0x78> <0x34> <0x31> >");
}

TEST(SentencePieceTest, MakesOneUnknownTokenOfARun) {
  TokenizerModel model = Vocabulary();
  // No byte 0xC3, so that U+00E9 is unknown, and U+4E2D still is bytes.
  model.tokens[kBytes + 0xC3] = "unused";
  model.types[kBytes + 0xC3] = static_cast<int32_t>(TokenType::kUnused);
  auto tokenizer = Make(model);
  EXPECT_EQ(Encode(*tokenizer, "a\u00E9\u00EAa\u00E9"), "a <unk> a <unk>");
  // As the original library has it: the unknown token waits.
  EXPECT_EQ(Encode(*tokenizer, "z\u00E9za"), "<0x7A> <0x7A> <unk> a");
  model.unk_id.reset();
  tokenizer = Make(model);
  EXPECT_EQ(Encode(*tokenizer, "a\u00E9b"), "ab");
}

struct SpaceCase {
  const char* text;
  const char* none;
  const char* text_start;
  const char* stretch_without;
  const char* stretch;
};

// As Hugging Face's library encodes them (tokenizers 0.23).
TEST(SentencePieceTest, AddsSpacesWhereTheModelDoes) {
  const SpaceCase cases[] = {
      {"", "", "", "", ""},
      {" ", "_", "_", "_", "__"},
      {"a", "a", "_a", "_a", "_a"},
      {" a", "_a", "_a", "_a", "_ _a"},
      {"  a", "_ _a", "_ _a", "_ _a", "__ _a"},
      {"<s>a", "<s> a", "<s> a", "<s> _a", "<s> _a"},
      {"<s> a", "<s> _a", "<s> _a", "<s> _a", "<s> _ _a"},
      {"a<s>a", "a <s> a", "_a <s> a", "_a <s> _a", "_a <s> _a"},
      {"<s><s>a", "<s> <s> a", "<s> <s> a", "<s> <s> _a", "<s> <s> _a"},
      {"\u2581a", "_a", "_a", "_a", "_ _a"},
      {"b\u2581 a", "b _ _a", "_ b _ _a", "_ b _ _a", "_ b _ _a"},
      {"<s>", "<s>", "<s>", "<s>", "<s>"},
  };
  for (const SpaceCase& c : cases) {
    const auto with = [&](LeadingSpace space) {
      return Encode(*WithSpace(space), c.text);
    };
    EXPECT_EQ(with(LeadingSpace::kNone), c.none) << c.text;
    EXPECT_EQ(with(LeadingSpace::kTextStart), c.text_start) << c.text;
    EXPECT_EQ(with(LeadingSpace::kStretchWithout), c.stretch_without) << c.text;
    EXPECT_EQ(with(LeadingSpace::kStretch), c.stretch) << c.text;
  }
}

TEST(SentencePieceTest, FindsNormalisedTokensInNormalisedText) {
  const SpaceCase cases[] = {
      {"<s>a", "<s> a", "<s> a", "<s> _a", "<s> a"},
      {" <s>a", "_ <s> a", "_ <s> a", "_ <s> _a", "_ <s> a"},
      {"a<s>a", "a <s> a", "_a <s> a", "_a <s> _a", "_a < s > a"},
      {"a <s>a", "a _ <s> a", "_a _ <s> a", "_a _ <s> _a", "_a <s> a"},
  };
  for (const SpaceCase& c : cases) {
    const auto with = [&](LeadingSpace space) {
      return Encode(*WithSpace(space, /*normalized=*/true), c.text);
    };
    EXPECT_EQ(with(LeadingSpace::kNone), c.none) << c.text;
    EXPECT_EQ(with(LeadingSpace::kTextStart), c.text_start) << c.text;
    EXPECT_EQ(with(LeadingSpace::kStretchWithout), c.stretch_without) << c.text;
    EXPECT_EQ(with(LeadingSpace::kStretch), c.stretch) << c.text;
  }
}

TEST(SentencePieceTest, AddsNoSpacesAtSeams) {
  const LeadingSpace spaces[] = {LeadingSpace::kNone,
                                 LeadingSpace::kTextStart,
                                 LeadingSpace::kStretchWithout,
                                 LeadingSpace::kStretch};
  std::mt19937 random(5);
  const Strings units = {"a", "b", " ", "<tool>", "\u00E9", "<s>", "<", "s>"};
  for (int round = 0; round < 2000; ++round) {
    const auto tokenizer = WithSpace(spaces[round % 4]);
    std::string text;
    std::vector<TextSegment> segments;
    for (size_t n = random() % 6; n > 0; --n) {
      TextSegment segment;
      segment.special_allowed = true;
      for (size_t k = random() % 4; k > 0; --k) {
        segment.text += units[random() % (units.size() - 2)];
      }
      text += segment.text;
      segments.push_back(segment);
    }
    const auto ids = tokenizer->EncodeSegments(segments);
    ASSERT_TRUE(ids.ok()) << ids.status();
    EXPECT_EQ(*ids, EncodeIds(*tokenizer, text)) << text;
  }
}

TEST(SentencePieceTest, KeepsDataFromBecomingControlTokens) {
  const auto tokenizer = WithSpace(LeadingSpace::kStretch);
  const auto ids = tokenizer->EncodeSegments(
      {{"<s>", true}, {"a<s>", false}, {"</s>", true}});
  ASSERT_TRUE(ids.ok()) << ids.status();
  EXPECT_EQ(Spell(*tokenizer, *ids), "<s> _a < s > </s>");
  EXPECT_EQ(Encode(*tokenizer, "<s><tool>", SpecialTokens::kAsText),
            "_ < s > <tool>");
}

TEST(SentencePieceTest, MergesMakeNoControlToken) {
  TokenizerModel model = Vocabulary();
  model.tokens[kWords + 2] = "s>";
  // "<" and "s>" would make "<s>".
  EXPECT_EQ(Encode(*Make(model), "<s>", SpecialTokens::kAsText), "< s>");
  model.scores.clear();
  model.merges = {"s >", "< s>"};
  for (const Ids& normalized : {Ids{}, Ids{1}}) {
    model.normalized_ids = normalized;
    EXPECT_EQ(Encode(*Make(model), "<s>", SpecialTokens::kAsText), "< s>");
  }
}

TEST(SentencePieceTest, DecodesWhatItEncoded) {
  const auto tokenizer = WithSpace(LeadingSpace::kStretch);
  const auto decode = [&](absl::string_view text, bool skip_special) {
    return tokenizer->Decode(EncodeIds(*tokenizer, text), skip_special);
  };
  for (const char* text : {"", "a", " a", "  ", "\u00E9 \u4E2D", "\n\t\x01"}) {
    EXPECT_EQ(decode(text, true), text);
  }
  EXPECT_EQ(decode("<s>a<s>a", false), "<s> a<s> a");
  EXPECT_EQ(decode("<s>a<s>a", true), "a a");
  EXPECT_EQ(decode("\u2581", true), " ");
  EXPECT_EQ(Make(Vocabulary())->Decode({kWords, kWords + 1}, false), " a");
}

TEST(SentencePieceTest, DetokenizesACompletionWithItsSpaces) {
  const auto tokenizer = WithSpace(LeadingSpace::kTextStart);
  Detokenizer detokenizer(tokenizer.get(), /*skip_special=*/true);
  EXPECT_EQ(detokenizer.Push(kWords + 7), " a");
  EXPECT_EQ(detokenizer.Push(kBytes + 0xC3), "");
  EXPECT_EQ(detokenizer.Push(kBytes + 0xA9), "\u00E9");
}

TEST(SentencePieceTest, KnowsTheBytesOfTokens) {
  const auto tokenizer = Make(Vocabulary());
  EXPECT_EQ(tokenizer->TokenBytes(kWords + 11), " abc");
  EXPECT_EQ(tokenizer->TokenBytes(kBytes), std::string(1, '\0'));
  EXPECT_EQ(tokenizer->TokenBytes(kBytes + 0xFE), "\xFE");
  EXPECT_TRUE(tokenizer->IsSpecial(0));
  EXPECT_FALSE(tokenizer->IsSpecial(kBytes));
}

// Best score first, leftmost among equals, on strings and slowly.
Strings MergeSlowly(Strings symbols,
                    const std::map<std::string, float>& scores) {
  while (true) {
    size_t best = symbols.size();
    float best_score = 0;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto it = scores.find(symbols[i] + symbols[i + 1]);
      if (it == scores.end()) continue;
      if (best < symbols.size() && it->second <= best_score) continue;
      best = i;
      best_score = it->second;
    }
    if (best == symbols.size()) return symbols;
    symbols[best] += symbols[best + 1];
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

TEST(SentencePieceTest, MergesByScoreAsTheDefinitionSays) {
  std::mt19937 random(11);
  for (int round = 0; round < 300; ++round) {
    TokenizerModel model = Vocabulary();
    model.leading_space = LeadingSpace::kNone;
    const auto first = model.tokens.begin() + kWords;
    model.tokens.erase(first, model.tokens.end());
    std::map<std::string, float> scores;
    for (const char* letter : {"a", "b", "c"}) scores[letter] = -9;
    while (scores.size() < 20) {
      std::string token;
      for (size_t n = 2 + random() % 4; n > 0; --n) {
        token += static_cast<char>('a' + random() % 3);
      }
      scores[token] = -static_cast<float>(random() % 8);
    }
    for (const auto& [token, score] : scores) model.tokens.push_back(token);
    model.types.resize(kWords);
    model.types.resize(model.tokens.size(), 1);
    model.scores.resize(kWords);
    for (const auto& [token, score] : scores) model.scores.push_back(score);
    const auto tokenizer = Make(model);
    for (int i = 0; i < 20; ++i) {
      std::string text;
      Strings symbols;
      for (size_t n = random() % 30; n > 0; --n) {
        symbols.emplace_back(1, static_cast<char>('a' + random() % 3));
        text += symbols.back();
      }
      std::string expected;
      for (const std::string& symbol : MergeSlowly(symbols, scores)) {
        absl::StrAppend(&expected, expected.empty() ? "" : " ", symbol);
      }
      ASSERT_EQ(Encode(*tokenizer, text), expected) << text;
    }
  }
}

TEST(SentencePieceTest, TakesLongTexts) {
  const auto tokenizer = WithSpace(LeadingSpace::kStretch);
  for (const char* unit :
       {"a", " ", "7", "<", "<s>", "\xFF", "\n", "ab ", "\u4E2D"}) {
    std::string text;
    while (text.size() < (1 << 20)) text += unit;
    EXPECT_GT(EncodeIds(*tokenizer, text).size(), text.size() / 4);
  }
}

struct BadModel {
  const char* field;
  std::function<void(TokenizerModel*)> spoil;
};

TEST(SentencePieceTest, NamesTheFieldThatIsWrong) {
  const std::vector<BadModel> cases = {
      {"scores: kind \"llama\" has either", [](auto* m) { m->scores.clear(); }},
      {"scores: kind \"llama\" has either",
       [](auto* m) { m->merges.push_back("a b"); }},
      {"scores: 1 for 273 tokens", [](auto* m) { m->scores.resize(1); }},
      {"scores[2]: nan", [](auto* m) { m->scores[2] = NAN; }},
      {"scores[2]: inf", [](auto* m) { m->scores[2] = INFINITY; }},
      {"unk_id: -1", [](auto* m) { m->unk_id = -1; }},
      {"tokens[3]: \"<0x0G>\" is not a byte",
       [](auto* m) { m->tokens[3] = "<0x0G>"; }},
      {"tokens[3]: \"<0x-1>\" is not a byte",
       [](auto* m) { m->tokens[3] = "<0x-1>"; }},
      {"tokens[4]: \"<0x00>\" repeats tokens[3]",
       [](auto* m) { m->tokens[4] = "<0x00>"; }},
      {"tokens[261]: \"b\" repeats tokens[260]",
       [](auto* m) { m->tokens[kWords + 2] = m->tokens[kWords + 1] = "b"; }},
      {"types[5]: 9", [](auto* m) { m->types[5] = 9; }},
      {"merges[0]: \"ab\" is not two tokens",
       [](auto* m) { m->scores.clear(), m->merges = {"ab"}; }},
      {"merges[1]: \"a c\" needs \"ac\"",
       [](auto* m) {
         m->scores.clear(), m->merges = {"a b", "a c"};
       }},
      {"merges[1]: \"a b\" is there twice",
       [](auto* m) {
         m->scores.clear(), m->merges = {"a b", "a b"};
       }},
  };
  for (const BadModel& bad : cases) {
    TokenizerModel model = Vocabulary();
    bad.spoil(&model);
    const auto result = Tokenizer::Create(std::move(model));
    EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(result.status().message()), HasSubstr(bad.field));
  }
}

// Tokens whose ways to be made of two others are beyond counting.
TEST(SentencePieceTest, LimitsTheMergesByScore) {
  TokenizerModel model = Vocabulary();
  for (size_t length = 3; length <= 3200; ++length) {
    model.tokens.emplace_back(length, 'a');
    model.types.push_back(1);
    model.scores.push_back(0);
  }
  const auto steps = Tokenizer::Create(model);
  EXPECT_THAT(std::string(steps.status().message()),
              HasSubstr("tokens: too long together"));

  model = Vocabulary();
  for (char32_t letter = 0x100; letter < 0x100 + 1400; ++letter) {
    std::string token;
    for (int length = 1; length <= 80; ++length) {
      AppendUtf8(letter, &token);
      model.tokens.push_back(token);
      model.types.push_back(1);
      model.scores.push_back(0);
    }
  }
  const auto merges = Tokenizer::Create(model);
  EXPECT_THAT(std::string(merges.status().message()),
              HasSubstr("tokens: more than 4194304 ways"));
}

}  // namespace
}  // namespace specwire
