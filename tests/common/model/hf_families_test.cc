// SPDX-License-Identifier: Apache-2.0
// Small tokenizers in the form of each model family, against what Hugging
// Face's libraries make of the same texts (tests/data/hf_tokenizers, from
// make_hf_tokenizers.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/civil_time.h"
#include "absl/time/time.h"
#include "common/model/hf_tokenizer.h"
#include "common/text/chat_template.h"
#include "common/text/detokenizer.h"
#include "common/text/tokenizer.h"

namespace specwire {
namespace {

using ::testing::HasSubstr;
using Ids = std::vector<int32_t>;
using nlohmann::json;

json ReadJson(const std::string& name) {
  std::ifstream in(absl::StrCat(SPECWIRE_TEST_DATA "/hf_tokenizers/", name));
  return json::parse(in);
}

class HfFamiliesTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    auto model =
        ReadHfTokenizer(SPECWIRE_TEST_DATA "/hf_tokenizers/" + GetParam());
    ASSERT_TRUE(model.ok()) << model.status();
    auto tokenizer = Tokenizer::Create(*std::move(model));
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    tokenizer_ = *std::move(tokenizer);
    texts_ = ReadJson("strings.json").get<std::vector<std::string>>();
    golden_ = ReadJson(GetParam() + "/golden.json");
    ASSERT_GE(texts_.size(), 300u);
    ASSERT_EQ(golden_["texts"].size(), texts_.size());
  }

  Ids Encode(const std::string& text, SpecialTokens special) const {
    const auto ids = tokenizer_->Encode(text, special);
    EXPECT_TRUE(ids.ok()) << ids.status();
    return *ids;
  }

  std::unique_ptr<Tokenizer> tokenizer_;
  std::vector<std::string> texts_;
  json golden_;
};

TEST_P(HfFamiliesTest, EncodesEveryText) {
  for (size_t i = 0; i < texts_.size(); ++i) {
    const json& row = golden_["texts"][i];
    const Ids ids = row["ids"].get<Ids>();
    EXPECT_EQ(Encode(texts_[i], SpecialTokens::kRecognise), ids)
        << i << ": " << texts_[i];
    EXPECT_EQ(Encode(texts_[i], SpecialTokens::kAsText),
              row.contains("as_text") ? row["as_text"].get<Ids>() : ids)
        << i << ": " << texts_[i];
  }
}

TEST_P(HfFamiliesTest, DecodesEveryText) {
  // Where it finds a special token in normalised text, the library decodes it
  // with the space that it was found with, and then does not know it as a
  // special one. That is not followed.
  const Ids& normalized = tokenizer_->model().normalized_ids;
  size_t left_out = 0;
  for (size_t i = 0; i < texts_.size(); ++i) {
    const json& row = golden_["texts"][i];
    const Ids ids = row["ids"].get<Ids>();
    if (std::find_first_of(
            ids.begin(), ids.end(), normalized.begin(), normalized.end()) !=
        ids.end()) {
      ++left_out;
      continue;
    }
    for (const bool skip : {false, true}) {
      EXPECT_EQ(tokenizer_->Decode(ids, skip),
                row.value(skip ? "shown" : "decoded", texts_[i]))
          << i << ": " << texts_[i];
    }
  }
  EXPECT_LT(left_out, texts_.size() / 10);
}

// The pieces of a text that is continued keep the space that Decode drops.
TEST_P(HfFamiliesTest, StreamsEveryText) {
  for (size_t i = 0; i < texts_.size(); ++i) {
    const Ids ids = golden_["texts"][i]["ids"].get<Ids>();
    Detokenizer detokenizer(tokenizer_.get(), /*skip_special=*/false);
    std::string text;
    for (const int32_t id : ids) text += detokenizer.Push(id);
    text += detokenizer.Finish();
    const std::string decoded = tokenizer_->Decode(ids, false);
    const bool adds = tokenizer_->model().leading_space != LeadingSpace::kNone;
    if (adds && !text.empty() && text[0] == ' ') text.erase(0, 1);
    EXPECT_EQ(text, decoded);
  }
}

TEST_P(HfFamiliesTest, KnowsHowAPromptBeginsAndEnds) {
  const auto id = [&](const char* name) {
    return golden_[name].is_null()
               ? std::nullopt
               : std::optional<int32_t>(golden_[name].get<int32_t>());
  };
  EXPECT_EQ(tokenizer_->bos_id(), id("bos_id"));
  EXPECT_EQ(tokenizer_->model().eos_id, id("eos_id"));
  EXPECT_EQ(tokenizer_->add_bos(), golden_["add_bos"].get<bool>());
}

TEST_P(HfFamiliesTest, RendersAndEncodesEveryConversation) {
  const auto chat = ChatTemplate::Create(tokenizer_->model().chat_template);
  ASSERT_TRUE(chat.ok()) << chat.status();
  const json chats = ReadJson("chats.json");
  const json expected = ReadJson(GetParam() + "/chats.json");
  ASSERT_EQ(expected.size(), chats.size());
  int rendered = 0;
  for (size_t i = 0; i < chats.size(); ++i) {
    std::vector<ChatMessage> messages;
    for (const json& message : chats[i]["messages"]) {
      messages.push_back({message["role"], message["content"]});
    }
    ChatContext context;
    context.add_generation_prompt = chats[i]["add_generation_prompt"];
    context.bos_token =
        std::string(tokenizer_->TokenBytes(tokenizer_->bos_id().value_or(-1)));
    context.eos_token = std::string(
        tokenizer_->TokenBytes(tokenizer_->model().eos_id.value_or(-1)));
    context.now =
        absl::FromCivil(absl::CivilDay(2025, 3, 9), absl::UTCTimeZone());
    const auto segments = (*chat)->Render(messages, context);
    if (expected[i].contains("error")) {
      EXPECT_THAT(std::string(segments.status().message()),
                  HasSubstr(expected[i]["error"].get<std::string>()));
      continue;
    }
    ASSERT_TRUE(segments.ok()) << i << ": " << segments.status();
    std::string text;
    // Where a message has the text of a special token the ids are not the
    // library's, which takes it for one.
    bool forged = false;
    for (const TextSegment& segment : *segments) {
      text += segment.text;
      forged |= !segment.special_allowed &&
                Encode(segment.text, SpecialTokens::kRecognise) !=
                    Encode(segment.text, SpecialTokens::kAsText);
    }
    EXPECT_EQ(text, expected[i]["text"].get<std::string>()) << i;
    ++rendered;
    const auto ids = tokenizer_->EncodeSegments(*segments);
    ASSERT_TRUE(ids.ok()) << ids.status();
    if (!forged) {
      EXPECT_EQ(*ids, expected[i]["ids"].get<Ids>()) << i;
    }
  }
  EXPECT_GT(rendered, 20);
}

INSTANTIATE_TEST_SUITE_P(Families,
                         HfFamiliesTest,
                         ::testing::Values("llama2_legacy",
                                           "llama2",
                                           "mistral",
                                           "tekken",
                                           "llama3",
                                           "smollm2",
                                           "qwen25",
                                           "qwen3",
                                           "gemma3"),
                         [](const auto& family) { return family.param; });

}  // namespace
}  // namespace specwire
