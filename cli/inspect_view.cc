// SPDX-License-Identifier: Apache-2.0
#include "cli/inspect_view.h"

#include <cmath>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/quoted.h"
#include "cli/table.h"
#include "common/model/engine_names.h"
#include "common/model/memory.h"
#include "common/text/printable.h"

namespace specwire::cli {
namespace {

using Json = nlohmann::ordered_json;

// Contexts that people ask for.
constexpr int kUsualLengths[] = {2048, 8192};

std::string Mebibytes(int64_t bytes) {
  return absl::StrFormat("%.1f", static_cast<double>(bytes) / (1 << 20));
}

// As people write it: 1000000, not 1e+06.
std::string NumberText(float value) {
  const bool whole = value == std::trunc(value) && std::fabs(value) < 1e15F;
  return whole ? absl::StrFormat("%.0f", value) : absl::StrCat(value);
}

// "0-4, 6-10, 12" of the layers that are local.
std::string LayerRanges(const std::vector<bool>& local) {
  std::vector<std::string> ranges;
  for (size_t i = 0; i < local.size(); ++i) {
    if (!local[i]) continue;
    const size_t first = i;
    while (i + 1 < local.size() && local[i + 1]) ++i;
    ranges.push_back(first == i ? absl::StrCat(i)
                                : absl::StrCat(first, "-", i));
  }
  return absl::StrJoin(ranges, ", ");
}

std::string ScalingText(const ModelCard& card) {
  const RopeScaling& scaling = card.config.rope_scaling;
  if (card.rope_factors) return "rope scaling by the file's own factors";
  switch (scaling.kind) {
    case RopeScaling::Kind::kNone:
      return "";
    case RopeScaling::Kind::kLinear:
      return absl::StrCat("rope scaling linear, factor ",
                          NumberText(scaling.factor));
    case RopeScaling::Kind::kLlama3:
      return absl::StrCat("rope scaling llama3, factor ",
                          NumberText(scaling.factor),
                          " above ",
                          scaling.original_max_position_embeddings,
                          " positions");
  }
  return "";
}

std::string TokenText(const Tokenizer& tokenizer, int32_t id) {
  return absl::StrCat(id, " ", Quoted(tokenizer.TokenBytes(id)));
}

std::string BosText(const Tokenizer& tokenizer) {
  if (!tokenizer.bos_id().has_value()) return "none";
  return absl::StrCat(TokenText(tokenizer, *tokenizer.bos_id()),
                      tokenizer.add_bos() ? ", added to raw prompts"
                                          : ", not added to raw prompts");
}

std::string EosText(const ModelCard& card) {
  std::vector<std::string> texts;
  for (const int32_t id : card.config.eos_ids) {
    texts.push_back(TokenText(*card.vocabulary.tokenizer, id));
  }
  return texts.empty() ? "none" : absl::StrJoin(texts, ", ");
}

std::string ChatTemplateText(const ModelCard& card) {
  if (!card.has_chat_template()) return "none";
  if (card.chat_template.ok()) return "yes";
  return absl::StrCat("cannot be used: ",
                      ErrorLine(card.chat_template.message()));
}

// What is told of a draft model in place of a tokenizer.
void AddDraftRows(const DraftModelInfo& draft, std::vector<TableRow>* rows) {
  rows->push_back(
      {"draft model for",
       draft.target.empty() ? "no target by name" : Printable(draft.target)});
  rows->push_back({"head",
                   absl::StrCat(draft.head_token_ids.empty()
                                    ? static_cast<size_t>(draft.vocab_size)
                                    : draft.head_token_ids.size(),
                                " of ",
                                draft.vocab_size,
                                " tokens")});
  rows->push_back({"trained on",
                   absl::StrCat(draft.training_tokens,
                                " tokens in ",
                                draft.training_steps,
                                " steps")});
  for (const auto& [title, text] :
       {std::pair("data", &draft.data),
        std::pair("description", &draft.description),
        std::pair("target digest", &draft.target_digest)}) {
    if (!text->empty()) rows->push_back({title, Printable(*text)});
  }
}

void AddTokenizerRows(const ModelCard& card, std::vector<TableRow>* rows) {
  const Tokenizer& tokenizer = *card.vocabulary.tokenizer;
  const std::string pre = Printable(tokenizer.model().pre);
  rows->push_back({"tokenizer",
                   absl::StrCat(Printable(tokenizer.model().kind),
                                pre.empty() ? "" : ", pre-tokenizer ",
                                pre,
                                ", ",
                                card.vocabulary.size,
                                " tokens")});
  rows->push_back({"BOS", BosText(tokenizer)});
  rows->push_back({"EOS", EosText(card)});
  rows->push_back({"chat template", ChatTemplateText(card)});
}

std::string MemoryTable(const ModelCard& card, absl::Span<const int> lengths) {
  TableRow header = {"memory in MiB", "weights"};
  for (const int length : lengths) {
    header.push_back(absl::StrCat("KV cache of ", length));
  }
  std::vector<TableRow> rows = {std::move(header)};
  for (const ModelCard::Weights& weights : card.weights) {
    TableRow row = {weights.dtype == kFloat32Dtype
                        ? weights.engine
                        : absl::StrCat(weights.engine, ", ", weights.dtype),
                    Mebibytes(weights.bytes)};
    for (const int length : lengths) {
      row.push_back(Mebibytes(KvBytes(weights.engine, card.config, length)));
    }
    rows.push_back(std::move(row));
  }
  return TableText(rows);
}

// A number as people wrote it: the nearest double to 1e-5F is not 0.00001.
double AsWritten(float value) {
  double number = 0;
  return absl::SimpleAtod(absl::StrCat(value), &number) ? number : 0;
}

Json ConfigJson(const ModelCard& card) {
  const ModelConfig& config = card.config;
  Json json = {{"num_layers", config.num_layers},
               {"hidden_size", config.hidden_size},
               {"intermediate_size", config.intermediate_size},
               {"num_heads", config.num_heads},
               {"num_kv_heads", config.num_kv_heads},
               {"head_dim", config.head_dim},
               {"max_position_embeddings", config.max_position_embeddings},
               {"rms_norm_eps", AsWritten(config.rms_norm_eps)},
               {"rope_theta", AsWritten(config.rope_theta)},
               {"sliding_window", config.sliding_window},
               {"local_layers", Json::array()},
               {"activation",
                config.activation == Activation::kSilu ? "silu" : "gelu_tanh"},
               {"qkv_bias", config.qkv_bias},
               {"qk_norm", config.qk_norm},
               {"post_norms", config.post_norms},
               {"tied_head", card.tied_head}};
  for (int layer = 0; layer < config.num_layers; ++layer) {
    if (config.is_local(layer)) json["local_layers"].push_back(layer);
  }
  return json;
}

Json TokenJson(const Tokenizer& tokenizer, int32_t id) {
  return {{"id", id}, {"text", std::string(tokenizer.TokenBytes(id))}};
}

Json TokenizerJson(const ModelCard& card) {
  const Tokenizer& tokenizer = *card.vocabulary.tokenizer;
  Json json = {{"kind", tokenizer.model().kind},
               {"pre", tokenizer.model().pre},
               {"bos", nullptr},
               {"add_bos", tokenizer.add_bos()},
               {"eos", Json::array()},
               {"has_chat_template", card.has_chat_template()},
               {"chat_template_error", card.chat_template.message()}};
  if (tokenizer.bos_id().has_value()) {
    json["bos"] = TokenJson(tokenizer, *tokenizer.bos_id());
  }
  for (const int32_t id : card.config.eos_ids) {
    json["eos"].push_back(TokenJson(tokenizer, id));
  }
  return json;
}

Json DraftJson(const DraftModelInfo& draft) {
  return {{"target", draft.target},
          {"target_digest", draft.target_digest},
          {"head_tokens",
           draft.head_token_ids.empty() ? static_cast<size_t>(draft.vocab_size)
                                        : draft.head_token_ids.size()},
          {"training_tokens", draft.training_tokens},
          {"training_steps", draft.training_steps},
          {"data", draft.data},
          {"description", draft.description}};
}

}  // namespace

std::vector<int> ShownLengths(const ModelConfig& config, int max_model_len) {
  if (max_model_len > 0) return {max_model_len};
  std::vector<int> lengths;
  for (const int length : kUsualLengths) {
    if (length < config.max_position_embeddings) lengths.push_back(length);
  }
  lengths.push_back(config.max_position_embeddings);
  return lengths;
}

std::vector<std::string> Features(const ModelCard& card) {
  const ModelConfig& config = card.config;
  std::vector<std::string> features = {
      config.activation == Activation::kSilu ? "silu" : "gelu (tanh)",
      absl::StrCat("rope_theta ", NumberText(config.rope_theta))};
  const auto add = [&](bool has, std::string feature) {
    if (has) features.push_back(std::move(feature));
  };
  const std::string scaling = ScalingText(card);
  add(!scaling.empty(), scaling);
  const std::string layers = LayerRanges(config.local_layers);
  add(!layers.empty(),
      absl::StrCat("window of ",
                   config.sliding_window,
                   " in layers ",
                   layers,
                   config.local_rope_theta > 0
                       ? absl::StrCat(" with rope_theta ",
                                      NumberText(config.local_rope_theta))
                       : ""));
  add(config.qk_norm, "norms of queries and keys");
  add(config.qkv_bias, "biases of queries, keys and values");
  add(config.post_norms, "norms behind attention and feed-forward");
  const float usual =
      static_cast<float>(1 / std::sqrt(static_cast<double>(config.head_dim)));
  add(std::fabs(config.attention_scale - usual) > 1e-6F * usual,
      absl::StrCat("attention scale ", NumberText(config.attention_scale)));
  add(config.embedding_scale != 1.0F,
      absl::StrCat("embeddings times ", NumberText(config.embedding_scale)));
  add(card.tied_head, "tied head");
  return features;
}

std::string InspectText(const ModelCard& card, absl::Span<const int> lengths) {
  const ModelConfig& config = card.config;
  std::vector<std::string> types;
  for (const ModelCard::Tensors& tensors : card.tensors) {
    types.push_back(absl::StrCat(tensors.count,
                                 " in ",
                                 tensors.type,
                                 " (",
                                 Mebibytes(tensors.bytes),
                                 " MiB)"));
  }
  std::vector<TableRow> rows = {
      {"model", absl::StrCat(Printable(card.name), ", ", card.format)},
      {"architecture",
       absl::StrCat(Printable(config.architecture),
                    ", ",
                    config.num_layers,
                    " layers, width ",
                    config.hidden_size,
                    ", feed-forward ",
                    config.intermediate_size)},
      {"attention",
       absl::StrCat(config.num_heads,
                    " heads of ",
                    config.head_dim,
                    " on ",
                    config.num_kv_heads,
                    " of keys and values")},
      {"features", absl::StrJoin(Features(card), "; ")},
      {"context", absl::StrCat(config.max_position_embeddings, " tokens")},
      {"parameters", absl::StrCat(card.num_parameters)},
      {"tensors", absl::StrJoin(types, ", ")}};
  if (card.vocabulary.draft.has_value()) {
    AddDraftRows(*card.vocabulary.draft, &rows);
  } else {
    AddTokenizerRows(card, &rows);
  }
  rows.push_back({"vocabulary", Printable(card.vocabulary.fingerprint)});
  // They cover the weights as an engine has them.
  for (const ModelCard::Digest& digest : card.digests) {
    rows.push_back({&digest == card.digests.data() ? "model digest" : "",
                    absl::StrCat(digest.digest, " ", digest.engine)});
  }
  return absl::StrCat(TableText(rows), "\n", MemoryTable(card, lengths));
}

Json InspectJson(const ModelCard& card, absl::Span<const int> lengths) {
  Json json = {{"path", card.path},
               {"format", card.format},
               {"name", card.name},
               {"architecture", card.config.architecture},
               {"config", ConfigJson(card)},
               {"features", Features(card)},
               {"num_parameters", card.num_parameters},
               {"tensors", Json::array()},
               {"vocab_size", card.vocabulary.size},
               {"vocabulary_fingerprint", card.vocabulary.fingerprint},
               {"model_digests", Json::object()}};
  for (const ModelCard::Digest& digest : card.digests) {
    json["model_digests"][digest.engine] = digest.digest;
  }
  for (const ModelCard::Tensors& tensors : card.tensors) {
    json["tensors"].push_back({{"type", tensors.type},
                               {"count", tensors.count},
                               {"bytes", tensors.bytes}});
  }
  if (card.vocabulary.draft.has_value()) {
    json["draft_model"] = DraftJson(*card.vocabulary.draft);
  } else {
    json["tokenizer"] = TokenizerJson(card);
  }
  json["memory"] = Json::array();
  for (const ModelCard::Weights& weights : card.weights) {
    Json caches = Json::array();
    for (const int length : lengths) {
      caches.push_back(
          {{"max_model_len", length},
           {"kv_bytes", KvBytes(weights.engine, card.config, length)}});
    }
    Json memory = {{"engine", weights.engine}};
    if (weights.engine == kReferenceEngine) memory["dtype"] = weights.dtype;
    memory["weight_bytes"] = weights.bytes;
    memory["kv_cache"] = std::move(caches);
    json["memory"].push_back(std::move(memory));
  }
  return json;
}

}  // namespace specwire::cli
