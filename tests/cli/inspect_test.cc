// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/inspect_view.h"
#include "cli/model_card.h"
#include "tests/common/model/tiny_file.h"

namespace specwire::cli {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

absl::StatusOr<ModelCard> Read(const std::string& path) {
  const auto files = ModelFiles::Open(path);
  if (!files.ok()) return files.status();
  auto card = ReadModelCard(**files);
  if (!card.ok()) return card;
  const absl::Status digests = AddModelDigests(**files, &*card);
  if (!digests.ok()) return digests;
  return card;
}

std::string TextOf(const std::string& path) {
  const auto card = Read(path);
  if (!card.ok()) return std::string(card.status().message());
  return InspectText(*card, ShownLengths(card->config, 0));
}

TEST(InspectTest, TellsWhatAModelIs) {
  EXPECT_EQ(TextOf(SPECWIRE_TINY_MODEL),
            R"(model          tiny, GGUF
architecture   llama, 3 layers, width 64, feed-forward 128
attention      4 heads of 16 on 2 of keys and values
features       silu; rope_theta 10000; tied head
context        256 tokens
parameters     131520
tensors        29 in F32 (0.5 MiB)
tokenizer      gpt2, pre-tokenizer smollm, 320 tokens
BOS            1 "<|im_start|>", not added to raw prompts
EOS            2 "<|im_end|>"
chat template  yes
vocabulary     59549810b4635f0b5ccfab127aad799c3178c822b3ff7645bdb0f8cf2157eda9
model digest   55f5d2de7d1b1bd075e5dabd47f3d5c773f1bb6f6de671dfa8d07d3f8f3740f7 int8
               bc070fdc75fd920028a3ea58c9e561e829e8768c47662b281dd1caa8066ffdaf reference

memory in MiB        weights  KV cache of 256
int8                 0.1      0.1
reference            0.5      0.2
reference, bfloat16  0.2      0.2
)");
}

TEST(InspectTest, TellsItAsJson) {
  const auto card = Read(SPECWIRE_TINY_MODEL);
  ASSERT_TRUE(card.ok()) << card.status();
  const nlohmann::ordered_json json = InspectJson(*card, {100, 256});
  EXPECT_EQ(json["path"], SPECWIRE_TINY_MODEL);
  EXPECT_EQ(json["format"], "GGUF");
  EXPECT_EQ(json["name"], "tiny");
  EXPECT_EQ(json["config"]["num_layers"], 3);
  EXPECT_EQ(json["config"]["rms_norm_eps"], 1e-5);
  EXPECT_EQ(json["config"]["tied_head"], true);
  EXPECT_EQ(json["num_parameters"], 131520);
  EXPECT_EQ(json["tensors"].dump(),
            R"([{"type":"F32","count":29,"bytes":526080}])");
  EXPECT_EQ(json["vocab_size"], 320);
  EXPECT_EQ(
      json["model_digests"].dump(),
      R"({"int8":"55f5d2de7d1b1bd075e5dabd47f3d5c773f1bb6f6de671dfa8d07d3f8f3740f7",)"
      R"("reference":"bc070fdc75fd920028a3ea58c9e561e829e8768c47662b281dd1caa8066ffdaf"})");
  EXPECT_EQ(json["tokenizer"]["eos"].dump(),
            R"([{"id":2,"text":"<|im_end|>"}])");
  EXPECT_EQ(json["tokenizer"]["has_chat_template"], true);
  EXPECT_EQ(json["tokenizer"]["chat_template_error"], "");
  EXPECT_FALSE(json.contains("draft_model"));
  // Keys and values of 3 layers, 2 heads and 16 values; 7 blocks of 16.
  EXPECT_EQ(json["memory"][0]["engine"], "int8");
  EXPECT_EQ(json["memory"][0]["kv_cache"].dump(),
            R"([{"max_model_len":100,"kv_bytes":43008},)"
            R"({"max_model_len":256,"kv_bytes":98304}])");
  EXPECT_EQ(json["memory"][1]["weight_bytes"], 4 * 131072);
  EXPECT_EQ(json["memory"][2]["dtype"], "bfloat16");
  EXPECT_EQ(json["memory"][2]["weight_bytes"], 2 * 131072);
}

TEST(InspectTest, TellsADraftModelsCard) {
  const auto card = Read(SPECWIRE_TINY_DRAFT_MODEL);
  ASSERT_TRUE(card.ok()) << card.status();
  EXPECT_THAT(
      TextOf(SPECWIRE_TINY_DRAFT_MODEL),
      AllOf(HasSubstr("draft model for  tiny\n"),
            HasSubstr("head             200 of 320 tokens\n"),
            HasSubstr("trained on       7 tokens in 5 steps\n"),
            HasSubstr("description      The tiny model with a trimmed head.\n"),
            HasSubstr("vocabulary       59549810b463"),
            Not(HasSubstr("tokenizer"))));
  const nlohmann::ordered_json json = InspectJson(*card, {256});
  EXPECT_EQ(json["draft_model"]["target"], "tiny");
  EXPECT_EQ(json["draft_model"]["head_tokens"], 200);
  EXPECT_EQ(json["model_digests"].size(), 2u);
  EXPECT_FALSE(json.contains("tokenizer"));
  // The head beside the embedding.
  EXPECT_EQ(json["memory"][1]["weight_bytes"], 4 * (131072 + 200 * 64));
}

TEST(InspectTest, TheDefaultModel) {
  const std::string path =
      SPECWIRE_MODEL_DIR "/SmolLM2-135M-Instruct.Q4_1.gguf";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is absent";
  EXPECT_THAT(
      TextOf(path),
      AllOf(HasSubstr("llama, 30 layers, width 576, feed-forward 1536\n"),
            HasSubstr("9 heads of 64 on 3 of keys and values\n"),
            HasSubstr("parameters     134515008\n"),
            HasSubstr("210 in Q4_1 (63.3 MiB), 1 in Q8_0 (28.7 MiB)"),
            HasSubstr("weights  KV cache of 2048  KV cache of 8192\n"),
            HasSubstr(
                "reference            513.0    90.0              360.0\n")));
}

TEST(InspectTest, TellsWhatAFolderIs) {
  const auto text = [](const std::string& family) {
    return TextOf(absl::StrCat(SPECWIRE_TEST_DATA "/families/", family));
  };
  EXPECT_EQ(text("gemma3/"),
            R"(model          gemma3, Hugging Face folder
architecture   gemma3, 4 layers, width 32, feed-forward 48
attention      4 heads of 16 on 1 of keys and values
features       gelu (tanh); rope_theta 1000000; window of 32 in layers 0-1, 3 with rope_theta 10000; norms of queries and keys; norms behind attention and feed-forward; attention scale 0.223607; embeddings times 5.65685; tied head
context        512 tokens
parameters     49824
tensors        54 in F32 (0.2 MiB)
tokenizer      gpt2, pre-tokenizer llama-bpe, 320 tokens
BOS            1 "<s>", not added to raw prompts
EOS            2 "</s>"
chat template  none
vocabulary     4a757196be5b9dcba75a898e2499fba0a28d8420d5a0fd9673eda9f35d68187b
model digest   636ab374ca75b26504b2a753cc38089a81c28fd0e51e4ab1f982ff96a540c8db int8
               85fc8cca4729e2df5c41602d86fec532e3974273273e9cd6ffbd35e08a1c9640 reference

memory in MiB        weights  KV cache of 512
int8                 0.1      0.1
reference            0.2      0.2
reference, bfloat16  0.1      0.2
)");
  // In several files.
  EXPECT_THAT(text("llama3"),
              AllOf(HasSubstr("rope scaling llama3, factor 8 above 64 "
                              "positions; tied head\n"),
                    HasSubstr("20 in BF16")));
  EXPECT_THAT(text("qwen2"), HasSubstr("biases of queries, keys and values"));
  EXPECT_THAT(text("mistral"), HasSubstr("window of 40 in layers 0-1\n"));
}

TEST(InspectTest, NamesWhatTheConfigurationTurnsOn) {
  ModelCard card;
  card.config.head_dim = 64;
  card.config.attention_scale = 0.125F;
  card.config.rope_theta = 10000;
  EXPECT_THAT(Features(card), ElementsAre("silu", "rope_theta 10000"));

  card.tied_head = true;
  card.config.activation = Activation::kGeluTanh;
  card.config.rope_theta = 1e6F;
  card.config.rope_scaling.kind = RopeScaling::Kind::kLlama3;
  card.config.rope_scaling.factor = 8;
  card.config.rope_scaling.original_max_position_embeddings = 8192;
  card.config.sliding_window = 512;
  card.config.local_layers = {true, true, false, true, false, true, true, true};
  card.config.local_rope_theta = 10000;
  card.config.qk_norm = true;
  card.config.qkv_bias = true;
  card.config.post_norms = true;
  card.config.attention_scale = 0.0625F;
  card.config.embedding_scale = 8;
  EXPECT_THAT(
      Features(card),
      ElementsAre("gelu (tanh)",
                  "rope_theta 1000000",
                  "rope scaling llama3, factor 8 above 8192 positions",
                  "window of 512 in layers 0-1, 3, 5-7 with rope_theta 10000",
                  "norms of queries and keys",
                  "biases of queries, keys and values",
                  "norms behind attention and feed-forward",
                  "attention scale 0.0625",
                  "embeddings times 8",
                  "tied head"));
  card.config.rope_scaling.kind = RopeScaling::Kind::kLinear;
  EXPECT_THAT(Features(card)[2], "rope scaling linear, factor 8");
  card.rope_factors = true;
  EXPECT_THAT(Features(card)[2], "rope scaling by the file's own factors");
}

TEST(InspectTest, ShowsLengthsUpToTheModelsContext) {
  ModelConfig config;
  config.max_position_embeddings = 2048;
  EXPECT_THAT(ShownLengths(config, 0), ElementsAre(2048));
  EXPECT_THAT(ShownLengths(config, 100), ElementsAre(100));
  config.max_position_embeddings = 40960;
  EXPECT_THAT(ShownLengths(config, 0), ElementsAre(2048, 8192, 40960));
}

TEST(InspectTest, SaysThatATemplateCannotBeUsed) {
  TinyFile tiny;
  tiny.strings["tokenizer.chat_template"] = "{% bogus \x1b[2J %}";
  const std::string path = tiny.Write("inspect_template");
  EXPECT_THAT(TextOf(path),
              AllOf(HasSubstr("chat template  cannot be used: chat_template"),
                    Not(HasSubstr("\x1b"))));
  tiny.strings.erase("tokenizer.chat_template");
  EXPECT_THAT(TextOf(tiny.Write("inspect_template")),
              HasSubstr("chat template  none\n"));
}

TEST(InspectTest, ShowsTextOfFilesAndObeysNone) {
  TinyFile tiny;
  tiny.tokens[1] = "<|\x1b]0;mine\x07\n|>";
  tiny.tokens[2] = "\"\xe2\x80\xae";
  EXPECT_THAT(TextOf(tiny.Write("inspect_\x1b[2J")),
              AllOf(HasSubstr("inspect_\\x1b[2J, GGUF\n"),
                    HasSubstr("1 \"<|\\x1b]0;mine\\x07\\n|>\""),
                    HasSubstr("2 \"\\\"\\u202e\""),
                    Not(HasSubstr("\x1b"))));
  auto card = Read(SPECWIRE_TINY_DRAFT_MODEL);
  ASSERT_TRUE(card.ok()) << card.status();
  card->vocabulary.draft->target = "\x1b[2J";
  card->vocabulary.draft->data = "\x1b[2J";
  card->vocabulary.draft->description = "\x1b[2J";
  card->vocabulary.draft->target_digest = "\x1b[2J";
  EXPECT_THAT(InspectText(*card, {256}), Not(HasSubstr("\x1b")));
}

TEST(InspectTest, BrokenFilesAreNamedWithWhatIsWrong) {
  const auto refusal = [](const std::string& name, auto change) {
    TinyFile tiny;
    change(&tiny);
    const std::string path = tiny.Write(name);
    const absl::Status status = Read(path).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status) || absl::IsNotFound(status))
        << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(path));
    return std::string(status.message());
  };
  EXPECT_THAT(refusal("inspect_architecture",
                      [](TinyFile* tiny) {
                        tiny->strings["general.architecture"] = "mamba";
                      }),
              HasSubstr("mamba"));
  EXPECT_THAT(refusal("inspect_heads",
                      [](TinyFile* tiny) {
                        tiny->ints["llama.attention.head_count"] = 0;
                      }),
              HasSubstr("head_count"));
  EXPECT_THAT(refusal("inspect_tensor",
                      [](TinyFile* tiny) {
                        tiny->tensors.erase("blk.1.ffn_up.weight");
                      }),
              HasSubstr("blk.1.ffn_up.weight"));
  EXPECT_THAT(
      refusal("inspect_weight",
              [](TinyFile* tiny) {
                // The last value is not a number.
                std::string& data =
                    tiny->tensors.at("blk.2.attn_output.weight").data;
                data.replace(data.size() - 4, 4, "\xff\xff\xff\x7f");
              }),
      HasSubstr("tensor blk.2.attn_output.weight: value 4095 is not finite"));
  EXPECT_THAT(refusal("inspect_others",
                      [](TinyFile* tiny) {
                        tiny->tensors["blk.0.attn_q.bias"] =
                            tiny->tensors.at("blk.0.attn_norm.weight");
                      }),
              HasSubstr("has no use for it"));
  EXPECT_THAT(refusal("inspect_tokens",
                      [](TinyFile* tiny) { tiny->token_types.pop_back(); }),
              HasSubstr("tokenizer.ggml.token_type"));
  EXPECT_THAT(refusal("inspect_kind",
                      [](TinyFile* tiny) {
                        tiny->strings["tokenizer.ggml.model"] = "bert";
                      }),
              HasSubstr("bert"));
  EXPECT_TRUE(absl::IsNotFound(Read("/nonexistent.gguf").status()));

  const std::string bytes = TinyFile().Build();
  for (const size_t size : {size_t{0}, size_t{10}, bytes.size() / 2}) {
    const std::string path = testing::TempDir() + "inspect_truncated.gguf";
    std::ofstream(path, std::ios::binary) << bytes.substr(0, size);
    EXPECT_THAT(std::string(Read(path).status().message()), HasSubstr(path));
  }
  const std::string folder = testing::TempDir() + "inspect_empty";
  std::filesystem::create_directories(folder);
  EXPECT_THAT(std::string(Read(folder).status().message()), HasSubstr(folder));
}

}  // namespace
}  // namespace specwire::cli
