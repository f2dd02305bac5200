// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/convert.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace specwire {
namespace {

constexpr int kMaxNameBytes = 256;
constexpr size_t kSha256HexLength = 64;

absl::Status CheckLength(absl::string_view field, int64_t length, int limit) {
  if (length <= limit) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, ": at most ", limit, " allowed, got ", length));
}

absl::Status CheckAtLeast(absl::string_view field, int64_t value, int64_t min) {
  if (value >= min) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, ": must be >= ", min, ", got ", value));
}

absl::Status CheckDigest(absl::string_view field, absl::string_view digest) {
  const bool hex =
      std::all_of(digest.begin(), digest.end(), [](unsigned char c) {
        return absl::ascii_isdigit(c) || (c >= 'a' && c <= 'f');
      });
  if (hex && digest.size() == kSha256HexLength) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      field, ": must be ", kSha256HexLength, " lower-case hexadecimal digits"));
}

template <class T, class Field>
std::vector<T> ToVector(const Field& field) {
  return std::vector<T>(field.begin(), field.end());
}

}  // namespace

absl::StatusOr<SamplingParams> FromProto(const v1::SamplingParams& message,
                                         int64_t default_seed) {
  SPECWIRE_RETURN_IF_ERROR(
      CheckLength("logit_bias", message.logit_bias().size(), kMaxLogitBiases));
  SamplingParams params;
  if (message.has_temperature()) params.temperature = message.temperature();
  if (message.has_top_k()) params.top_k = message.top_k();
  if (message.has_top_p()) params.top_p = message.top_p();
  if (message.has_min_p()) params.min_p = message.min_p();
  if (message.has_repetition_penalty()) {
    params.repetition_penalty = message.repetition_penalty();
  }
  if (message.has_frequency_penalty()) {
    params.frequency_penalty = message.frequency_penalty();
  }
  if (message.has_presence_penalty()) {
    params.presence_penalty = message.presence_penalty();
  }
  params.seed = message.has_seed() ? message.seed() : default_seed;
  for (const v1::LogitBias& entry : message.logit_bias()) {
    params.logit_bias.push_back({entry.token_id(), entry.bias()});
  }
  return params;
}

v1::SamplingParams ToProto(const SamplingParams& params) {
  v1::SamplingParams message;
  message.set_temperature(params.temperature);
  message.set_top_k(params.top_k);
  message.set_top_p(params.top_p);
  message.set_min_p(params.min_p);
  message.set_repetition_penalty(params.repetition_penalty);
  message.set_frequency_penalty(params.frequency_penalty);
  message.set_presence_penalty(params.presence_penalty);
  message.set_seed(params.seed);
  for (const LogitBias& entry : params.logit_bias) {
    v1::LogitBias* bias = message.add_logit_bias();
    bias->set_token_id(entry.token_id);
    bias->set_bias(entry.bias);
  }
  return message;
}

absl::StatusOr<StopCriteria> FromProto(const v1::StopCriteria& message) {
  SPECWIRE_RETURN_IF_ERROR(CheckLength(
      "stop_token_ids", message.stop_token_ids().size(), kMaxStopTokenIds));
  SPECWIRE_RETURN_IF_ERROR(
      CheckLength("stop", message.stop().size(), kMaxStopTexts));
  StopCriteria stop;
  if (message.has_max_tokens()) stop.max_tokens = message.max_tokens();
  stop.min_tokens = message.min_tokens();
  stop.stop_token_ids = ToVector<int32_t>(message.stop_token_ids());
  stop.stop = ToVector<std::string>(message.stop());
  stop.include_stop_str_in_output = message.include_stop_str_in_output();
  stop.ignore_eos = message.ignore_eos();
  return stop;
}

v1::StopCriteria ToProto(const StopCriteria& stop) {
  v1::StopCriteria message;
  if (stop.max_tokens.has_value()) message.set_max_tokens(*stop.max_tokens);
  message.set_min_tokens(stop.min_tokens);
  message.mutable_stop_token_ids()->Assign(stop.stop_token_ids.begin(),
                                           stop.stop_token_ids.end());
  message.mutable_stop()->Assign(stop.stop.begin(), stop.stop.end());
  message.set_include_stop_str_in_output(stop.include_stop_str_in_output);
  message.set_ignore_eos(stop.ignore_eos);
  return message;
}

absl::StatusOr<AcceptanceRule> FromProto(v1::AcceptanceRule rule) {
  switch (rule) {
    case v1::ACCEPTANCE_RULE_UNSPECIFIED:
    case v1::ACCEPTANCE_RULE_COUPLED:
      return AcceptanceRule::kCoupled;
    case v1::ACCEPTANCE_RULE_RATIO:
      return AcceptanceRule::kRatio;
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("rule: there is no rule ", static_cast<int>(rule)));
  }
}

v1::AcceptanceRule ToProto(AcceptanceRule rule) {
  return rule == AcceptanceRule::kRatio ? v1::ACCEPTANCE_RULE_RATIO
                                        : v1::ACCEPTANCE_RULE_COUPLED;
}

absl::StatusOr<std::vector<DraftDistribution>> FromProto(
    const google::protobuf::RepeatedPtrField<v1::SparseDistribution>&
        messages) {
  int64_t size = 0;
  for (const v1::SparseDistribution& message : messages) {
    size += std::max(message.token_ids_size(), message.probabilities_size());
  }
  SPECWIRE_RETURN_IF_ERROR(
      CheckLength("q's tokens in all", size, kMaxProposalDistribution));
  std::vector<DraftDistribution> distributions;
  distributions.reserve(static_cast<size_t>(messages.size()));
  for (const v1::SparseDistribution& message : messages) {
    distributions.push_back(
        {.token_ids = ToVector<int32_t>(message.token_ids()),
         .probabilities = ToVector<float>(message.probabilities())});
  }
  return distributions;
}

void ToProto(absl::Span<const DraftDistribution> distributions,
             google::protobuf::RepeatedPtrField<v1::SparseDistribution>* out) {
  for (const DraftDistribution& q : distributions) {
    v1::SparseDistribution* const message = out->Add();
    message->mutable_token_ids()->Assign(q.token_ids.begin(),
                                         q.token_ids.end());
    message->mutable_probabilities()->Assign(q.probabilities.begin(),
                                             q.probabilities.end());
  }
}

absl::StatusOr<FinishReason> FromProto(v1::FinishReason reason) {
  switch (reason) {
    case v1::FINISH_REASON_UNSPECIFIED:
      return FinishReason::kNone;
    case v1::FINISH_REASON_STOP:
      return FinishReason::kStop;
    case v1::FINISH_REASON_LENGTH:
      return FinishReason::kLength;
    case v1::FINISH_REASON_ABORTED:
      return FinishReason::kAborted;
    case v1::FINISH_REASON_ERROR:
      return FinishReason::kError;
    default:
      return absl::InvalidArgumentError(absl::StrCat(
          "reason: there is no finish reason ", static_cast<int>(reason)));
  }
}

v1::FinishReason ToProto(FinishReason reason) {
  switch (reason) {
    case FinishReason::kNone:
      return v1::FINISH_REASON_UNSPECIFIED;
    case FinishReason::kStop:
      return v1::FINISH_REASON_STOP;
    case FinishReason::kLength:
      return v1::FINISH_REASON_LENGTH;
    case FinishReason::kAborted:
      return v1::FINISH_REASON_ABORTED;
    case FinishReason::kError:
      return v1::FINISH_REASON_ERROR;
  }
  return v1::FINISH_REASON_UNSPECIFIED;
}

absl::string_view FinishReasonName(FinishReason reason) {
  switch (reason) {
    case FinishReason::kNone:
      return "none";
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kAborted:
      return "abort";
    case FinishReason::kError:
      return "error";
  }
  return "none";
}

v1::PositionLogprobs ToProto(const PositionLogprobs& logprobs) {
  const auto set = [](const TokenLogprob& from, v1::TokenLogprob* to) {
    to->set_token_id(from.token_id);
    to->set_logprob(std::isnan(from.logprob)
                        ? -std::numeric_limits<float>::infinity()
                        : static_cast<float>(from.logprob));
  };
  v1::PositionLogprobs message;
  set(logprobs.chosen, message.mutable_chosen());
  message.mutable_top()->Reserve(static_cast<int>(logprobs.top.size()));
  for (const TokenLogprob& candidate : logprobs.top) {
    set(candidate, message.add_top());
  }
  return message;
}

absl::StatusOr<PositionLogprobs> FromProto(const v1::PositionLogprobs& message,
                                           int32_t token,
                                           int top,
                                           int vocab_size) {
  if (message.chosen().token_id() != token || !message.has_chosen()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "chosen: is not of token ", token, ", which stands there"));
  }
  SPECWIRE_RETURN_IF_ERROR(CheckLength("top", message.top_size(), top));
  absl::Status status;
  const auto convert = [&](const v1::TokenLogprob& from) -> TokenLogprob {
    if (from.token_id() < 0 || from.token_id() >= vocab_size) {
      status = absl::InvalidArgumentError(absl::StrCat(
          "token_id: ", from.token_id(), " is not in [0, ", vocab_size, ")"));
    }
    // Not a number is refused too.
    if (!(from.logprob() <= 0)) {
      status = absl::InvalidArgumentError(
          absl::StrCat("logprob: must be at most 0, got ", from.logprob()));
    }
    return {from.token_id(), static_cast<double>(from.logprob())};
  };
  PositionLogprobs logprobs;
  logprobs.chosen = convert(message.chosen());
  for (const v1::TokenLogprob& candidate : message.top()) {
    logprobs.top.push_back(convert(candidate));
  }
  SPECWIRE_RETURN_IF_ERROR(status);
  return logprobs;
}

v1::ModelDescription ToProto(const ModelInfo& info,
                             absl::string_view vocabulary_fingerprint,
                             int max_num_sequences) {
  v1::ModelDescription message;
  message.set_name(info.name);
  message.set_model_digest(info.model_digest);
  message.set_vocabulary_fingerprint(std::string(vocabulary_fingerprint));
  message.set_architecture(info.architecture);
  message.set_engine(info.engine);
  message.set_vocab_size(info.vocab_size);
  message.set_max_model_len(info.max_model_len);
  message.mutable_eos_token_ids()->Assign(info.eos_ids.begin(),
                                          info.eos_ids.end());
  message.set_max_num_sequences(max_num_sequences);
  message.set_synthetic(info.synthetic);
  return message;
}

absl::StatusOr<ModelInfo> FromProto(const v1::ModelDescription& message) {
  SPECWIRE_RETURN_IF_ERROR(CheckAtLeast(
      "name's length", static_cast<int64_t>(message.name().size()), 1));
  SPECWIRE_RETURN_IF_ERROR(
      CheckLength("name's length",
                  static_cast<int64_t>(message.name().size()),
                  kMaxNameBytes));
  SPECWIRE_RETURN_IF_ERROR(
      CheckLength("architecture's length",
                  static_cast<int64_t>(message.architecture().size()),
                  kMaxNameBytes));
  SPECWIRE_RETURN_IF_ERROR(
      CheckLength("engine's length",
                  static_cast<int64_t>(message.engine().size()),
                  kMaxNameBytes));
  SPECWIRE_RETURN_IF_ERROR(CheckDigest("model_digest", message.model_digest()));
  SPECWIRE_RETURN_IF_ERROR(
      CheckDigest("vocabulary_fingerprint", message.vocabulary_fingerprint()));
  SPECWIRE_RETURN_IF_ERROR(CheckAtLeast("vocab_size", message.vocab_size(), 1));
  SPECWIRE_RETURN_IF_ERROR(
      CheckAtLeast("max_model_len", message.max_model_len(), 1));
  SPECWIRE_RETURN_IF_ERROR(
      CheckAtLeast("max_num_sequences", message.max_num_sequences(), 1));
  SPECWIRE_RETURN_IF_ERROR(CheckLength(
      "eos_token_ids", message.eos_token_ids().size(), kMaxEosTokenIds));
  for (const int32_t token : message.eos_token_ids()) {
    if (token < 0 || token >= message.vocab_size()) {
      return absl::InvalidArgumentError(absl::StrCat("eos_token_ids: token id ",
                                                     token,
                                                     " is not in [0, ",
                                                     message.vocab_size(),
                                                     ")"));
    }
  }
  ModelInfo info;
  info.name = message.name();
  info.architecture = message.architecture();
  info.engine = message.engine();
  info.model_digest = message.model_digest();
  info.vocab_size = message.vocab_size();
  info.max_model_len = message.max_model_len();
  info.eos_ids = ToVector<int32_t>(message.eos_token_ids());
  info.synthetic = message.synthetic();
  return info;
}

v1::TokenizerModel ToProto(const TokenizerModel& model) {
  v1::TokenizerModel message;
  message.set_kind(model.kind);
  message.set_pre(model.pre);
  message.mutable_tokens()->Assign(model.tokens.begin(), model.tokens.end());
  message.mutable_types()->Assign(model.types.begin(), model.types.end());
  message.mutable_merges()->Assign(model.merges.begin(), model.merges.end());
  if (model.bos_id.has_value()) message.set_bos_id(*model.bos_id);
  if (model.eos_id.has_value()) message.set_eos_id(*model.eos_id);
  message.set_add_bos(model.add_bos);
  message.set_chat_template(model.chat_template);
  message.mutable_scores()->Assign(model.scores.begin(), model.scores.end());
  if (model.unk_id.has_value()) message.set_unk_id(*model.unk_id);
  message.set_leading_space(static_cast<v1::LeadingSpace>(model.leading_space));
  message.mutable_normalized_ids()->Assign(model.normalized_ids.begin(),
                                           model.normalized_ids.end());
  return message;
}

absl::StatusOr<TokenizerModel> FromProto(const v1::TokenizerModel& message) {
  SPECWIRE_RETURN_IF_ERROR(
      CheckLength("tokens", message.tokens().size(), kMaxVocabularySize));
  SPECWIRE_RETURN_IF_ERROR(
      CheckLength("types", message.types().size(), kMaxVocabularySize));
  SPECWIRE_RETURN_IF_ERROR(
      CheckLength("merges", message.merges().size(), kMaxMerges));
  SPECWIRE_RETURN_IF_ERROR(
      CheckLength("chat_template's bytes",
                  static_cast<int64_t>(message.chat_template().size()),
                  kMaxChatTemplateBytes));
  SPECWIRE_RETURN_IF_ERROR(
      CheckLength("scores", message.scores().size(), kMaxVocabularySize));
  SPECWIRE_RETURN_IF_ERROR(CheckLength(
      "normalized_ids", message.normalized_ids().size(), kMaxVocabularySize));
  TokenizerModel model;
  model.kind = message.kind();
  model.pre = message.pre();
  model.tokens = ToVector<std::string>(message.tokens());
  model.types = ToVector<int32_t>(message.types());
  model.merges = ToVector<std::string>(message.merges());
  if (message.has_bos_id()) model.bos_id = message.bos_id();
  if (message.has_eos_id()) model.eos_id = message.eos_id();
  model.add_bos = message.add_bos();
  model.chat_template = message.chat_template();
  model.scores = ToVector<float>(message.scores());
  if (message.has_unk_id()) model.unk_id = message.unk_id();
  // A value that has no name is for Tokenizer::Create to refuse.
  model.leading_space = static_cast<LeadingSpace>(message.leading_space());
  model.normalized_ids = ToVector<int32_t>(message.normalized_ids());
  return model;
}

std::string SerializeTokenizer(const TokenizerModel& model) {
  return ToProto(model).SerializeAsString();
}

absl::StatusOr<TokenizerModel> ParseTokenizer(absl::string_view bytes) {
  v1::TokenizerModel message;
  if (bytes.size() > INT32_MAX ||
      !message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return absl::InvalidArgumentError(
        "tokenizer: the bytes are not a TokenizerModel message");
  }
  return FromProto(message);
}

absl::Status CheckSequence(int32_t choice, absl::string_view tenant_salt) {
  if (choice < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("choice: ", choice, " is negative"));
  }
  if (tenant_salt.size() > kMaxTenantSaltBytes) {
    return absl::InvalidArgumentError(absl::StrCat("tenant_salt: ",
                                                   tenant_salt.size(),
                                                   " bytes, at most ",
                                                   kMaxTenantSaltBytes));
  }
  return absl::OkStatus();
}

}  // namespace specwire
