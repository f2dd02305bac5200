// SPDX-License-Identifier: Apache-2.0
#include "tests/verifier_node/request_mix.h"

#include <algorithm>
#include <random>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/drafting/suffix.h"
#include "common/metrics/names.h"
#include "gtest/gtest.h"

namespace specwire::verifier {
namespace {

// By it a local draft model takes no time, so that it drafts.
class StoppedClock final : public Clock {
 public:
  absl::Time Now() const override { return absl::UnixEpoch(); }
};

constexpr absl::Duration kLimit = absl::Seconds(240);

class Random {
 public:
  explicit Random(uint32_t seed) : bits_(seed) {}
  // In [0, n).
  int Below(int n) {
    return static_cast<int>(bits_() % static_cast<uint32_t>(n));
  }
  bool OneIn(int n) { return Below(n) == 0; }

 private:
  std::mt19937 bits_;
};

// Collects what a sequence sends; its thread waits for news.
class MixSink final : public DecodeSink {
 public:
  bool Send(const Commit& commit, const StepReport& /*report*/) override {
    MutexLock lock(&mutex_);
    EXPECT_FALSE(ended_);
    outcome_.tokens.insert(
        outcome_.tokens.end(), commit.tokens.begin(), commit.tokens.end());
    outcome_.logprobs.insert(outcome_.logprobs.end(),
                             commit.logprobs.begin(),
                             commit.logprobs.end());
    outcome_.num_accepted += commit.num_accepted;
    if (commit.local) outcome_.num_accepted_local += commit.num_accepted;
    outcome_.finish = commit.finish;
    ++num_commits_;
    changed_.NotifyAll();
    return true;
  }
  bool SendPrompt(const LogprobRun& run) override {
    MutexLock lock(&mutex_);
    auto& entries = outcome_.prompt_logprobs;
    EXPECT_EQ(run.position, static_cast<int>(entries.size()) + 1);
    entries.insert(entries.end(), run.entries.begin(), run.entries.end());
    return true;
  }
  void Finish(absl::Status status) override {
    MutexLock lock(&mutex_);
    EXPECT_FALSE(ended_) << "a second Finish";
    ended_ = true;
    outcome_.status = std::move(status);
    changed_.NotifyAll();
  }

  // Waits until there are more than `seen` commits, the end, or `limit` is
  // over; returns how many there are, or -1 at the end.
  int Wait(int seen, absl::Duration limit) {
    const absl::Time deadline = absl::Now() + limit;
    MutexLock lock(&mutex_);
    while (!ended_ && num_commits_ <= seen) {
      if (!changed_.WaitUntil(&mutex_, deadline)) break;
    }
    return ended_ ? -1 : num_commits_;
  }
  int num_tokens() {
    MutexLock lock(&mutex_);
    return static_cast<int>(outcome_.tokens.size());
  }
  MixOutcome outcome() {
    MutexLock lock(&mutex_);
    return outcome_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  int num_commits_ = 0;
  bool ended_ = false;
  MixOutcome outcome_;
};

// One request's peer.
class Peer {
 public:
  Peer(const MixRequest& request,
       const MixOutcome& expected,
       EngineThread* thread,
       int vocab_size)
      : request_(request),
        expected_(expected),
        thread_(thread),
        vocab_size_(vocab_size),
        random_(request.seed),
        prompt_(static_cast<int>(request.open.params.tokens.size())) {}

  MixOutcome Run() {
    absl::SleepFor(request_.arrival);
    OpenSequence open = request_.open;
    open.sink = sink_;
    if (request_.credit > 0) open.params.decode_until = prompt_ + 1;
    stream_ = thread_->worker()->Open();
    if (stream_ == StreamWorker<DecodeEvent>::kNone) {
      MixOutcome refused;
      refused.status = absl::ResourceExhaustedError("no stream");
      return refused;
    }
    Post(std::move(open));
    if (lock_step()) Propose();
    int seen = 0;
    const absl::Time deadline = absl::Now() + kLimit;
    while (absl::Now() < deadline) {
      const int commits = sink_->Wait(seen, Pause());
      if (commits < 0) return End(false);
      if (request_.cancel_after >= 0 && commits >= request_.cancel_after) {
        return End(true);
      }
      Talk(commits > seen);
      seen = commits;
    }
    MixOutcome hung = End(true);
    hung.status = absl::DeadlineExceededError("it does not end");
    hung.cancelled = false;
    return hung;
  }

 private:
  bool lock_step() const {
    return request_.open.params.patience == absl::InfiniteDuration();
  }
  absl::Duration Pause() {
    return lock_step() ? absl::Milliseconds(20)
                       : absl::Microseconds(100 + random_.Below(3000));
  }
  void Post(DecodeEvent event) {
    // It may have ended already.
    thread_->worker()->Post(stream_, std::move(event), 100);
  }
  MixOutcome End(bool cancelled) {
    thread_->worker()->Close(stream_);
    MixOutcome outcome = sink_->outcome();
    outcome.cancelled = cancelled;
    return outcome;
  }

  void Talk(bool committed) {
    if (request_.credit > 0) {
      VerifyTune tune;
      tune.decode_until = prompt_ + sink_->num_tokens() + request_.credit;
      Post(tune);
    }
    // Who waits without limit is answered; else as it comes.
    if (lock_step() ? committed : !random_.OneIn(3)) Propose();
    if (!lock_step() && random_.OneIn(40)) ++source_;
    if (!lock_step() && random_.OneIn(30)) {
      VerifyTune tune;
      if (request_.open.params.rule == AcceptanceRule::kCoupled) {
        tune.patience = absl::Microseconds(random_.Below(2000));
      }
      tune.local_enough = static_cast<float>(random_.Below(4));
      Post(tune);
    }
  }

  int32_t RandomToken() {
    return request_.first_token +
           random_.Below(vocab_size_ - request_.first_token);
  }

  // The draft token for the completion's place `index`.
  int32_t Draft(size_t index) {
    const bool known = index < expected_.tokens.size();
    const int32_t right = known ? expected_.tokens[index] : RandomToken();
    switch (request_.drafts) {
      case DraftQuality::kGood:
        return right;
      case DraftQuality::kAdversarial:
        return right > request_.first_token ? right - 1 : right + 1;
      case DraftQuality::kMixed:
        return random_.OneIn(4) ? RandomToken() : right;
      case DraftQuality::kNone:
      case DraftQuality::kRandom:
        break;
    }
    return RandomToken();
  }

  void Propose() {
    const int length = prompt_ + sink_->num_tokens();
    Proposal proposal;
    proposal.source = source_;
    proposal.position = length;
    proposal.based_on = length;
    const bool none =
        request_.drafts == DraftQuality::kNone || random_.OneIn(6);
    if (none && !lock_step()) return;
    for (int i = 0; i < request_.run_length && !none; ++i) {
      const auto place = static_cast<size_t>(length - prompt_ + i);
      proposal.tokens.push_back(Draft(place));
      if (request_.open.params.rule == AcceptanceRule::kRatio) {
        proposal.q.push_back({{proposal.tokens.back()}, {1.0f}});
      }
    }
    Post(std::move(proposal));
  }

  const MixRequest& request_;
  const MixOutcome& expected_;
  EngineThread* const thread_;
  const int vocab_size_;
  Random random_;
  const int prompt_;
  const std::shared_ptr<MixSink> sink_ = std::make_shared<MixSink>();
  EngineThread::StreamId stream_ = 0;
  int source_ = 1;
};

SamplingParams RandomSampling(const MixOptions& options, Random* random) {
  SamplingParams sampling;
  const float temperatures[] = {0, 0, 0.7f, 1.0f, 1.3f};
  sampling.temperature = temperatures[random->Below(5)];
  sampling.seed = random->Below(1 << 30);
  if (random->OneIn(3)) sampling.top_k = 1 + random->Below(40);
  if (random->OneIn(3)) sampling.top_p = 0.9f;
  if (random->OneIn(4)) sampling.min_p = 0.05f;
  if (random->OneIn(3)) sampling.repetition_penalty = 1.2f;
  if (random->OneIn(4)) sampling.frequency_penalty = 0.3f;
  if (random->OneIn(4)) sampling.presence_penalty = 0.4f;
  if (random->OneIn(4)) {
    sampling.logit_bias.push_back(
        {options.first_token + random->Below(20), 1.5f});
  }
  for (int32_t id = 0; id < options.first_token; ++id) {
    sampling.logit_bias.push_back({id, -100});
  }
  return sampling;
}

std::vector<int32_t> RandomPrompt(const MixOptions& options,
                                  int vocab_size,
                                  Random* random) {
  // Some begin alike.
  const int kind = random->Below(4);
  const int length = 1 + random->Below(options.max_prompt);
  const int text = vocab_size - options.first_token;
  std::vector<int32_t> prompt;
  for (int i = 0; i < length; ++i) {
    const bool shared = kind < 2 && i < options.max_prompt * 2 / 3;
    const int id = shared ? (i * 7 + kind * 13) : random->Below(text);
    prompt.push_back(options.first_token + id % text);
  }
  return prompt;
}

void ChooseManner(Random* random, MixRequest* request) {
  VerifyParams& params = request->open.params;
  const absl::Duration patiences[] = {absl::ZeroDuration(),
                                      absl::Microseconds(500),
                                      absl::Milliseconds(3),
                                      absl::InfiniteDuration()};
  params.patience = patiences[random->Below(4)];
  if (!random->OneIn(3)) params.local_run_length = 1 + random->Below(8);
  params.local_enough = static_cast<float>(random->Below(4));
  if (random->OneIn(5)) {
    // At temperature 0 it gives the text of plain decoding.
    params.rule = AcceptanceRule::kRatio;
    params.patience = params.local_run_length > 0 ? absl::ZeroDuration()
                                                  : absl::InfiniteDuration();
    request->open.sampling.temperature = 0;
  }
  params.max_draft_rows = 1 + random->Below(16);
  request->drafts = static_cast<DraftQuality>(random->Below(5));
  request->run_length = 1 + random->Below(8);
  request->seed = static_cast<uint32_t>(random->Below(1 << 30));
  if (random->OneIn(6)) request->cancel_after = random->Below(20);
  if (random->OneIn(5)) request->credit = 1 + random->Below(10);
}

int64_t ReadPreemptions(const MetricsRegistry& registry) {
  for (const absl::string_view line : absl::StrSplit(registry.Expose(), '\n')) {
    if (!absl::StartsWith(line, metric::kNumPreemptions)) continue;
    const std::vector<std::string> parts = absl::StrSplit(line, ' ');
    double value = 0;
    if (absl::SimpleAtod(parts.back(), &value)) {
      return static_cast<int64_t>(value);
    }
  }
  return -1;
}

bool SameEntry(const PositionLogprobs& a, const PositionLogprobs& b) {
  const auto same = [](const TokenLogprob& x, const TokenLogprob& y) {
    return x.token_id == y.token_id && x.logprob == y.logprob;
  };
  return same(a.chosen, b.chosen) &&
         std::equal(
             a.top.begin(), a.top.end(), b.top.begin(), b.top.end(), same);
}

bool SameEntries(const std::vector<PositionLogprobs>& a,
                 const std::vector<PositionLogprobs>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), SameEntry);
}

}  // namespace

std::string MixRequest::Describe() const {
  return absl::StrCat(
      "prompt ",
      open.params.tokens.size(),
      ", max_tokens ",
      open.params.max_tokens,
      ", temperature ",
      open.sampling.temperature,
      open.params.rule == AcceptanceRule::kRatio ? ", ratio" : "",
      ", patience ",
      absl::FormatDuration(open.params.patience),
      ", drafts ",
      static_cast<int>(drafts),
      ", run length ",
      run_length,
      ", rows ",
      open.params.max_draft_rows,
      ", local run length ",
      open.params.local_run_length,
      ", enough ",
      open.params.local_enough,
      ", priority ",
      open.priority,
      ", salt \"",
      open.cache_salt,
      "\", credit ",
      credit,
      ", cancel ",
      cancel_after);
}

std::vector<MixRequest> RandomRequests(const MixOptions& options,
                                       const ModelInfo& model,
                                       uint32_t seed) {
  Random random(seed);
  std::vector<MixRequest> requests;
  for (int i = 0; i < options.num_requests; ++i) {
    MixRequest request;
    request.first_token = options.first_token;
    OpenSequence& open = request.open;
    open.sampling = RandomSampling(options, &random);
    open.params.tokens = RandomPrompt(options, model.vocab_size, &random);
    open.params.prompt_length = static_cast<int>(open.params.tokens.size());
    open.params.max_tokens = 1 + random.Below(options.max_tokens);
    open.params.source = 1;
    open.params.decode_until = 1 << 30;
    if (random.OneIn(3)) {
      open.params.stop_token_ids = {
          options.first_token +
          random.Below(model.vocab_size - options.first_token)};
    }
    ChooseManner(&random, &request);
    open.context = {.prompt_length = open.params.prompt_length,
                    .min_tokens = random.Below(5),
                    .end_token_ids = open.params.stop_token_ids};
    if (random.OneIn(4)) open.logprobs = random.Below(4);
    if (random.OneIn(5)) open.prompt_logprobs = random.Below(3);
    open.priority = random.OneIn(3) ? random.Below(3) : 0;
    const char* const salts[] = {"", "", "a", "b"};
    open.cache_salt = salts[random.Below(4)];
    request.arrival = options.arrivals * (random.Below(1000) / 1000.0);
    requests.push_back(std::move(request));
  }
  return requests;
}

MixOutcome RunAlone(const MixRequest& request, Engine* engine) {
  MixRequest plain = request;
  plain.open.params.rule = AcceptanceRule::kCoupled;
  plain.open.params.patience = absl::ZeroDuration();
  plain.open.params.local_run_length = 0;
  plain.drafts = DraftQuality::kNone;
  plain.cancel_after = -1;
  plain.credit = 0;
  plain.arrival = absl::ZeroDuration();
  MetricsRegistry registry;
  VerifierMetrics metrics(&registry);
  const SteadyClock clock;
  EngineThread thread(engine, {}, &clock, &metrics);
  thread.Start();
  const MixOutcome nothing;
  return Peer(plain, nothing, &thread, engine->info().vocab_size).Run();
}

std::vector<MixOutcome> RunTogether(const std::vector<MixRequest>& requests,
                                    const std::vector<MixOutcome>& expected,
                                    EngineThread* thread,
                                    int vocab_size) {
  std::vector<MixOutcome> outcomes(requests.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < requests.size(); ++i) {
    threads.emplace_back([&, i] {
      outcomes[i] = Peer(requests[i], expected[i], thread, vocab_size).Run();
    });
  }
  for (std::thread& one : threads) one.join();
  return outcomes;
}

std::string Compare(const MixOutcome& outcome, const MixOutcome& expected) {
  if (!outcome.status.ok()) return outcome.status.ToString();
  const size_t size = outcome.tokens.size();
  if (outcome.cancelled) {
    return size <= expected.tokens.size() && std::equal(outcome.tokens.begin(),
                                                        outcome.tokens.end(),
                                                        expected.tokens.begin())
               ? ""
               : "other tokens before it was cancelled";
  }
  if (outcome.tokens != expected.tokens) {
    size_t at = 0;
    while (at < size && at < expected.tokens.size() &&
           outcome.tokens[at] == expected.tokens[at]) {
      ++at;
    }
    return absl::StrCat("other tokens from ",
                        at,
                        " of ",
                        expected.tokens.size(),
                        " on, got ",
                        size);
  }
  if (outcome.finish != expected.finish) return "another finish reason";
  if (!SameEntries(outcome.logprobs, expected.logprobs)) {
    return "other log-probabilities";
  }
  if (!SameEntries(outcome.prompt_logprobs, expected.prompt_logprobs)) {
    return "other log-probabilities of the prompt";
  }
  return "";
}

void CheckMix(const MixOptions& options,
              const EngineThreadOptions& thread_options,
              uint32_t seed,
              int least_preemptions,
              Engine* engine,
              std::unique_ptr<Drafter> model) {
  const std::vector<MixRequest> requests =
      RandomRequests(options, engine->info(), seed);
  std::vector<MixOutcome> expected;
  for (const MixRequest& request : requests) {
    expected.push_back(RunAlone(request, engine));
    ASSERT_TRUE(expected.back().status.ok())
        << request.Describe() << ": " << expected.back().status;
  }
  MetricsRegistry registry;
  VerifierMetrics metrics(&registry);
  const SteadyClock clock;
  const StoppedClock stopped;
  EngineThread thread(
      engine,
      thread_options,
      &clock,
      &metrics,
      std::make_unique<LocalDrafter>(
          *SuffixDrafter::Create({}), std::move(model), &stopped));
  thread.Start();
  int64_t num_accepted = 0;
  int64_t num_accepted_local = 0;
  for (const int round : {1, 2}) {
    const std::vector<MixOutcome> outcomes =
        RunTogether(requests, expected, &thread, engine->info().vocab_size);
    for (size_t i = 0; i < requests.size(); ++i) {
      EXPECT_EQ(Compare(outcomes[i], expected[i]), "")
          << "seed " << seed << ", round " << round << ", request " << i << ": "
          << requests[i].Describe();
      num_accepted += outcomes[i].num_accepted;
      num_accepted_local += outcomes[i].num_accepted_local;
    }
  }
  EXPECT_GT(num_accepted, num_accepted_local);
  EXPECT_GT(num_accepted_local, 100);
  EXPECT_GE(ReadPreemptions(registry), least_preemptions);
  testing::Test::RecordProperty(absl::StrCat("preemptions_seed_", seed),
                                static_cast<int>(ReadPreemptions(registry)));
  thread.Stop();
  EXPECT_EQ(thread.num_sequences(), 0);
  EXPECT_EQ(thread.num_waiting(), 0);
  EXPECT_EQ(engine->kv_blocks_used(), 0);
}

}  // namespace specwire::verifier
