// SPDX-License-Identifier: Apache-2.0

// What the engine thread does about tokens that are given, not chosen: their
// log-probabilities, for prompts and scores; the rest is in engine_thread.cc.

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"
#include "verifier_node/engine_thread.h"

namespace specwire::verifier {

absl::StatusOr<LogprobRun> EngineThread::ForwardChunk(
    absl::Span<const int32_t> tokens,
    int max_rows,
    const WantedLogprobs& wanted,
    KvSequence* kv) {
  const absl::Time start = clock_->Now();
  const int cached = kv->length();
  const int rows =
      std::min(static_cast<int>(tokens.size()) - 1 - cached, max_rows);
  // Row i tells of position i + 1.
  const int begin = std::max(cached + 1, wanted.begin);
  const int end = std::min(cached + 1 + rows, wanted.end);
  const int num_logits = begin < end ? cached + 1 + rows - begin : 0;
  SPECWIRE_ASSIGN_OR_RETURN(
      const absl::Span<const float> logits,
      Forward({.kv = kv,
               .tokens = tokens.subspan(static_cast<size_t>(cached),
                                        static_cast<size_t>(rows)),
               .num_logits = num_logits}));
  const auto vocab_size = static_cast<size_t>(engine_->info().vocab_size);
  if (logits.size() != static_cast<size_t>(num_logits) * vocab_size) {
    return absl::InternalError(absl::StrCat(
        "the engine computed ", logits.size(), " logits for ", num_logits));
  }
  LogprobRun run;
  run.position = begin;
  run.entries.resize(static_cast<size_t>(std::max(end - begin, 0)));
  for (size_t i = 0; i < run.entries.size(); ++i) {
    logprob_reader_.Read(logits.subspan(i * vocab_size, vocab_size),
                         tokens[static_cast<size_t>(begin) + i],
                         wanted.top,
                         &run.entries[i]);
  }
  metrics_->OnPrefill(rows, clock_->Now() - start);
  return run;
}

void EngineThread::ReadLogprobs(const Sequence& sequence, Commit* commit) {
  if (!sequence.logprobs.has_value()) return;
  const auto vocab_size = static_cast<size_t>(engine_->info().vocab_size);
  commit->logprobs.resize(commit->tokens.size());
  for (size_t i = 0; i < commit->tokens.size(); ++i) {
    logprob_reader_.Read(step_logits_.subspan(i * vocab_size, vocab_size),
                         commit->tokens[i],
                         *sequence.logprobs,
                         &commit->logprobs[i]);
  }
}

void EngineThread::OnOpenScore(StreamId stream, OpenScore open) {
  if (absl::Status status = CheckRoom(static_cast<int>(open.tokens.size()));
      !status.ok()) {
    worker_.Release(stream);
    open.sink->Finish(std::move(status));
    return;
  }
  auto score = std::make_unique<Score>();
  score->stream = stream;
  score->open = std::move(open);
  score->kv = engine_->NewSequence();
  // Who comes last has its turn last.
  score->turn.last = num_turns_;
  scores_[stream] = std::move(score);
  UpdateWaiting();
}

void EngineThread::StepScore(Score* score) {
  const OpenScore& open = score->open;
  const int length = static_cast<int>(open.tokens.size());
  // Nothing precedes the first token, so a text of one has no rows.
  if (score->kv->length() < length - 1) {
    const auto run = ForwardChunk(
        open.tokens,
        sequences_.empty() ? options_.prefill_rows : options_.score_rows,
        {.begin = std::max(open.num_context, 1),
         .end = length,
         .top = open.top},
        score->kv.get());
    if (!run.ok()) return EndScore(score->stream, run.status());
    if (!run->entries.empty() && !open.sink->Send(*run)) {
      return EndScore(score->stream,
                      absl::CancelledError("the peer does not read"));
    }
  }
  if (score->kv->length() >= length - 1) {
    metrics_->OnPrefilled(length);
    EndScore(score->stream, absl::OkStatus());
  }
}

void EngineThread::EndScore(StreamId stream, absl::Status status) {
  const auto it = scores_.find(stream);
  if (it == scores_.end()) return;
  if (!status.ok()) {
    SPECWIRE_LOG(Debug, "score ", stream, " ends: ", status.message());
  }
  const std::shared_ptr<ScoreSink> sink = it->second->open.sink;
  scores_.erase(it);
  worker_.Release(stream);
  UpdateWaiting();
  sink->Finish(std::move(status));
}

}  // namespace specwire::verifier
