// SPDX-License-Identifier: Apache-2.0
// The reader of Hugging Face's tokenizer files: what it reads, and what it
// refuses, by name and under random damage.
#include "common/model/hf_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/model/hf_tokenizer_json.h"
#include "common/text/tokenizer.h"
#include "tests/testing/mutator.h"

namespace specwire {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

json Added(int id, const std::string& content, bool special = true) {
  return {{"id", id},
          {"content", content},
          {"single_word", false},
          {"lstrip", false},
          {"rstrip", false},
          {"normalized", false},
          {"special", special}};
}

// A byte-level tokenizer in the form of Qwen's.
json ByteLevel() {
  return json::parse(R"({
    "version": "1.0", "truncation": null, "padding": null,
    "added_tokens": [],
    "normalizer": {"type": "NFC"},
    "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
      {"type": "Split", "behavior": "Isolated", "invert": false,
       "pattern": {"Regex": ""}},
      {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
       "use_regex": false}]},
    "post_processor": {"type": "ByteLevel"},
    "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "dropout": null, "unk_token": null,
      "continuing_subword_prefix": "", "end_of_word_suffix": "",
      "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
      "vocab": {"a": 0, "b": 1, "ab": 2, "<s>": 3}, "merges": ["a b"]}})");
}

constexpr char kQwen2[] =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

json Qwen() {
  json root = ByteLevel();
  root["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = kQwen2;
  root["added_tokens"] = {Added(3, "<s>"), Added(5, "<tool>", false)};
  return root;
}

// SentencePiece's in the form of Llama 2's.
json Llama() {
  json root = json::parse(R"({
    "added_tokens": [],
    "normalizer": null,
    "pre_tokenizer": {"type": "Metaspace", "replacement": "\u2581",
      "prepend_scheme": "first", "split": false},
    "post_processor": {"type": "TemplateProcessing",
      "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
                 {"Sequence": {"id": "A", "type_id": 0}}],
      "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}},
    "decoder": {"type": "Sequence", "decoders": [
      {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
      {"type": "ByteFallback"}, {"type": "Fuse"},
      {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
    "model": {"type": "BPE", "unk_token": "<unk>", "fuse_unk": true,
      "byte_fallback": true,
      "vocab": {"<unk>": 0, "<s>": 1, "<0x0A>": 2, "\u2581": 3, "a": 4,
                "\u2581a": 5},
      "merges": [["\u2581", "a"]]}})");
  root["added_tokens"] = {Added(0, "<unk>"), Added(1, "<s>")};
  return root;
}

absl::StatusOr<HfTokenizerJson> Read(const json& root) {
  return ReadHfTokenizerJson("t.json", root.dump());
}

void ExpectError(const absl::Status& status, const std::string& message) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr(message));
}

TEST(HfTokenizerJsonTest, ReadsByteLevel) {
  const auto read = Read(Qwen());
  ASSERT_TRUE(read.ok()) << read.status();
  const TokenizerModel& model = read->model;
  EXPECT_EQ(model.kind, "gpt2");
  EXPECT_EQ(model.pre, "qwen2");
  EXPECT_THAT(model.tokens,
              ElementsAre("a", "b", "ab", "<s>", "[PAD4]", "<tool>"));
  EXPECT_THAT(model.types, ElementsAre(1, 1, 1, 3, 5, 4));
  EXPECT_THAT(model.merges, ElementsAre("a b"));
  EXPECT_THAT(model.normalized_ids, IsEmpty());
  EXPECT_FALSE(read->first_id.has_value());
}

TEST(HfTokenizerJsonTest, ReadsSpelledSpaces) {
  json root = Llama();
  root["added_tokens"][1]["normalized"] = true;
  const auto read = Read(root);
  ASSERT_TRUE(read.ok()) << read.status();
  const TokenizerModel& model = read->model;
  EXPECT_EQ(model.kind, "llama");
  EXPECT_EQ(model.pre, "");
  EXPECT_THAT(model.types, ElementsAre(2, 3, 6, 1, 1, 1));
  EXPECT_THAT(model.merges, ElementsAre("\u2581 a"));
  EXPECT_EQ(model.unk_id, 0);
  EXPECT_EQ(model.leading_space, LeadingSpace::kTextStart);
  EXPECT_THAT(model.normalized_ids, ElementsAre(1));
  EXPECT_EQ(read->first_id, 1);
}

TEST(HfTokenizerJsonTest, KnowsWhereSpacesAreAdded) {
  const auto space = [](const json& root) {
    const auto read = Read(root);
    EXPECT_TRUE(read.ok()) << read.status();
    return read->model.leading_space;
  };
  json root = Llama();
  root["pre_tokenizer"]["prepend_scheme"] = "always";
  EXPECT_EQ(space(root), LeadingSpace::kStretchWithout);
  root["pre_tokenizer"] = nullptr;
  root["normalizer"] = json::parse(
      R"({"type": "Sequence", "normalizers": [
          {"type": "Prepend", "prepend": "\u2581"},
          {"type": "Replace", "pattern": {"String": " "},
           "content": "\u2581"}]})");
  EXPECT_EQ(space(root), LeadingSpace::kStretch);

  root["decoder"]["decoders"].erase(3);
  root["normalizer"] = root["normalizer"]["normalizers"][1];
  EXPECT_EQ(space(root), LeadingSpace::kNone);
  root["pre_tokenizer"] = json::parse(
      R"({"type": "Split", "pattern": {"String": " "},
          "behavior": "MergedWithPrevious", "invert": false})");
  EXPECT_EQ(space(root), LeadingSpace::kNone);
  root["normalizer"] = nullptr;
  root["pre_tokenizer"] = Llama()["pre_tokenizer"];
  root["pre_tokenizer"]["prepend_scheme"] = "never";
  EXPECT_EQ(space(root), LeadingSpace::kNone);
}

TEST(HfTokenizerJsonTest, KnowsPreTokenizers) {
  const auto pre = [](const json& root) {
    const auto read = Read(root);
    return read.ok() ? read->model.pre : std::string(read.status().message());
  };
  json root = Qwen();
  root["normalizer"] = nullptr;
  const json gpt2 = {{"type", "ByteLevel"}, {"add_prefix_space", false}};
  root["pre_tokenizer"] = gpt2;
  EXPECT_EQ(pre(root), "default");
  root["pre_tokenizer"] = {
      {"type", "Sequence"},
      {"pretokenizers",
       {{{"type", "Digits"}, {"individual_digits", true}}, gpt2}}};
  EXPECT_EQ(pre(root), "smollm");
  root["pre_tokenizer"]["pretokenizers"][0]["individual_digits"] = false;
  EXPECT_THAT(pre(root), HasSubstr("t.json: pre_tokenizer: {\"pretokenizers"));
  root = Qwen();
  root["normalizer"] = nullptr;
  EXPECT_THAT(pre(root), HasSubstr("without NFC and with ignore_merges false"));
  root = Qwen();
  root["model"]["ignore_merges"] = true;
  EXPECT_THAT(pre(root), HasSubstr("with NFC and with ignore_merges true"));
  root = Qwen();
  json& split = root["pre_tokenizer"]["pretokenizers"][0];
  split["pattern"]["Regex"] = std::string(3000, 'x');
  EXPECT_THAT(pre(root), HasSubstr("xxx... with NFC"));
  EXPECT_LT(pre(root).size(), 400u);
}

struct BadJson {
  const char* message;
  std::function<void(json*)> spoil;
};

TEST(HfTokenizerJsonTest, NamesWhatIsWrongInByteLevel) {
  const std::vector<BadJson> cases = {
      {"model.type: \"Unigram\" is not \"BPE\"",
       [](json* r) {
         (*r)["model"] = {{"type", "Unigram"}, {"vocab", {{"a", -1.5}}}};
       }},
      {"model.type: \"WordPiece\" is not",
       [](json* r) { (*r)["model"]["type"] = "WordPiece"; }},
      {"model.type: null", [](json* r) { (*r)["model"] = 5; }},
      {"t.json: is not an object", [](json* r) { *r = json::array(); }},
      {"model.dropout: 0.1", [](json* r) { (*r)["model"]["dropout"] = 0.1; }},
      {"model.continuing_subword_prefix: \"##\"",
       [](json* r) { (*r)["model"]["continuing_subword_prefix"] = "##"; }},
      {"model.end_of_word_suffix: ",
       [](json* r) { (*r)["model"]["end_of_word_suffix"] = "</w>"; }},
      {"model.ignore_merges: 1 is neither",
       [](json* r) { (*r)["model"]["ignore_merges"] = 1; }},
      {"model.byte_fallback: has no place",
       [](json* r) { (*r)["model"]["byte_fallback"] = true; }},
      {"model.unk_token: \"a\" stands for",
       [](json* r) { (*r)["model"]["unk_token"] = "a"; }},
      {"model.unk_token: \"zz\" is not a token",
       [](json* r) { (*r)["model"]["unk_token"] = "zz"; }},
      {"model.vocab: \"a\": -1 is not an id",
       [](json* r) { (*r)["model"]["vocab"]["a"] = -1; }},
      {"model.vocab: \"a\": 1048576 is not an id",
       [](json* r) { (*r)["model"]["vocab"]["a"] = 1 << 20; }},
      {"model.vocab: \"a\": 1.5 is not",
       [](json* r) { (*r)["model"]["vocab"]["a"] = 1.5; }},
      {"model.vocab: \"a\": [1] is not",
       [](json* r) { (*r)["model"]["vocab"]["a"] = {1}; }},
      {"model.vocab: id 1048575 is too high for 6 tokens",
       [](json* r) { (*r)["model"]["vocab"]["a"] = (1 << 20) - 1; }},
      {"\"b\" has the id of \"a\", 0",
       [](json* r) { (*r)["model"]["vocab"]["b"] = 0; }},
      {"model.vocab: has no tokens",
       [](json* r) {
         (*r)["model"]["vocab"] = json::object();
         (*r)["added_tokens"] = json::array();
       }},
      {"model.merges: is not a list",
       [](json* r) { (*r)["model"]["merges"] = true; }},
      {"model.merges: is not a list",
       [](json* r) {
         (*r)["model"]["merges"] = {{"x", "a b"}};
       }},
      {"model.vocab: is not an object",
       [](json* r) { (*r)["model"]["vocab"] = "x"; }},
      {"added_tokens: is not a list",
       [](json* r) { (*r)["added_tokens"] = 7; }},
      {"model.merges[0]: \"ab\" is not two",
       [](json* r) { (*r)["model"]["merges"] = {"ab"}; }},
      {"model.merges[1]: \"a b c\" is not two",
       [](json* r) {
         (*r)["model"]["merges"] = {"a b", "a b c"};
       }},
      {"model.merges[0]: [\"a\"] is not two",
       [](json* r) { (*r)["model"]["merges"] = json::parse(R"([["a"]])"); }},
      {"model.merges[0]: \"a b c\" is not two",
       [](json* r) {
         (*r)["model"]["merges"] = json::parse(R"([["a b", "c"]])");
       }},
      {"added_tokens[0].id: -3",
       [](json* r) { (*r)["added_tokens"][0]["id"] = -3; }},
      {"added_tokens[0]: 7 is not a token",
       [](json* r) { (*r)["added_tokens"][0] = 7; }},
      {"added_tokens[1]: lstrip is not supported (token \"<tool>\")",
       [](json* r) { (*r)["added_tokens"][1]["lstrip"] = true; }},
      {"added_tokens[1]: rstrip is not",
       [](json* r) { (*r)["added_tokens"][1]["rstrip"] = true; }},
      {"added_tokens[1]: single_word is not",
       [](json* r) { (*r)["added_tokens"][1]["single_word"] = true; }},
      {"added_tokens[1].special: \"yes\"",
       [](json* r) { (*r)["added_tokens"][1]["special"] = "yes"; }},
      {"\"<s>\" has the ids 3 and 4",
       [](json* r) { (*r)["added_tokens"][0]["id"] = 4; }},
      {"\"<tool>\" has the id of \"a\", 0",
       [](json* r) { (*r)["added_tokens"][1]["id"] = 0; }},
      {"added_tokens: \"<s>\" is there twice",
       [](json* r) { (*r)["added_tokens"][1] = Added(3, "<s>"); }},
      {"reads as other bytes",
       [](json* r) { (*r)["added_tokens"][1]["content"] = "\u00E9"; }},
      {"normalizer: {\"type\":\"NFKC\"} is not supported",
       [](json* r) { (*r)["normalizer"]["type"] = "NFKC"; }},
      {"pre_tokenizer: null", [](json* r) { (*r)["pre_tokenizer"] = nullptr; }},
      {"pre_tokenizer: ",
       [](json* r) {
         (*r)["pre_tokenizer"]["pretokenizers"][1]["add_prefix_space"] = true;
       }},
      {"decoder", [](json* r) { (*r)["decoder"] = nullptr; }},
      {"post_processor: ",
       [](json* r) { (*r)["post_processor"]["type"] = "RobertaProcessing"; }},
  };
  for (const BadJson& bad : cases) {
    json root = Qwen();
    bad.spoil(&root);
    if (absl::StrContains(bad.message, "decoder")) {
      // Without byte-level decoding it is read as the other kind.
      ExpectError(Read(root).status(), "model.byte_fallback: is not true");
      continue;
    }
    ExpectError(Read(root).status(), bad.message);
  }
}

TEST(HfTokenizerJsonTest, NamesWhatIsWrongInSpelledSpaces) {
  const std::vector<BadJson> cases = {
      {"model.byte_fallback: is not true",
       [](json* r) { (*r)["model"]["byte_fallback"] = false; }},
      {"model.ignore_merges: ",
       [](json* r) { (*r)["model"]["ignore_merges"] = true; }},
      {"model.unk_token: \"<unk>\" stands for single",
       [](json* r) { (*r)["model"]["fuse_unk"] = false; }},
      {"pre_tokenizer: ",
       [](json* r) { (*r)["pre_tokenizer"]["split"] = true; }},
      {"pre_tokenizer: ",
       [](json* r) { (*r)["pre_tokenizer"]["replacement"] = "_"; }},
      {"pre_tokenizer: ",
       [](json* r) { (*r)["pre_tokenizer"].erase("prepend_scheme"); }},
      {"normalizer: {\"type\":\"Lowercase\"} is not supported",
       [](json* r) {
         (*r)["normalizer"] = {{"type", "Lowercase"}};
       }},
      {"decoder: ", [](json* r) { (*r)["decoder"]["decoders"].erase(3); }},
      {"decoder: ", [](json* r) { (*r)["decoder"]["decoders"].erase(1); }},
      {"added_tokens: \"<0x0A>\" is a byte's",
       [](json* r) { (*r)["added_tokens"].push_back(Added(2, "<0x0A>")); }},
      {"has a space, and normalized is true",
       [](json* r) {
         (*r)["added_tokens"][1]["content"] = "< s>";
         (*r)["added_tokens"][1]["id"] = 9;
         (*r)["added_tokens"][1]["normalized"] = true;
       }},
      {"post_processor: ",
       [](json* r) {
         json& single = (*r)["post_processor"]["single"];
         single.push_back(single[0]);
       }},
      {"post_processor: ",
       [](json* r) {
         json& single = (*r)["post_processor"]["single"];
         std::swap(single[0], single[1]);
       }},
      {"post_processor: id 9 has no token",
       [](json* r) {
         (*r)["post_processor"]["special_tokens"]["<s>"]["ids"] = {9};
       }},
      {"post_processor: ",
       [](json* r) {
         (*r)["post_processor"]["special_tokens"]["<s>"]["ids"] = {1, 1};
       }},
  };
  for (const BadJson& bad : cases) {
    json root = Llama();
    bad.spoil(&root);
    ExpectError(Read(root).status(), bad.message);
  }
}

TEST(HfTokenizerJsonTest, RefusesWhatIsNoJson) {
  const auto error = [](const std::string& text) {
    return ReadHfTokenizerJson("t.json", text).status();
  };
  ExpectError(error(""), "t.json: malformed JSON at byte 1");
  ExpectError(error("{"), "malformed JSON");
  ExpectError(error("{} x"), "malformed JSON");
  ExpectError(error("{\"a\": \"\xC3\"}"), "malformed JSON");
  ExpectError(error("{\"\xFF\": 1}"), "malformed JSON");
  ExpectError(error("{\"a\": 1, \"a\": 2}"), "t.json: a: is there twice");
  ExpectError(error(R"({"model": {"type": "BPE"}, "model": {}})"),
              "model: is there twice");
  ExpectError(error(std::string(1 << 20, '[')), "more than 32 levels deep");
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += "{\"a\":";
  ExpectError(error(objects), "a/a/a: more than 32 levels deep");
  ExpectError(error("{\"a\": \"" + std::string(2 << 20, 'x') + "\"}"),
              "t.json: the string at byte 6 is longer than 1048576 bytes");
  ExpectError(error("{\"a\": 1" + std::string(2 << 20, ' ')),
              "t.json: what follows the string at byte 3 is longer than");
  std::string numbers = "[0";
  for (int i = 0; i < 20'000; ++i) numbers += ",1";
  ExpectError(error("{\"x\": " + numbers + "]}"), "x: more than 16384 values");
  ExpectError(error("{\"added_tokens\": [" + numbers + "]]}"),
              "added_tokens: more than 16384 values");
}

TEST(HfTokenizerJsonTest, RefusesATokenThatIsThereTwice) {
  std::string text = Qwen().dump();
  const size_t at = text.find("\"a\":0");
  ASSERT_NE(at, std::string::npos);
  text.insert(at, "\"a\":7,");
  ExpectError(ReadHfTokenizerJson("t.json", text).status(),
              "model.vocab: \"a\" is there twice");
}

TEST(HfTokenizerJsonTest, TakesManyElements) {
  json root = Qwen();
  for (int id = 10; id < 40'000; ++id) {
    std::string token;
    for (int rest = id; rest > 0; rest /= 26) {
      token += static_cast<char>('a' + rest % 26);
    }
    root["model"]["vocab"][token + "Z"] = id;
    root["added_tokens"].push_back(Added(id + 40'000, token + ">"));
  }
  const auto read = Read(root);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->model.tokens.size(), 80'000u);
}

std::string Content(const std::string& family) {
  std::ifstream in(absl::StrCat(
      SPECWIRE_TEST_DATA "/hf_tokenizers/", family, "/tokenizer.json"));
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

TEST(HfTokenizerJsonTest, RefusesEveryCutFile) {
  for (const char* family : {"gemma3", "llama3"}) {
    const std::string text = Content(family);
    ASSERT_TRUE(ReadHfTokenizerJson("t.json", text).ok());
    for (size_t size = 0; size + 1 < text.size(); size += 97) {
      ExpectError(ReadHfTokenizerJson("t.json", text.substr(0, size)).status(),
                  "t.json: malformed JSON at byte");
    }
  }
}

TEST(HfTokenizerJsonTest, SurvivesDamage) {
  Mutator mutator(31,
                  {Qwen().dump(), Llama().dump(), Content("llama2")},
                  {"\"",      "{",       "}",         "[",
                   "]",       ",",       ":",         "null",
                   "true",    "-1",      "1e999",     "1048575",
                   "\"a\"",   "\"id\":", "\"type\":", "\"Sequence\"",
                   "\\u2581", "\\ud800", "\"\"",      "<0x41>"});
  int read_well = 0;
  int made = 0;
  const int rounds = NumMutations(3000);
  for (int i = 0; i < rounds; ++i) {
    auto read = ReadHfTokenizerJson("t.json", mutator.Next());
    if (!read.ok()) {
      EXPECT_EQ(read.status().code(), absl::StatusCode::kInvalidArgument);
      EXPECT_TRUE(absl::StartsWith(read.status().message(), "t.json: "))
          << read.status();
      EXPECT_LT(read.status().message().size(), 1000u);
      continue;
    }
    ++read_well;
    const auto tokenizer = Tokenizer::Create(std::move(read->model));
    if (!tokenizer.ok()) continue;
    ++made;
    const auto ids = (*tokenizer)->Encode("<s> ab\n\u00E9", {});
    ASSERT_TRUE(ids.ok());
    (*tokenizer)->Decode(*ids, false);
  }
  EXPECT_GT(read_well, rounds / 50);
  EXPECT_GT(made, rounds / 100);
}

// A model folder of the files given.
class HfFolderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = absl::StrCat(::testing::TempDir(), "/hf_tokenizer_", getpid());
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void Write(const std::string& name, const std::string& text) const {
    std::ofstream(absl::StrCat(folder_, "/", name)) << text;
  }
  void Write(const std::string& name, const json& value) const {
    Write(name, value.dump());
  }

  std::string folder_;
};

TEST_F(HfFolderTest, NeedsATokenizer) {
  const auto model = ReadHfTokenizer(folder_);
  EXPECT_EQ(model.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(model.status().message()),
              HasSubstr("/tokenizer.json"));
}

TEST_F(HfFolderTest, DoesWithATokenizerAlone) {
  Write("tokenizer.json", Llama());
  const auto model = ReadHfTokenizer(folder_);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->bos_id, 1);
  EXPECT_TRUE(model->add_bos);
  EXPECT_FALSE(model->eos_id.has_value());
  EXPECT_EQ(model->chat_template, "");
}

TEST_F(HfFolderTest, ReadsTheConfiguration) {
  Write("tokenizer.json", Llama());
  json config = {{"bos_token", "<s>"},
                 {"eos_token", {{"content", "<unk>"}, {"lstrip", false}}},
                 {"add_bos_token", false},  // tokenizer.json decides
                 {"added_tokens_decoder", {{"0", Added(0, "<unk>")}}},
                 {"model_max_length", 1e30},
                 {"chat_template", "one"}};
  Write("tokenizer_config.json", config);
  auto model = ReadHfTokenizer(folder_);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->bos_id, 1);
  EXPECT_EQ(model->eos_id, 0);
  EXPECT_TRUE(model->add_bos);
  EXPECT_EQ(model->chat_template, "one");

  config["chat_template"] =
      json::parse(R"([{"name": "tool_use", "template": "x"},
                      {"name": "default", "template": "two"}])");
  config["bos_token"] = nullptr;
  config["add_bos_token"] = true;
  Write("tokenizer_config.json", config);
  // What the configuration says comes first, null too.
  Write("special_tokens_map.json", json{{"bos_token", "<unk>"}});
  model = ReadHfTokenizer(folder_);
  ASSERT_TRUE(model.ok()) << model.status();
  // But the text begins with a token all the same.
  EXPECT_EQ(model->bos_id, 1);
  EXPECT_TRUE(model->add_bos);
  EXPECT_EQ(model->chat_template, "two");

  config.erase("bos_token");
  Write("tokenizer_config.json", config);
  Write("special_tokens_map.json", json{{"bos_token", "<s>"}});
  Write("chat_template.jinja", std::string("three"));
  model = ReadHfTokenizer(folder_);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->bos_id, 1);
  EXPECT_TRUE(model->add_bos);
  EXPECT_EQ(model->chat_template, "three");
}

// Published ones are longer than all the rest of their file.
TEST_F(HfFolderTest, ReadsAConfigThatIsMostlyItsTemplate) {
  Write("tokenizer.json", Llama());
  for (const size_t size : {size_t{1000}, size_t{60'000}, size_t{1'000'000}}) {
    const std::string text = "{{ x }}\n\"" + std::string(size, 'y');
    Write("tokenizer_config.json", json{{"chat_template", text}});
    const auto model = ReadHfTokenizer(folder_);
    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_EQ(model->chat_template, text);
  }
}

TEST_F(HfFolderTest, NamesWhatIsWrongInTheConfiguration) {
  Write("tokenizer.json", Llama());
  const auto error = [&](const json& config) {
    Write("tokenizer_config.json", config);
    return ReadHfTokenizer(folder_).status();
  };
  ExpectError(error(json::array()), "/tokenizer_config.json: is not an object");
  ExpectError(error({{"bos_token", "<x>"}}),
              "/tokenizer_config.json: bos_token: \"<x>\" is not a token of");
  ExpectError(error({{"eos_token", 5}}), "eos_token: is not a token");
  ExpectError(error({{"add_bos_token", "x"}}), "add_bos_token: is neither");
  ExpectError(error({{"add_eos_token", true}}),
              "add_eos_token: true is not supported");
  ExpectError(error({{"bos_token", "<unk>"}}),
              "post_processor: begins a text with token 1, but bos_token is 0");
  ExpectError(error({{"chat_template", 1}}), "chat_template: is neither");
  ExpectError(error({{"chat_template", {{{"name", "default"}}}}}),
              "chat_template: has an element without");
  const json one = {{"name", "default"}, {"template", "x"}};
  ExpectError(error({{"chat_template", {one, one}}}),
              "chat_template: \"default\" is there twice");
  Write("tokenizer_config.json", std::string("{"));
  ExpectError(ReadHfTokenizer(folder_).status(), "malformed JSON");
  Write("tokenizer_config.json", json::object());
  Write("special_tokens_map.json", json{{"eos_token", "<y>"}});
  ExpectError(ReadHfTokenizer(folder_).status(),
              "/special_tokens_map.json: eos_token: \"<y>\"");
  Write("special_tokens_map.json", json::object());
  Write("chat_template.jinja", std::string("\xFF"));
  ExpectError(ReadHfTokenizer(folder_).status(),
              "/chat_template.jinja: is not UTF-8");
  Write("chat_template.jinja", std::string((1 << 20) + 1, 'x'));
  ExpectError(ReadHfTokenizer(folder_).status(),
              "1048577 bytes exceed the limit of 1048576");
}

TEST_F(HfFolderTest, LimitsTheFile) {
  Write("tokenizer.json", std::string("{}"));
  std::filesystem::resize_file(folder_ + "/tokenizer.json",
                               (std::uintmax_t{128} << 20) + 1);
  ExpectError(ReadHfTokenizer(folder_).status(),
              "134217729 bytes exceed the limit of 134217728");
}

}  // namespace
}  // namespace specwire
