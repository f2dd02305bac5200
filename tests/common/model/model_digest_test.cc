// SPDX-License-Identifier: Apache-2.0
// The digest that is told without loading is that of the loaded engine.
#include "common/model/model_digest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/model/engine.h"
#include "common/model/engine_names.h"
#include "common/model/model_files.h"
#include "common/model/model_parts.h"
#include "tests/common/model/gguf_copy.h"
#include "tests/common/model/shape_file.h"
#include "tests/common/model/tiny_file.h"
#include "tests/testing/families.h"
#include "tests/testing/gguf_writer.h"

namespace specwire {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

absl::StatusOr<std::string> Told(const std::string& path,
                                 const char* engine,
                                 int num_layers = 0) {
  const auto files = ModelFiles::Open(path);
  if (!files.ok()) return files.status();
  const auto parts = ModelParts::Read(**files, num_layers);
  if (!parts.ok()) return parts.status();
  return ModelDigest(*parts, engine);
}

absl::StatusOr<std::string> Loaded(const std::string& path,
                                   const char* engine,
                                   int num_layers = 0) {
  EngineOptions options;
  options.engine = engine;
  options.kv_cache_mib = 16;
  options.num_layers = num_layers;
  options.allow_draft_model = true;
  const auto loaded = LoadEngine(path, options);
  if (!loaded.ok()) return loaded.status();
  return (*loaded)->info().model_digest;
}

void ExpectSameDigests(const std::string& path, int num_layers = 0) {
  std::set<std::string> digests;
  for (const char* const engine : kEngineNames) {
    SCOPED_TRACE(absl::StrCat(path, " ", engine));
    const auto told = Told(path, engine, num_layers);
    const auto loaded = Loaded(path, engine, num_layers);
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    ASSERT_TRUE(told.ok()) << told.status();
    EXPECT_EQ(*told, *loaded);
    EXPECT_EQ(told->size(), 64u);
    digests.insert(*told);
  }
  EXPECT_EQ(digests.size(), 2u) << "both engines have one digest";
}

class FamilyDigestTest : public ::testing::TestWithParam<const char*> {};

TEST_P(FamilyDigestTest, IsThatOfTheLoadedModel) {
  const std::string folder =
      absl::StrCat(SPECWIRE_TEST_DATA "/families/", GetParam());
  ExpectSameDigests(folder);

  const auto files = ModelFiles::Open(folder);
  ASSERT_TRUE(files.ok()) << files.status();
  const std::string gguf = absl::StrCat(
      ::testing::TempDir(), "specwire_digest_", GetParam(), ".gguf");
  ASSERT_TRUE(WriteBytes(gguf, GgufCopy(**files)));
  ExpectSameDigests(gguf);
}

INSTANTIATE_TEST_SUITE_P(All,
                         FamilyDigestTest,
                         ::testing::ValuesIn(kFamilies),
                         [](const auto& test) {
                           return std::string(test.param);
                         });

class ShapeDigestTest : public ::testing::TestWithParam<ModelShape> {};

TEST_P(ShapeDigestTest, IsThatOfTheLoadedModel) {
  ExpectSameDigests(WriteModel(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(
    All,
    ShapeDigestTest,
    ::testing::Values(
        ModelShape{.name = "digest_q4_0",
                   .hidden = 64,
                   .heads = 4,
                   .kv_heads = 2,
                   .head_dim = 16,
                   .ffn = 96,
                   .types = {GgmlType::kQ4_0}},
        ModelShape{.name = "digest_q4_1_under_q8_0",
                   .hidden = 64,
                   .heads = 4,
                   .kv_heads = 2,
                   .head_dim = 16,
                   .ffn = 96,
                   .untied = true,
                   .types = {GgmlType::kQ8_0,
                             GgmlType::kQ4_1,
                             GgmlType::kQ4_1,
                             GgmlType::kQ4_1}},
        // Query, key and value of different types are one matrix.
        ModelShape{.name = "digest_mixed",
                   .hidden = 64,
                   .heads = 4,
                   .kv_heads = 2,
                   .head_dim = 16,
                   .ffn = 96,
                   .untied = true,
                   .types = {GgmlType::kQ4_1,
                             GgmlType::kQ4_0,
                             GgmlType::kQ4_0,
                             GgmlType::kQ8_0,
                             GgmlType::kF16}},
        ModelShape{.name = "digest_k_types",
                   .hidden = 256,
                   .heads = 4,
                   .kv_heads = 2,
                   .head_dim = 64,
                   .ffn = 512,
                   .types = {GgmlType::kQ6_K,
                             GgmlType::kQ4_K,
                             GgmlType::kQ4_K,
                             GgmlType::kQ5_K,
                             GgmlType::kQ5_0,
                             GgmlType::kQ5_1}},
        // Rows that are not whole groups, an embedding with more rows than the
        // tokenizer has tokens, rotary factors in the file.
        ModelShape{.name = "digest_odd",
                   .hidden = 40,
                   .heads = 4,
                   .kv_heads = 1,
                   .head_dim = 10,
                   .ffn = 72,
                   .vocab = 333,
                   .rope_factors = true,
                   .types = {GgmlType::kF32, GgmlType::kBF16}}),
    [](const auto& test) { return std::string(test.param.name); });

TEST(ModelDigestTest, OfTheTinyModelAndADraftModelIsThatOfTheLoadedOnes) {
  ExpectSameDigests(SPECWIRE_TINY_MODEL);
  ExpectSameDigests(SPECWIRE_TINY_DRAFT_MODEL);
}

TEST(ModelDigestTest, CoversTheComputedLayersAlone) {
  ExpectSameDigests(SPECWIRE_TINY_MODEL, 2);
  EXPECT_NE(*Told(SPECWIRE_TINY_MODEL, kInt8Engine, 2),
            *Told(SPECWIRE_TINY_MODEL, kInt8Engine));
}

void SetFirstValue(TinyFile* tiny, const char* tensor, float value) {
  std::string& data = tiny->tensors.at(tensor).data;
  std::memcpy(data.data(), &value, sizeof(value));
}

TEST(ModelDigestTest, AnyOneChangeChangesIt) {
  const struct {
    const char* what;
    std::function<void(TinyFile*)> change;
  } changes[] = {
      {"a weight of the embedding",
       [](TinyFile* t) { SetFirstValue(t, "token_embd.weight", 9); }},
      {"a weight of the last layer",
       [](TinyFile* t) { SetFirstValue(t, "blk.2.ffn_down.weight", 9); }},
      {"a norm",
       [](TinyFile* t) { SetFirstValue(t, "blk.1.attn_norm.weight", 9); }},
      {"the last norm",
       [](TinyFile* t) { SetFirstValue(t, "output_norm.weight", 9); }},
      {"a token", [](TinyFile* t) { t->tokens[300] += "x"; }},
      {"the kind of a token", [](TinyFile* t) { t->token_types[300] = 4; }},
      {"the end of a text",
       [](TinyFile* t) { t->ints["tokenizer.ggml.eos_token_id"] = 1; }},
      {"the chat template",
       [](TinyFile* t) { t->strings["tokenizer.chat_template"] += " "; }},
      {"rope_theta",
       [](TinyFile* t) { t->floats["llama.rope.freq_base"] = 10001; }},
      {"epsilon",
       [](TinyFile* t) {
         t->floats["llama.attention.layer_norm_rms_epsilon"] = 2e-5F;
       }},
      {"a tensor's type", [](TinyFile* t) {
         TinyFile::Tensor& tensor = t->tensors.at("blk.0.ffn_up.weight");
         tensor.type = GgmlType::kF16;
         tensor.data.resize(tensor.data.size() / 2);
         // Half-precision zeros and small numbers; never an infinity.
         for (size_t i = 1; i < tensor.data.size(); i += 2) tensor.data[i] = 0;
       }}};
  const std::string same = TinyFile().Write("digest_same");
  for (const char* const engine : kEngineNames) {
    SCOPED_TRACE(engine);
    std::set<std::string> digests = {*Told(SPECWIRE_TINY_MODEL, engine)};
    // The file's name is no part of it.
    EXPECT_EQ(*Told(same, engine), *digests.begin());
    for (const auto& [what, change] : changes) {
      SCOPED_TRACE(what);
      TinyFile tiny;
      change(&tiny);
      const auto told = Told(tiny.Write("digest_changed"), engine);
      ASSERT_TRUE(told.ok()) << told.status();
      EXPECT_TRUE(digests.insert(*told).second);
    }
  }
}

TEST(ModelDigestTest, RefusesWhatCannotBeLoadedInTheSameWords) {
  TinyFile nan;
  SetFirstValue(
      &nan, "blk.1.ffn_up.weight", std::numeric_limits<float>::quiet_NaN());
  TinyFile norm;
  SetFirstValue(
      &norm, "blk.1.attn_norm.weight", std::numeric_limits<float>::infinity());
  TinyFile unknown;
  unknown.tensors["blk.0.unknown.weight"] =
      unknown.tensors.at("blk.0.attn_norm.weight");
  const struct {
    std::string path;
    const char* said;
  } cases[] = {{nan.Write("digest_nan"), "blk.1.ffn_up.weight"},
               {norm.Write("digest_norm"), "blk.1.attn_norm.weight"},
               {unknown.Write("digest_unknown"), "blk.0.unknown.weight"}};
  for (const auto& [path, said] : cases) {
    for (const char* const engine : kEngineNames) {
      SCOPED_TRACE(absl::StrCat(path, " ", engine));
      const absl::Status told = Told(path, engine).status();
      EXPECT_EQ(told.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_EQ(told.message(), Loaded(path, engine).status().message());
      EXPECT_THAT(std::string(told.message()),
                  AllOf(HasSubstr(path), HasSubstr(said)));
    }
  }
}

}  // namespace
}  // namespace specwire
