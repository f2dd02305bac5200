// SPDX-License-Identifier: Apache-2.0
#include "bench/simulate/trace.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "bench/simulate/random.h"
#include "common/base/status_macros.h"

namespace specwire::simulate {
namespace {

constexpr absl::string_view kRunDigits = "0123456789abcdefg";
static_assert(kRunDigits.size() == kMaxTracedRun + 1);

absl::Status Wrong(absl::string_view field, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(field, " ", why));
}

// The place of `character` among `digits`.
absl::StatusOr<int> Digit(absl::string_view field,
                          absl::string_view digits,
                          char character) {
  const size_t at = digits.find(character);
  if (at == absl::string_view::npos) {
    return Wrong(field,
                 absl::StrCat("has the character '",
                              absl::string_view(&character, 1),
                              "', which is no digit"));
  }
  return static_cast<int>(at);
}

float Survival(int digit) {
  return static_cast<float>(digit) /
         static_cast<float>(kSurvivalDigits.size() - 1);
}

template <typename T>
absl::Status Get(const nlohmann::json& json, const char* field, T* value) {
  const auto it = json.find(field);
  if (it == json.end()) return Wrong(field, "is missing");
  if (it->is_string() != std::is_same_v<T, std::string> ||
      it->is_boolean() != std::is_same_v<T, bool> ||
      it->is_number_integer() !=
          (std::is_integral_v<T> && !std::is_same_v<T, bool>)) {
    return Wrong(field, "has another type");
  }
  *value = it->get<T>();
  return absl::OkStatus();
}

absl::Status CheckCount(const char* field, int64_t value) {
  if (value >= 1 && value <= kMaxTracedTokens) return absl::OkStatus();
  return Wrong(
      field,
      absl::StrCat("must be in [1, ", kMaxTracedTokens, "], got ", value));
}

absl::Status ParsePositions(const nlohmann::json& json, Trace* trace) {
  std::string proposed, right, model, survival;
  SPECWIRE_RETURN_IF_ERROR(Get(json, "proposed", &proposed));
  SPECWIRE_RETURN_IF_ERROR(Get(json, "right", &right));
  if (json.contains("model")) {
    SPECWIRE_RETURN_IF_ERROR(Get(json, "model", &model));
  }
  const bool estimates = json.contains("survival");
  if (estimates) SPECWIRE_RETURN_IF_ERROR(Get(json, "survival", &survival));
  const size_t size = proposed.size();
  SPECWIRE_RETURN_IF_ERROR(
      CheckCount("proposed", static_cast<int64_t>(proposed.size())));
  if (right.size() != size) return Wrong("right", "is not as long as proposed");
  if (!model.empty() && model.size() != size) {
    return Wrong("model", "is not as long as proposed");
  }
  size_t next = 0;
  for (size_t i = 0; i < size; ++i) {
    TracePosition position;
    SPECWIRE_ASSIGN_OR_RETURN(position.proposed,
                              Digit("proposed", kRunDigits, proposed[i]));
    SPECWIRE_ASSIGN_OR_RETURN(position.right,
                              Digit("right", kRunDigits, right[i]));
    const int most = std::min(position.proposed, static_cast<int>(size - i));
    if (position.right > most) {
      return Wrong("right",
                   absl::StrCat("exceeds what is there at position ", i));
    }
    position.model = !model.empty() && model[i] == '1';
    for (int j = 0; estimates && j < position.proposed; ++j, ++next) {
      if (next >= survival.size()) return Wrong("survival", "is too short");
      SPECWIRE_ASSIGN_OR_RETURN(
          const int digit, Digit("survival", kSurvivalDigits, survival[next]));
      position.survival.push_back(Survival(digit));
    }
    trace->positions.push_back(std::move(position));
  }
  if (next < survival.size()) return Wrong("survival", "is too long");
  return absl::OkStatus();
}

}  // namespace

std::string FormatTrace(const Trace& trace) {
  std::string proposed, right, model, survival;
  bool any_model = false;
  for (const TracePosition& position : trace.positions) {
    proposed += kRunDigits[static_cast<size_t>(position.proposed)];
    right += kRunDigits[static_cast<size_t>(position.right)];
    model += position.model ? '1' : '0';
    any_model = any_model || position.model;
    for (const float value : position.survival) {
      const double digit = std::clamp(double{value}, 0.0, 1.0) *
                           static_cast<double>(kSurvivalDigits.size() - 1);
      survival += kSurvivalDigits[static_cast<size_t>(std::lround(digit))];
    }
  }
  nlohmann::ordered_json json = {{"question_id", trace.question_id},
                                 {"category", trace.category},
                                 {"drafter", trace.drafter},
                                 {"prompt", trace.prompt_tokens},
                                 {"stopped", trace.stopped},
                                 {"proposed", proposed},
                                 {"right", right}};
  if (any_model) json["model"] = model;
  if (!survival.empty()) json["survival"] = survival;
  return json.dump();
}

absl::StatusOr<Trace> ParseTrace(absl::string_view line) {
  const nlohmann::json json = nlohmann::json::parse(
      line.begin(), line.end(), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return Wrong("the line", "is no JSON object");
  Trace trace;
  int64_t prompt = 0;
  SPECWIRE_RETURN_IF_ERROR(Get(json, "question_id", &trace.question_id));
  SPECWIRE_RETURN_IF_ERROR(Get(json, "category", &trace.category));
  SPECWIRE_RETURN_IF_ERROR(Get(json, "drafter", &trace.drafter));
  SPECWIRE_RETURN_IF_ERROR(Get(json, "prompt", &prompt));
  SPECWIRE_RETURN_IF_ERROR(CheckCount("prompt", prompt));
  trace.prompt_tokens = static_cast<int>(prompt);
  SPECWIRE_RETURN_IF_ERROR(Get(json, "stopped", &trace.stopped));
  SPECWIRE_RETURN_IF_ERROR(ParsePositions(json, &trace));
  return trace;
}

absl::StatusOr<std::vector<Trace>> ReadTraces(std::istream* input,
                                              absl::string_view name) {
  std::vector<Trace> traces;
  std::string line;
  for (int number = 1; std::getline(*input, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    absl::StatusOr<Trace> trace = ParseTrace(line);
    if (!trace.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, ":", number, ": ", trace.status().message()));
    }
    traces.push_back(*std::move(trace));
  }
  if (traces.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": has no traces"));
  }
  return traces;
}

absl::StatusOr<std::vector<Trace>> ReadTraceFile(const std::string& path) {
  std::ifstream file(path);
  if (!file) return absl::NotFoundError(absl::StrCat(path, ": cannot be read"));
  return ReadTraces(&file, path);
}

absl::Status AddLocalTraces(const std::vector<Trace>& local,
                            std::vector<Trace>* traces) {
  using Text = std::tuple<int64_t, std::string, int, size_t>;
  const auto text_of = [](const Trace& trace) {
    return Text(trace.question_id,
                trace.category,
                trace.prompt_tokens,
                trace.positions.size());
  };
  std::map<Text, std::shared_ptr<const Trace>> by_text;
  for (const Trace& trace : local) {
    for (const TracePosition& position : trace.positions) {
      if (position.survival.size() != static_cast<size_t>(position.proposed)) {
        return absl::InvalidArgumentError(
            absl::StrCat("question ",
                         trace.question_id,
                         ": the local trace has no survival"));
      }
    }
    by_text[text_of(trace)] = std::make_shared<Trace>(trace);
  }
  for (Trace& trace : *traces) {
    const auto found = by_text.find(text_of(trace));
    if (found == by_text.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("question ",
                       trace.question_id,
                       ": there is no local trace of the same text"));
    }
    trace.local = found->second;
  }
  return absl::OkStatus();
}

Trace ConstantTrace(
    double acceptance, int run, int num_tokens, uint64_t seed, bool survival) {
  Trace trace;
  trace.category = "constant";
  trace.drafter = "constant";
  trace.positions.resize(static_cast<size_t>(num_tokens));
  Random random(seed);
  int right = 0;
  for (size_t i = trace.positions.size(); i-- > 0;) {
    right = random.Uniform() < acceptance ? right + 1 : 0;
    TracePosition& position = trace.positions[i];
    position.proposed = run;
    position.right = std::min(right, run);
    for (int j = 0; survival && j < run; ++j) {
      position.survival.push_back(
          static_cast<float>(std::pow(acceptance, j + 1)));
    }
  }
  return trace;
}

Trace JoinTraces(const std::vector<Trace>& traces, int num_tokens) {
  Trace joined = traces.front();
  joined.stopped = false;
  joined.local = nullptr;
  std::vector<Trace> locals;
  for (const Trace& trace : traces) {
    if (trace.local != nullptr) locals.push_back(*trace.local);
  }
  if (locals.size() == traces.size()) {
    joined.local = std::make_shared<Trace>(JoinTraces(locals, num_tokens));
  }
  joined.positions.clear();
  const size_t wanted = static_cast<size_t>(num_tokens);
  for (size_t i = 0; joined.positions.size() < wanted; ++i) {
    const auto& positions = traces[i % traces.size()].positions;
    joined.positions.insert(
        joined.positions.end(), positions.begin(), positions.end());
  }
  joined.positions.resize(wanted);
  for (size_t i = 0; i < wanted; ++i) {
    int& right = joined.positions[i].right;
    right = std::min(right, static_cast<int>(wanted - i));
  }
  return joined;
}

}  // namespace specwire::simulate
