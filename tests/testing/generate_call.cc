// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/generate_call.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "common/rpc/status.h"

namespace specwire {
namespace {

// Checks one delta against what came before and takes it over.
void TakeDelta(const v1::GenerateDelta& delta, GenerateResult* result) {
  const int size = delta.token_ids_size();
  if (size == 0) absl::StrAppend(&result->fault, "empty delta; ");
  if (delta.first_index() != static_cast<int>(result->token_ids.size())) {
    absl::StrAppend(&result->fault,
                    "first_index ",
                    delta.first_index(),
                    " after ",
                    result->token_ids.size(),
                    " tokens; ");
  }
  if (delta.text_ends_size() != size || delta.origins_size() != size) {
    absl::StrAppend(&result->fault, "text_ends or origins differ in number; ");
  } else if (delta.text_ends(size - 1) !=
             static_cast<int>(delta.text().size())) {
    absl::StrAppend(&result->fault, "text_ends do not reach the end; ");
  }
  for (int i = 0; i < size; ++i) {
    result->token_ids.push_back(delta.token_ids(i));
    result->origins.push_back(static_cast<v1::TokenOrigin>(delta.origins(i)));
  }
  result->text += delta.text();
  result->trace.insert(
      result->trace.end(), delta.trace().begin(), delta.trace().end());
  if (delta.logprobs_size() != 0 && delta.logprobs_size() != size) {
    absl::StrAppend(&result->fault, "logprobs differ in number; ");
  }
  result->logprobs.insert(
      result->logprobs.end(), delta.logprobs().begin(), delta.logprobs().end());
}

void TakePrompt(const v1::GeneratePrompt& prompt, GenerateResult* result) {
  if (!result->token_ids.empty()) {
    absl::StrAppend(&result->fault, "prompt behind a delta; ");
  }
  result->prompt_text += prompt.text();
  if (prompt.has_logprobs() &&
      prompt.logprobs().position() !=
          static_cast<int>(result->prompt_logprobs.size())) {
    absl::StrAppend(&result->fault, "a gap in the prompt's logprobs; ");
  }
  result->prompt_logprobs.insert(result->prompt_logprobs.end(),
                                 prompt.logprobs().logprobs().begin(),
                                 prompt.logprobs().logprobs().end());
}

// Enforces what the acceptance figures of every reply must add up to.
void CheckFigures(GenerateResult* result) {
  const v1::SpeculationStats& stats = result->finished.speculation();
  const auto check = [result](bool holds, absl::string_view what) {
    if (!holds) absl::StrAppend(&result->fault, what, "; ");
  };
  int64_t steps = 0;
  int64_t accepted = 0;
  for (int j = 0; j < stats.acceptance_histogram_size(); ++j) {
    steps += stats.acceptance_histogram(j);
    accepted += j * stats.acceptance_histogram(j);
  }
  check(steps == stats.num_spec_steps(), "histogram differs from steps");
  check(accepted == stats.num_accepted_draft_tokens(),
        "histogram differs from accepted tokens");
  check(accepted <= stats.num_draft_tokens(), "more accepted than verified");
  check(stats.num_spec_steps() <= stats.num_passes(), "more steps than passes");
  check(stats.num_drafted_tokens() ==
            stats.num_draft_tokens() + stats.num_overlapped_tokens() +
                stats.num_stale_tokens() + stats.num_trimmed_tokens() +
                stats.num_unused_tokens(),
        "drafted tokens do not add up");
  check(std::min({stats.num_draft_tokens(),
                  stats.num_overlapped_tokens(),
                  stats.num_stale_tokens(),
                  stats.num_trimmed_tokens(),
                  stats.num_unused_tokens()}) >= 0,
        "a count is negative");
  check(std::count(result->origins.begin(),
                   result->origins.end(),
                   v1::TOKEN_ORIGIN_DRAFT) == accepted,
        "origins differ from accepted tokens");
}

// A trace tells of every token, and of every draft token what the figures
// count.
void CheckTrace(GenerateResult* result) {
  const v1::SpeculationStats& stats = result->finished.speculation();
  std::map<v1::DraftOutcome, int64_t> counts;
  std::vector<int32_t> chosen;
  int num_origins = 0;
  int64_t left_out = 0;
  for (const v1::PassTrace& pass : result->trace) {
    left_out += pass.num_left_out();
    for (const v1::DraftTrace& run : pass.drafts()) {
      for (const v1::DraftTokenTrace& draft : run.tokens()) {
        ++counts[draft.outcome()];
      }
    }
    for (const v1::ChoiceTrace& choice : pass.choices()) {
      chosen.push_back(choice.token_id());
      num_origins += choice.origin() == v1::TOKEN_ORIGIN_DRAFT ? 1 : 0;
    }
  }
  const auto check = [result](int64_t told, int64_t counted, const char* what) {
    if (told == counted) return;
    absl::StrAppend(
        &result->fault, what, ": traced ", told, ", counted ", counted, "; ");
  };
  check(left_out, 0, "left out");
  check(counts[v1::DRAFT_OUTCOME_ACCEPTED],
        stats.num_accepted_draft_tokens(),
        "accepted");
  check(num_origins, stats.num_accepted_draft_tokens(), "origins");
  check(counts[v1::DRAFT_OUTCOME_ACCEPTED] +
            counts[v1::DRAFT_OUTCOME_REJECTED] +
            counts[v1::DRAFT_OUTCOME_DISCARDED],
        stats.num_draft_tokens(),
        "verified");
  check(counts[v1::DRAFT_OUTCOME_OVERLAPPED],
        stats.num_overlapped_tokens(),
        "overlapped");
  check(counts[v1::DRAFT_OUTCOME_STALE], stats.num_stale_tokens(), "stale");
  check(
      counts[v1::DRAFT_OUTCOME_TRIMMED], stats.num_trimmed_tokens(), "trimmed");
  check(counts[v1::DRAFT_OUTCOME_UNUSED], stats.num_unused_tokens(), "unused");
  if (chosen != result->token_ids) {
    absl::StrAppend(&result->fault, "the trace chose other tokens; ");
  }
}

}  // namespace

GenerateResult CallGenerate(
    v1::GenerationService::StubInterface* stub,
    const v1::GenerateRequest& request,
    const std::function<bool(const v1::GenerateDelta&)>& on_delta,
    absl::Duration timeout) {
  return CallGenerateChoices(stub, request, on_delta, timeout)[0];
}

std::vector<GenerateResult> CallGenerateChoices(
    v1::GenerationService::StubInterface* stub,
    const v1::GenerateRequest& request,
    const std::function<bool(const v1::GenerateDelta&)>& on_delta,
    absl::Duration timeout) {
  std::vector<GenerateResult> results(
      static_cast<size_t>(std::max(request.n(), 1)));
  std::vector<int> num_finished(results.size());
  const auto place = [&results](int choice) {
    const bool known = choice >= 0 && choice < static_cast<int>(results.size());
    if (!known) absl::StrAppend(&results[0].fault, "choice ", choice, "; ");
    return known ? static_cast<size_t>(choice) : 0;
  };
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
  const auto reader = stub->Generate(&context, request);
  v1::GenerateResponse response;
  int num_started = 0;
  while (reader->Read(&response)) {
    if (response.has_started()) {
      if (num_started++ > 0) {
        absl::StrAppend(&results[0].fault, "started twice; ");
      }
      for (GenerateResult& one : results) one.started = response.started();
    } else if (num_started == 0) {
      absl::StrAppend(&results[0].fault, "not started first; ");
    }
    if (response.has_prompt()) TakePrompt(response.prompt(), &results[0]);
    if (response.has_delta()) {
      const size_t at = place(response.delta().choice());
      if (num_finished[at] > 0) {
        absl::StrAppend(&results[at].fault, "after finished; ");
      }
      TakeDelta(response.delta(), &results[at]);
      if (on_delta != nullptr && !on_delta(response.delta())) {
        context.TryCancel();
      }
    }
    if (response.has_finished()) {
      const size_t at = place(response.finished().choice());
      ++num_finished[at];
      results[at].finished = response.finished();
      results[at].text += response.finished().text();
      if (response.finished().has_trace()) {
        results[at].trace.push_back(response.finished().trace());
      }
    }
  }
  const absl::Status status = FromGrpcStatus(reader->Finish());
  for (size_t at = 0; at < results.size(); ++at) {
    results[at].status = status;
    if (status.ok() && num_finished[at] != 1) {
      absl::StrAppend(&results[at].fault, "no finished; ");
    }
    if (num_finished[at] == 1) CheckFigures(&results[at]);
    if (num_finished[at] == 1 && request.trace()) CheckTrace(&results[at]);
  }
  return results;
}

double SumSeries(absl::string_view text,
                 const std::string& name,
                 const std::string& label) {
  double sum = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    if (!absl::StartsWith(line, absl::StrCat(name, "{")) ||
        !absl::StrContains(line, label)) {
      continue;
    }
    double value = 0;
    const std::vector<absl::string_view> words = absl::StrSplit(line, ' ');
    if (absl::SimpleAtod(words.back(), &value)) sum += value;
  }
  return sum;
}

v1::GenerateRequest GreedyRequest(const std::string& text, int max_tokens) {
  v1::GenerateRequest request;
  request.set_text(text);
  request.mutable_sampling()->set_temperature(0);
  request.mutable_stop()->set_max_tokens(max_tokens);
  return request;
}

void InParallel(int num_jobs,
                int num_threads,
                const std::function<void(int)>& job) {
  std::atomic<int> next = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < num_threads; ++i) {
    threads.emplace_back([&] {
      for (int n = next++; n < num_jobs; n = next++) job(n);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace specwire
