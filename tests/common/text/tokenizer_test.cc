// SPDX-License-Identifier: Apache-2.0
#include "common/text/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "common/text/byte_spelling.h"
#include "tests/common/text/small_vocabulary.h"

namespace specwire {
namespace {

using ::testing::HasSubstr;
using Ids = std::vector<int32_t>;

constexpr int32_t kHello = 256 + 3;
constexpr int32_t kEnd = 256 + 9;
constexpr int32_t kStart = kEnd + 1;
constexpr int32_t kTool = kEnd + 2;

std::unique_ptr<Tokenizer> Make(TokenizerModel model) {
  auto tokenizer = Tokenizer::Create(std::move(model));
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return *std::move(tokenizer);
}

Ids Encode(const Tokenizer& tokenizer,
           absl::string_view text,
           SpecialTokens special = SpecialTokens::kRecognise) {
  const auto ids = tokenizer.Encode(text, special);
  EXPECT_TRUE(ids.ok()) << ids.status();
  return *ids;
}

Ids Bytes(absl::string_view text) {
  Ids ids;
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  return ids;
}

Ids operator+(Ids left, const Ids& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

TEST(TokenizerTest, MergesInsideOfWords) {
  const auto tokenizer = Make(SmallVocabulary());
  EXPECT_EQ(Encode(*tokenizer, ""), Ids());
  EXPECT_EQ(Encode(*tokenizer, "hello"), Ids{kHello});
  EXPECT_EQ(Encode(*tokenizer, "hello world"),
            Ids({kHello, 256 + 4}) + Bytes("orld"));
}

TEST(TokenizerTest, RecognisesControlTokensWhereAllowed) {
  const auto tokenizer = Make(SmallVocabulary());
  EXPECT_EQ(Encode(*tokenizer, "hello<|end|>hello"),
            Ids({kHello, kEnd, kHello}));
  EXPECT_EQ(Encode(*tokenizer, "hello<|end|>", SpecialTokens::kAsText),
            Ids{kHello} + Bytes("<|end|>"));
  EXPECT_EQ(Encode(*tokenizer, "<|end<|end|>"), Bytes("<|end") + Ids{kEnd});
}

TEST(TokenizerTest, AlwaysRecognisesUserDefinedTokens) {
  const auto tokenizer = Make(SmallVocabulary());
  EXPECT_EQ(Encode(*tokenizer, "<tool><|start|>", SpecialTokens::kAsText),
            Ids{kTool} + Bytes("<|start|>"));
  EXPECT_FALSE(tokenizer->IsSpecial(kTool));
  EXPECT_TRUE(tokenizer->IsSpecial(kStart));
}

TEST(TokenizerTest, PrefersTheLongestOfTokensThatBeginTogether) {
  TokenizerModel model = SmallVocabulary();
  for (const char* text : {"<|end|>>", "<|"}) {
    model.tokens.push_back(text);
    model.types.push_back(static_cast<int32_t>(TokenType::kControl));
  }
  const auto tokenizer = Make(model);
  EXPECT_EQ(Encode(*tokenizer, "<|end|>>"), Ids{kEnd + 3});
  EXPECT_EQ(Encode(*tokenizer, "<|end|>"), Ids{kEnd});
  EXPECT_EQ(Encode(*tokenizer, "<|end|"), Ids{kEnd + 4} + Bytes("end|"));
}

TEST(TokenizerTest, KeepsDataInSegmentsFromBecomingControlTokens) {
  const auto tokenizer = Make(SmallVocabulary());
  const auto encode = [&](std::vector<TextSegment> segments) {
    const auto ids = tokenizer->EncodeSegments(segments);
    EXPECT_TRUE(ids.ok()) << ids.status();
    return *ids;
  };
  EXPECT_EQ(
      encode({{"<|start|>", true}, {"<|end|>", false}, {"<|end|>", true}}),
      Ids{kStart} + Bytes("<|end|>") + Ids{kEnd});
  // Not wholly within a segment that allows it, on either side.
  EXPECT_EQ(encode({{"<|", true}, {"end|>", false}}), Bytes("<|end|>"));
  EXPECT_EQ(encode({{"<|end", false}, {"|>", true}}), Bytes("<|end|>"));
  EXPECT_EQ(encode({{"<|e", true}, {"nd|>", true}}), Bytes("<|end|>"));
  // Merges do run across seams.
  EXPECT_EQ(encode({{"he", true}, {"l", false}, {"", true}, {"lo", true}}),
            Ids{kHello});
  EXPECT_EQ(encode({}), Ids());
}

TEST(TokenizerTest, EncodesAndDecodesAnyBytes) {
  const auto tokenizer = Make(SmallVocabulary());
  std::mt19937 random(3);
  for (int i = 0; i < 20'000; ++i) {
    std::string text;
    for (size_t n = random() % 24; n > 0; --n) {
      text += static_cast<char>(random() % (i % 2 == 0 ? 256 : 128));
    }
    const Ids ids = Encode(*tokenizer, text, SpecialTokens::kAsText);
    std::string bytes;
    for (const int32_t id : ids)
      bytes += std::string(tokenizer->TokenBytes(id));
    ASSERT_EQ(bytes, text);
  }
}

TEST(TokenizerTest, DropsBytesWithoutTokenBeforeMerging) {
  TokenizerModel model = SmallVocabulary({{"=", "="}});
  // Byte 0x04 loses its token.
  model.tokens[4] = SpellingFromBytes("\x04\x04");
  const auto tokenizer = Make(model);
  EXPECT_EQ(Encode(*tokenizer, "=\x04="), Ids{256});
}

TEST(TokenizerTest, TakesAPieceThatIsATokenAsItIsWhereMergesAreIgnored) {
  TokenizerModel model = SmallVocabulary({{"a", "b"}});
  model.tokens.push_back("xyz");
  model.types.push_back(static_cast<int32_t>(TokenType::kNormal));
  const auto id = static_cast<int32_t>(model.tokens.size()) - 1;
  EXPECT_EQ(Encode(*Make(model), "xyz"), Bytes("xyz"));
  model.pre = "llama-bpe";
  EXPECT_EQ(Encode(*Make(model), "xyz"), Ids{id});
}

TEST(TokenizerTest, NormalisesForQwen) {
  TokenizerModel model = SmallVocabulary();
  EXPECT_EQ(Encode(*Make(model), "e\u0301"), Bytes("e\u0301"));
  model.pre = "qwen2";
  EXPECT_EQ(Encode(*Make(model), "e\u0301"), Bytes("\u00E9"));
}

TEST(TokenizerTest, LooksForTokensInTheTextAsItIsOrNormalised) {
  TokenizerModel model = SmallVocabulary();
  model.pre = "qwen2";
  // Normalised first, the text would have no "<|end|>": ">" and U+0338 compose.
  EXPECT_EQ(Encode(*Make(model), "<|end|>\u0338"), Ids{kEnd} + Bytes("\u0338"));
  model.normalized_ids = {kEnd};
  EXPECT_EQ(Encode(*Make(model), "<|end|>\u0338"), Bytes("<|end|\u226F"));
  EXPECT_EQ(Encode(*Make(model), "a<|end|>b"),
            Bytes("a") + Ids{kEnd} + Bytes("b"));
  // The token's own text is normalised too.
  model.tokens[kEnd] = std::string("e\u0301");
  EXPECT_EQ(Encode(*Make(model), "xe\u0301"), Bytes("x") + Ids{kEnd});
  EXPECT_EQ(Encode(*Make(model), "x\u00E9"), Bytes("x") + Ids{kEnd});
}

TEST(TokenizerTest, FindsUserDefinedTokensAcrossSeams) {
  TokenizerModel model = SmallVocabulary();
  const auto user_defined = [&](const std::string& text) {
    model.tokens.push_back(text);
    model.types.push_back(static_cast<int32_t>(TokenType::kUserDefined));
    return static_cast<int32_t>(model.tokens.size()) - 1;
  };
  const int32_t pair = user_defined("\n\n");
  const int32_t thief = user_defined("x<|e");
  const auto tokenizer = Make(model);
  const auto encode = [&](std::vector<TextSegment> segments) {
    const auto ids = tokenizer->EncodeSegments(segments);
    EXPECT_TRUE(ids.ok()) << ids.status();
    return *ids;
  };
  EXPECT_EQ(encode({{"a\n", false}, {"\n\n", true}}),
            Bytes("a") + Ids{pair} + Bytes("\n"));
  EXPECT_EQ(encode({{"<to", false}, {"", true}, {"ol>", true}}), Ids{kTool});
  EXPECT_EQ(encode({{"x<", false}, {"|e", false}, {"nd|>", true}}),
            Ids{thief} + Bytes("nd|>"));
  // A control token that the template wrote stays one.
  EXPECT_EQ(encode({{"x", false}, {"<|end|>", true}}), Bytes("x") + Ids{kEnd});
  EXPECT_EQ(encode({{"x", false}, {"", false}, {"<|end|>", true}}),
            Bytes("x") + Ids{kEnd});
  EXPECT_EQ(encode({{"x", false}, {"<|end|>", false}}),
            Ids{thief} + Bytes("nd|>"));
}

TEST(TokenizerTest, FindsNoTokenInTheTextOfAControlTokenThatIsData) {
  TokenizerModel model = SmallVocabulary();
  model.tokens[kTool] = std::string("<|e");
  const auto tokenizer = Make(model);
  EXPECT_EQ(Encode(*tokenizer, "<|e<|end|>", SpecialTokens::kAsText),
            Ids{kTool} + Bytes("<|end|>"));
}

TEST(TokenizerTest, DecodesToValidUtf8) {
  const auto tokenizer = Make(SmallVocabulary());
  const Ids ids = Ids{kHello, 0xE2, 0x82, kEnd, 0xAC, 0xFF};
  EXPECT_EQ(tokenizer->Decode(ids, /*skip_special=*/false),
            "hello\uFFFD<|end|>\uFFFD\uFFFD");
  EXPECT_EQ(tokenizer->Decode(ids, /*skip_special=*/true), "hello\u20AC\uFFFD");
}

TEST(TokenizerTest, AnswersForIdsThatDoNotExist) {
  const auto tokenizer = Make(SmallVocabulary());
  for (const int32_t id : {-1, tokenizer->vocab_size(), INT32_MAX, INT32_MIN}) {
    EXPECT_EQ(tokenizer->TokenBytes(id), "");
    EXPECT_FALSE(tokenizer->IsSpecial(id));
    EXPECT_EQ(tokenizer->Decode({id}, false), "");
  }
}

TEST(TokenizerTest, LimitsTheText) {
  const auto tokenizer = Make(SmallVocabulary());
  const std::string text(Tokenizer::kMaxTextBytes + 1, 'x');
  for (const auto& result :
       {tokenizer->Encode(text, SpecialTokens::kRecognise),
        tokenizer->EncodeSegments({{text.substr(1), true}, {"y", false}})}) {
    EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(result.status().message()), HasSubstr("4194304"));
  }
}

TEST(TokenizerTest, IsLinearInItsText) {
  const auto tokenizer = Make(SmallVocabulary());
  for (const char* unit : {"a", " ", "7", "<", "<|end|>", "\xFF", "\n"}) {
    std::string text;
    while (text.size() < (1 << 20)) text += unit;
    size_t size = 0;
    for (const int32_t id : Encode(*tokenizer, text)) {
      size += tokenizer->TokenBytes(id).size();
    }
    EXPECT_EQ(size, text.size());
  }
}

TEST(TokenizerTest, FingerprintsIdsBytesAndSpecial) {
  const std::string base = Make(SmallVocabulary())->fingerprint();
  EXPECT_EQ(base.size(), 64u);
  EXPECT_EQ(Make(SmallVocabulary())->fingerprint(), base);

  TokenizerModel model = SmallVocabulary();
  std::swap(model.tokens[65], model.tokens[66]);
  EXPECT_NE(Make(model)->fingerprint(), base);

  model = SmallVocabulary();
  model.types[kTool] = static_cast<int32_t>(TokenType::kControl);
  EXPECT_NE(Make(model)->fingerprint(), base);

  model = SmallVocabulary();
  model.tokens[kTool] = "<fool>";
  EXPECT_NE(Make(model)->fingerprint(), base);
}

TEST(TokenizerTest, LeavesPaddingOutOfTheFingerprint) {
  TokenizerModel model = SmallVocabulary();
  for (const char* text : {"[PAD268]", "[PAD269]"}) {
    model.tokens.push_back(text);
    model.types.push_back(static_cast<int32_t>(TokenType::kUnused));
  }
  const auto padded = Make(model);
  EXPECT_EQ(padded->fingerprint(), Make(SmallVocabulary())->fingerprint());
  EXPECT_EQ(padded->TokenBytes(kTool + 1), "");
  EXPECT_EQ(Encode(*padded, "[PAD268]"), Bytes("[PAD268]"));
}

TEST(TokenizerTest, ServesManyThreads) {
  const auto tokenizer = Make(SmallVocabulary());
  const Ids expected = Encode(*tokenizer, "hello <|end|> 123");
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i) {
        EXPECT_EQ(Encode(*tokenizer, "hello <|end|> 123"), expected);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(TokenizerTest, LimitsTheSpecialTokens) {
  TokenizerModel model = SmallVocabulary();
  for (size_t i = 0; i < Tokenizer::kMaxSpecialBytes / 256; ++i) {
    std::string text = std::to_string(i);
    text.resize(256, '-');
    model.tokens.push_back(text);
    model.types.push_back(static_cast<int32_t>(TokenType::kControl));
  }
  const auto tokenizer = Tokenizer::Create(model);
  EXPECT_THAT(std::string(tokenizer.status().message()),
              HasSubstr("more than 1048576 bytes"));
}

struct BadModel {
  const char* field;
  std::function<void(TokenizerModel*)> spoil;
};

TEST(TokenizerTest, NamesTheFieldThatIsWrong) {
  const auto normal = static_cast<int32_t>(TokenType::kNormal);
  const std::vector<BadModel> cases = {
      {"kind: \"bert\"", [](auto* m) { m->kind = "bert"; }},
      {"scores: have no place", [](auto* m) { m->scores = {1}; }},
      {"leading_space: has no place",
       [](auto* m) { m->leading_space = LeadingSpace::kStretch; }},
      {"leading_space: unknown value 4",
       [](auto* m) { m->leading_space = static_cast<LeadingSpace>(4); }},
      {"unk_id: 268", [](auto* m) { m->unk_id = 268; }},
      {"normalized_ids[1]: 268 is not in",
       [](auto* m) {
         m->normalized_ids = {kEnd, 268};
       }},
      {"normalized_ids[0]: 65 is neither",
       [](auto* m) { m->normalized_ids = {65}; }},
      {"pre: unknown", [](auto* m) { m->pre = std::string("x"); }},
      {"tokens: 0", [](auto* m) { m->tokens.clear(), m->types.clear(); }},
      {"types: ", [](auto* m) { m->types.pop_back(); }},
      {"bos_id: -1", [](auto* m) { m->bos_id = -1; }},
      {"eos_id: 268", [](auto* m) { m->eos_id = 268; }},
      {"add_bos: ", [](auto* m) { m->bos_id.reset(), m->add_bos = true; }},
      {"tokens[66]: \"A\" repeats tokens[65]",
       [](auto* m) { m->tokens[66] = "A"; }},
      {"tokens[65]: 0 bytes", [](auto* m) { m->tokens[65] = ""; }},
      {"tokens[265]: 0 bytes", [](auto* m) { m->tokens[kEnd] = ""; }},
      {"tokens[265]: 257 bytes",
       [](auto* m) { m->tokens[kEnd] = std::string(257, 'x'); }},
      {"tokens[65]: 4097 bytes",
       [](auto* m) { m->tokens[65] = std::string(4097, 'x'); }},
      {"tokens[65]: \"a b\" is not in the byte-level spelling",
       [](auto* m) { m->tokens[65] = "a b"; }},
      {"tokens[65]: ", [](auto* m) { m->tokens[65] = "\xFF"; }},
      {"types[65]: 6", [](auto* m) { m->types[65] = 6; }},
      {"types[65]: 99", [](auto* m) { m->types[65] = 99; }},
      {"types[65]: -7", [](auto* m) { m->types[65] = -7; }},
      {"merges[0]: \"he\"", [](auto* m) { m->merges[0] = "he"; }},
      {"merges[0]: ", [](auto* m) { m->merges[0] = "h e l"; }},
      {"merges[1]: \"z z\" needs \"zz\"",
       [](auto* m) { m->merges[1] = "z z"; }},
      {"merges[1]: \"h e\" is there twice",
       [](auto* m) { m->merges[1] = "h e"; }},
      {"merges[0]: ", [=](auto* m) { m->types['h'] = normal + 3; }},
  };
  for (const BadModel& bad : cases) {
    TokenizerModel model = SmallVocabulary();
    bad.spoil(&model);
    const auto result = Tokenizer::Create(std::move(model));
    EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(result.status().message()), HasSubstr(bad.field));
  }
}

}  // namespace
}  // namespace specwire
