// SPDX-License-Identifier: Apache-2.0
#include "bench/simulate/draft_side.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace specwire::simulate {

void DraftSide::Open(int64_t stream,
                     DraftPath path,
                     const Trace* trace,
                     Send send) {
  thread_.Take(
      [this, stream, path = std::move(path), trace, send = std::move(send)] {
        streams_.emplace(stream, Stream{path, TraceDrafter(trace), send});
      });
}

void DraftSide::Commit(int64_t stream,
                       int position,
                       std::vector<int32_t> tokens) {
  thread_.Take([this, stream, position, tokens = std::move(tokens)] {
    const auto it = streams_.find(stream);
    if (it == streams_.end()) return;
    thread_.Check(it->second.path.OnCommit(position, tokens));
    it->second.has_work = true;
  });
}

void DraftSide::Rewind(int64_t stream, int position) {
  thread_.Take([this, stream, position] {
    const auto it = streams_.find(stream);
    if (it == streams_.end()) return;
    thread_.Check(it->second.path.OnRewind(position));
    it->second.has_work = true;
  });
}

void DraftSide::Tune(int64_t stream,
                     std::optional<int> run_length,
                     std::optional<int> window,
                     std::optional<float> min_survival) {
  thread_.Take([this, stream, run_length, window, min_survival] {
    const auto it = streams_.find(stream);
    if (it == streams_.end()) return;
    thread_.Check(it->second.path.OnTune(run_length, window, min_survival));
    it->second.has_work = true;
  });
}

void DraftSide::Close(int64_t stream) {
  thread_.Take([this, stream] { streams_.erase(stream); });
}

std::optional<DraftLimits> DraftSide::SendReady(Stream* stream) {
  while (true) {
    const DraftPath::Work work = stream->path.NextWork();
    switch (work.kind) {
      case DraftPath::Work::Kind::kNone:
        stream->has_work = false;
        return std::nullopt;
      case DraftPath::Work::Kind::kSend:
        stream->send(work.proposal);
        break;
      case DraftPath::Work::Kind::kDraft:
        return work.limits;
    }
  }
}

void DraftSide::Continue(const DraftLimits& limits, Stream* stream) {
  const absl::Span<const int32_t> path = stream->path.path();
  if (stream->making.has_value() && path.size() >= stream->base &&
      path[stream->base - 1] == stream->last) {
    // Commits may have overtaken it, and agree.
    DraftRun& run = stream->making->run;
    const size_t more = path.size() - stream->base;
    if (more == 0) return;
    if (more <= static_cast<size_t>(stream->made) &&
        std::equal(path.begin() + static_cast<std::ptrdiff_t>(stream->base),
                   path.end(),
                   run.tokens.begin())) {
      // What is left of it is not worth keeping apart: it is made again, but
      // the tokens that are there cost nothing more.
      const int made = stream->made - static_cast<int>(more);
      stream->making = stream->drafter.Propose(path, limits);
      stream->made = std::min(made, stream->making->model_tokens);
      stream->base = path.size();
      stream->last = path.back();
      return;
    }
  }
  stream->making = stream->drafter.Propose(path, limits);
  stream->made = 0;
  stream->base = path.size();
  stream->last = path.back();
}

void DraftSide::Pump() {
  if (thread_.busy()) return;
  std::vector<int64_t> members;
  int num_model = 0;
  int num_runs = 0;
  for (auto& [id, stream] : streams_) {
    if (!stream.has_work) continue;
    const std::optional<DraftLimits> limits = SendReady(&stream);
    if (!limits.has_value()) {
      stream.making.reset();
      continue;
    }
    Continue(*limits, &stream);
    members.push_back(id);
    if (stream.made == 0) ++num_runs;
    if (stream.made < stream.making->model_tokens) ++num_model;
  }
  if (members.empty()) return;
  double cost = num_runs * costs_.run;
  if (num_model > 0) cost += costs_.token * batch_(num_model);
  thread_.BeginPass();
  time_->At(time_->now() + cost * plain_,
            [this, members = std::move(members)] { EndPass(members); });
}

void DraftSide::EndPass(const std::vector<int64_t>& streams) {
  for (const int64_t id : streams) {
    Stream& stream = streams_.at(id);
    TraceDrafter::Result& result = *stream.making;
    if (stream.made < result.model_tokens) ++stream.made;
    if (stream.made < result.model_tokens) continue;
    stream.path.OnDrafted(std::move(result.run));
    stream.making.reset();
    SendReady(&stream);
  }
  thread_.EndPass();
}

}  // namespace specwire::simulate
