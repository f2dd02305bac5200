// SPDX-License-Identifier: Apache-2.0

// A model drafter's batches: that nobody can tell from a proposal what else was
// in the passes, and that its cache stays within its pool.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "common/model/engine.h"
#include "common/model_drafting/model_drafter.h"
#include "common/model_drafting/pass_rows.h"
#include "gtest/gtest.h"
#include "tests/testing/fake_engine.h"

namespace specwire {
namespace {

using Tokens = std::vector<int32_t>;

std::unique_ptr<ModelDrafter> MakeTinyDrafter(ModelDrafterOptions options) {
  EngineOptions engine_options;
  engine_options.kv_cache_mib = 8;
  engine_options.poison_free_kv = true;
  auto engine = LoadEngine(SPECWIRE_TINY_MODEL, engine_options);
  EXPECT_TRUE(engine.ok()) << engine.status();
  auto drafter = ModelDrafter::Create(*std::move(engine), std::move(options));
  EXPECT_TRUE(drafter.ok()) << drafter.status();
  return *std::move(drafter);
}

// A drafter over a fake engine that the test can watch.
struct FakeDrafter {
  explicit FakeDrafter(const FakeEngineOptions& options,
                       const std::string& name = "oracle") {
    auto owned = std::make_unique<FakeEngine>(options);
    engine = owned.get();
    auto made = ModelDrafter::Create(std::move(owned), {.name = name});
    EXPECT_TRUE(made.ok()) << made.status();
    drafter = *std::move(made);
  }
  std::unique_ptr<DraftSequence> NewSequence() const {
    DraftSequenceParams params;
    params.sampling.temperature = 0;
    return drafter->NewSequence(params);
  }

  FakeEngine* engine = nullptr;
  std::unique_ptr<ModelDrafter> drafter;
};

// All but what all sequences together have taught the drafter of survival.
void ExpectEqual(const DraftRun& run, const DraftRun& expected) {
  EXPECT_EQ(run.tokens, expected.tokens);
  EXPECT_EQ(run.survival.size(), expected.survival.size());
  EXPECT_EQ(run.more, expected.more);
  ASSERT_EQ(run.q.size(), expected.q.size());
  for (size_t i = 0; i < run.q.size(); ++i) {
    EXPECT_EQ(run.q[i].token_ids, expected.q[i].token_ids);
    EXPECT_EQ(run.q[i].probabilities, expected.q[i].probabilities);
  }
}

// Requests of every kind.
std::vector<DraftSequenceParams> MixedParams(std::mt19937* random) {
  std::vector<DraftSequenceParams> mixed;
  for (int i = 0; i < 12; ++i) {
    DraftSequenceParams params;
    params.sampling.temperature =
        i % 3 == 0 ? 0.0f : 0.5f + 0.1f * static_cast<float>(i);
    params.sampling.seed = static_cast<int64_t>((*random)());
    params.choice = i % 2;
    if (i % 4 == 1) params.sampling.top_p = 0.9f;
    if (i % 4 == 2) params.sampling.top_k = 20;
    if (i % 5 == 3) {
      params.sampling.repetition_penalty = 1.3f;
      params.sampling.frequency_penalty = 0.5f;
    }
    params.context = {
        .prompt_length = 4, .min_tokens = i, .end_token_ids = {7}};
    if (i % 4 == 3 || i == 6) params.rule = AcceptanceRule::kRatio;
    params.tenant_salt = i % 2 == 0 ? "one" : "two";
    mixed.push_back(std::move(params));
  }
  return mixed;
}

// A request whose text is made by what is proposed and by chance, so that it is
// the same however its proposals are made, as long as they are the same.
class Request {
 public:
  Request(const DraftSequenceParams& params,
          Tokens prompt,
          uint32_t seed,
          int num_proposals)
      : params_(params),
        path_(std::move(prompt)),
        random_(seed),
        left_(num_proposals) {
    max_tokens_ = 1 + static_cast<int>(random_() % 8);
  }

  bool done() const { return left_ == 0; }
  const std::vector<DraftRun>& runs() const { return runs_; }
  DraftTask Task(Drafter* drafter) {
    if (sequence_ == nullptr) sequence_ = drafter->NewSequence(params_);
    return {
        .sequence = sequence_.get(), .path = path_, .limits = {max_tokens_}};
  }
  void OnResult(DraftRun run) {
    // Some of it is right, then the target says something else, or all of it
    // is drafted on; now and then much comes from elsewhere.
    const size_t right = random_() % (run.tokens.size() + 1);
    path_.insert(path_.end(),
                 run.tokens.begin(),
                 run.tokens.begin() + static_cast<std::ptrdiff_t>(right));
    if (random_() % 3 != 0)
      path_.push_back(20 + static_cast<int>(random_() % 50));
    if (random_() % 16 == 0) path_.insert(path_.end(), 50, 33);
    max_tokens_ = 1 + static_cast<int>(random_() % 8);
    runs_.push_back(std::move(run));
    if (--left_ == 0) sequence_ = nullptr;
  }

 private:
  const DraftSequenceParams params_;
  Tokens path_;
  std::mt19937 random_;
  int left_;
  int max_tokens_ = 0;
  std::unique_ptr<DraftSequence> sequence_;
  std::vector<DraftRun> runs_;
};

std::vector<Request> MakeRequests(uint32_t seed, int num_proposals) {
  std::mt19937 random(seed);
  // Some share a prompt, and some have a long one.
  Tokens shared(40);
  for (int32_t& token : shared) {
    token = 20 + static_cast<int32_t>(random() % 100);
  }
  std::vector<Request> requests;
  int index = 0;
  for (const DraftSequenceParams& params : MixedParams(&random)) {
    Tokens prompt = index % 3 == 0 ? Tokens{5, 6, 7, 8} : shared;
    if (index % 5 == 4) prompt.resize(150, 60 + index);
    requests.emplace_back(params,
                          std::move(prompt),
                          static_cast<uint32_t>(random()),
                          num_proposals);
    ++index;
  }
  return requests;
}

// Every batch has some of them in some order.
void RunTogether(std::vector<Request>* requests,
                 Drafter* drafter,
                 std::mt19937* random) {
  std::vector<Request*> left;
  for (Request& request : *requests) left.push_back(&request);
  while (!left.empty()) {
    std::shuffle(left.begin(), left.end(), *random);
    const size_t size = 1 + (*random)() % left.size();
    std::vector<DraftTask> tasks;
    for (size_t i = 0; i < size; ++i) tasks.push_back(left[i]->Task(drafter));
    const DraftPass pass = drafter->Propose(absl::MakeSpan(tasks));
    ASSERT_LE(pass.num_rows, Engine::kMaxRows);
    for (size_t i = 0; i < size; ++i) {
      if (!tasks[i].result.has_value()) continue;
      ASSERT_TRUE(tasks[i].result->ok()) << tasks[i].result->status();
      left[i]->OnResult(**std::move(tasks[i].result));
    }
    left.erase(std::remove_if(left.begin(),
                              left.end(),
                              [](const Request* r) { return r->done(); }),
               left.end());
  }
}

void RunAlone(std::vector<Request>* requests, Drafter* drafter) {
  for (Request& request : *requests) {
    while (!request.done()) {
      const DraftTask task = request.Task(drafter);
      auto run = task.sequence->Propose(task.path, task.limits);
      ASSERT_TRUE(run.ok()) << run.status();
      request.OnResult(*std::move(run));
    }
  }
}

TEST(ModelBatchTest, ProposalsAreThoseOfEachSequenceAlone) {
  constexpr uint32_t kSeed = 20240703;
  const ModelDrafterOptions kinds[] = {
      {.name = "model"}, {.name = "oracle"}, {.name = "adversarial"}};
  for (const ModelDrafterOptions& options : kinds) {
    SCOPED_TRACE(options.name);
    for (uint32_t round = 0; round < 3; ++round) {
      std::vector<Request> alone = MakeRequests(kSeed + round, 12);
      std::vector<Request> together = MakeRequests(kSeed + round, 12);
      const auto drafter = MakeTinyDrafter(options);
      RunAlone(&alone, drafter.get());
      EXPECT_EQ(drafter->kv_blocks_used(), 0);
      std::mt19937 random(kSeed + round);
      RunTogether(&together, MakeTinyDrafter(options).get(), &random);
      ASSERT_FALSE(testing::Test::HasFatalFailure());
      size_t num_tokens = 0;
      for (size_t i = 0; i < alone.size(); ++i) {
        SCOPED_TRACE(i);
        ASSERT_EQ(together[i].runs().size(), alone[i].runs().size());
        for (size_t j = 0; j < alone[i].runs().size(); ++j) {
          ExpectEqual(together[i].runs()[j], alone[i].runs()[j]);
          num_tokens += alone[i].runs()[j].tokens.size();
        }
      }
      EXPECT_GT(num_tokens, 20u);
    }
  }
}

// A path that changes in the midst of a run.
TEST(ModelBatchTest, ARunGoesOnFromWhateverHasBeenCommitted) {
  constexpr unsigned kSeed = 20240704;
  std::mt19937 random(kSeed);
  const auto drafter = MakeTinyDrafter({.name = "model"});
  const auto reference = MakeTinyDrafter({.name = "model"});
  int num_kept = 0;
  for (const DraftSequenceParams& params : MixedParams(&random)) {
    const auto sequence = drafter->NewSequence(params);
    Tokens path = {5, 6, 7, 8};
    for (int round = 0; round < 25; ++round) {
      const int max_tokens = 2 + static_cast<int>(random() % 7);
      DraftTask task = {
          .sequence = sequence.get(), .path = path, .limits = {max_tokens}};
      const auto num_passes = 1 + random() % static_cast<unsigned>(max_tokens);
      for (unsigned i = 0; i < num_passes && !task.result.has_value(); ++i) {
        drafter->Propose(absl::MakeSpan(&task, 1));
      }
      const auto expected =
          reference->NewSequence(params)->Propose(path, {max_tokens});
      ASSERT_TRUE(expected.ok());
      if (task.result.has_value()) {
        ExpectEqual(**task.result, *expected);
      }
      // Some of what has been drafted is committed, or something else.
      const size_t right =
          std::min<size_t>(random() % num_passes, expected->tokens.size());
      path.insert(
          path.end(),
          expected->tokens.begin(),
          expected->tokens.begin() + static_cast<std::ptrdiff_t>(right));
      if (random() % 4 == 0) path.push_back(30);
      const int asked = 4 + static_cast<int>(random() % 5);
      const auto run = sequence->Propose(path, {asked});
      const auto whole = reference->NewSequence(params)->Propose(path, {asked});
      ASSERT_TRUE(run.ok() && whole.ok());
      // It may end where it was to end, but then says so, and is right so far.
      ASSERT_GE(run->tokens.size(), 1u);
      if (!run->more) {
        ExpectEqual(*run, *whole);
        continue;
      }
      ++num_kept;
      EXPECT_EQ(params.rule, AcceptanceRule::kCoupled);
      ASSERT_LT(run->tokens.size(), whole->tokens.size());
      EXPECT_TRUE(std::equal(
          run->tokens.begin(), run->tokens.end(), whole->tokens.begin()));
    }
  }
  EXPECT_GT(num_kept, 15);
}

TEST(ModelBatchTest, AdvancesAllInOnePass) {
  const FakeDrafter fake({});
  std::vector<std::unique_ptr<DraftSequence>> sequences;
  std::vector<Tokens> paths;
  std::vector<DraftTask> tasks;
  for (int i = 0; i < 16; ++i) {
    sequences.push_back(fake.NewSequence());
    paths.push_back({10 + i, 20, 30 + i});
  }
  for (size_t i = 0; i < 16; ++i) {
    tasks.push_back({.sequence = sequences[i].get(),
                     .path = paths[i],
                     .limits = {1 + static_cast<int>(i % 4)}});
  }
  for (int pass = 1; pass <= 4; ++pass) {
    std::vector<DraftTask> left;
    for (const DraftTask& task : tasks) {
      if (task.limits.max_tokens >= pass) left.push_back(task);
    }
    const DraftPass counts = fake.drafter->Propose(absl::MakeSpan(left));
    EXPECT_EQ(counts.num_sequences, static_cast<int>(left.size()));
    EXPECT_EQ(counts.num_rows,
              static_cast<int>(left.size()) * (pass == 1 ? 3 : 1));
    // Each ends at its own limit.
    for (const DraftTask& task : left) {
      ASSERT_EQ(task.result.has_value(), task.limits.max_tokens == pass);
      if (!task.result.has_value()) continue;
      const Tokens path(task.path.begin(), task.path.end());
      EXPECT_EQ((*task.result)->tokens,
                fake.engine->Continue(path, task.limits.max_tokens));
    }
  }
  EXPECT_EQ(fake.engine->num_passes(), 4);
}

TEST(ModelBatchTest, ALongPromptIsReadInChunksBesideTheOthers) {
  const FakeDrafter fake({});
  const auto slow = fake.NewSequence();
  const auto quick = fake.NewSequence();
  const Tokens prompt(1000, 9);
  Tokens path = {10, 20};
  std::vector<DraftTask> tasks = {
      {.sequence = slow.get(), .path = prompt, .limits = {2}},
      {.sequence = quick.get(), .path = path, .limits = {4}}};
  int num_proposals = 0;
  while (!tasks[0].result.has_value()) {
    const DraftPass pass = fake.drafter->Propose(absl::MakeSpan(tasks));
    EXPECT_EQ(pass.num_sequences, 2);
    EXPECT_LE(pass.num_rows, kMinChunkRows + 2);
    if (!tasks[1].result.has_value()) continue;
    ASSERT_TRUE(tasks[1].result->ok());
    EXPECT_EQ((*tasks[1].result)->tokens, fake.engine->Continue(path, 4));
    ++num_proposals;
    path.insert(path.end(),
                (*tasks[1].result)->tokens.begin(),
                (*tasks[1].result)->tokens.end());
    tasks[1] = {.sequence = quick.get(), .path = path, .limits = {4}};
  }
  EXPECT_EQ((*tasks[0].result)->tokens, fake.engine->Continue(prompt, 2));
  EXPECT_GE(num_proposals, 1000 / kMinChunkRows / 4 - 1);
}

TEST(ModelBatchTest, APassThatFailsIsRunAgainOneByOne) {
  const FakeDrafter fake({});
  const std::vector<Tokens> paths = {{10, 20},
                                     {10, FakeEngine::kFailingToken},
                                     {10, FakeEngine::kNanToken},
                                     {10, 999},
                                     {30, 40}};
  std::vector<std::unique_ptr<DraftSequence>> sequences;
  std::vector<DraftTask> tasks;
  for (const Tokens& path : paths) {
    sequences.push_back(fake.NewSequence());
    tasks.push_back(
        {.sequence = sequences.back().get(), .path = path, .limits = {1}});
  }
  fake.drafter->Propose(absl::MakeSpan(tasks));
  for (size_t i = 0; i < tasks.size(); ++i) {
    SCOPED_TRACE(i);
    ASSERT_TRUE(tasks[i].result.has_value());
    const bool good = i == 0 || i == 4;
    ASSERT_EQ(tasks[i].result->ok(), good);
    if (good) {
      EXPECT_EQ((*tasks[i].result)->tokens, fake.engine->Continue(paths[i], 1));
    }
  }
  EXPECT_EQ(tasks[3].result->status().code(),
            absl::StatusCode::kInvalidArgument);
}

// --- The cache ---

TEST(ModelBatchTest, LaterSequencesReuseAPromptOfTheSameTenantOnly) {
  const auto drafter = MakeTinyDrafter({.name = "model"});
  const Tokens prompt(100, 40);
  const auto rows = [&](const std::string& salt) {
    DraftSequenceParams params;
    params.sampling.temperature = 0;
    params.tenant_salt = salt;
    const auto sequence = drafter->NewSequence(params);
    int num_rows = 0;
    DraftTask task = {
        .sequence = sequence.get(), .path = prompt, .limits = {1}};
    while (!task.result.has_value()) {
      num_rows += drafter->Propose(absl::MakeSpan(&task, 1)).num_rows;
    }
    EXPECT_GT(drafter->kv_blocks_used(), 0);
    return num_rows;
  };
  EXPECT_EQ(rows("one"), 100);
  EXPECT_EQ(drafter->kv_blocks_used(), 0);
  EXPECT_EQ(drafter->kv_blocks_cached(), 6);
  EXPECT_EQ(rows("one"), 4);
  EXPECT_EQ(rows("two"), 100);
}

TEST(ModelBatchTest, DropsTheCacheOfWhoDraftedLeastRecently) {
  // Room for three sequences of 8 tokens.
  const FakeDrafter fake({.block_size = 4, .num_blocks = 6});
  std::vector<std::unique_ptr<DraftSequence>> sequences;
  for (int i = 0; i < 4; ++i) sequences.push_back(fake.NewSequence());
  const Tokens path = {10, 20, 30, 40, 50};
  const auto rows_of = [&](int i) {
    const int64_t before = fake.engine->num_rows();
    const auto run = sequences[static_cast<size_t>(i)]->Propose(path, {2});
    EXPECT_TRUE(run.ok());
    EXPECT_EQ(run->tokens, fake.engine->Continue(path, 2));
    return fake.engine->num_rows() - before;
  };
  for (const int i : {0, 1, 2}) EXPECT_EQ(rows_of(i), 6);
  // It is in no cache that its last token was computed before.
  EXPECT_EQ(rows_of(0), 2);
  // The second has to go for the fourth, and then the third for the second.
  EXPECT_EQ(rows_of(3), 6);
  EXPECT_EQ(rows_of(0), 2);
  EXPECT_EQ(rows_of(1), 6);
  EXPECT_EQ(rows_of(3), 2);
  EXPECT_EQ(rows_of(2), 6);
  EXPECT_EQ(fake.engine->kv_blocks_used(), 6);
}

TEST(ModelBatchTest, NoneInTheBatchLosesItsCacheToAnother) {
  const FakeDrafter fake({.block_size = 4, .num_blocks = 4});
  const auto first = fake.NewSequence();
  const auto second = fake.NewSequence();
  const auto third = fake.NewSequence();
  const Tokens path = {10, 20, 30, 40, 50, 60, 70 % 64};
  std::vector<DraftTask> tasks;
  for (DraftSequence* sequence : {first.get(), second.get(), third.get()}) {
    tasks.push_back({.sequence = sequence, .path = path, .limits = {2}});
  }
  // Two have room, and the third is told so.
  fake.drafter->Propose(absl::MakeSpan(tasks));
  ASSERT_TRUE(tasks[2].result.has_value());
  ASSERT_TRUE(tasks[2].result->ok()) << tasks[2].result->status();
  EXPECT_TRUE((*tasks[2].result)->tokens.empty());
  EXPECT_EQ(fake.engine->num_passes(), 1);
  fake.drafter->Propose(absl::MakeSpan(tasks).first(2));
  for (const DraftTask& task : {tasks[0], tasks[1]}) {
    ASSERT_TRUE(task.result.has_value());
    EXPECT_EQ((*task.result)->tokens, fake.engine->Continue(path, 2));
  }
  // When these do nothing it has room.
  const auto run = third->Propose(path, {2});
  ASSERT_TRUE(run.ok());
  EXPECT_EQ(run->tokens, fake.engine->Continue(path, 2));
}

TEST(ModelBatchTest, OneThatCanNeverFitTakesNothingFromOthers) {
  const FakeDrafter fake({.block_size = 4, .num_blocks = 4});
  const auto small = fake.NewSequence();
  ASSERT_TRUE(small->Propose({10, 20, 30}, {2}).ok());
  const int64_t rows = fake.engine->num_rows();
  const auto large = fake.NewSequence();
  const auto run = large->Propose(Tokens(17, 9), {2});
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_TRUE(run->tokens.empty());
  EXPECT_EQ(fake.engine->num_rows(), rows);
  // The small one still has its cache.
  ASSERT_TRUE(small->Propose({10, 20, 30}, {1}).ok());
  EXPECT_EQ(fake.engine->num_rows(), rows + 1);
}

// With pools too small for all: whatever is proposed is right, everybody is
// served, and nothing is lost.
TEST(ModelBatchTest, TinyPoolsOnlyShortenProposals) {
  constexpr unsigned kSeed = 20240705;
  std::mt19937 random(kSeed);
  for (const bool prefix_cache : {false, true}) {
    for (const int num_blocks : {4, 7, 12, 30}) {
      const FakeDrafter fake({.block_size = 4,
                              .num_blocks = num_blocks,
                              .prefix_cache = prefix_cache});
      struct Sequence {
        std::unique_ptr<DraftSequence> drafter;
        Tokens path;
        size_t num_proposed = 0;
      };
      std::vector<Sequence> sequences(8);
      for (int step = 0; step < 1500; ++step) {
        for (Sequence& sequence : sequences) {
          if (sequence.drafter != nullptr && random() % 64 != 0) continue;
          sequence.drafter = fake.NewSequence();
          sequence.path = {
              10, 20, 30, 40, 10, 20, static_cast<int>(random() % 2) + 6};
        }
        std::vector<Sequence*> batch;
        for (Sequence& sequence : sequences) {
          if (random() % 2 == 0) batch.push_back(&sequence);
        }
        if (batch.empty()) continue;
        std::shuffle(batch.begin(), batch.end(), random);
        std::vector<DraftTask> tasks;
        for (Sequence* sequence : batch) {
          tasks.push_back({.sequence = sequence->drafter.get(),
                           .path = sequence->path,
                           .limits = {3}});
        }
        fake.drafter->Propose(absl::MakeSpan(tasks));
        ASSERT_LE(fake.engine->kv_blocks_used(), num_blocks);
        for (size_t i = 0; i < tasks.size(); ++i) {
          if (!tasks[i].result.has_value()) continue;
          ASSERT_TRUE(tasks[i].result->ok()) << tasks[i].result->status();
          const Tokens& tokens = (*tasks[i].result)->tokens;
          Tokens& path = batch[i]->path;
          ASSERT_EQ(
              tokens,
              fake.engine->Continue(path, static_cast<int>(tokens.size())));
          batch[i]->num_proposed += tokens.size();
          path.insert(path.end(), tokens.begin(), tokens.end());
          if (random() % 2 == 0) path.push_back(8);
          if (path.size() > static_cast<size_t>(4 * num_blocks)) path.resize(5);
        }
      }
      size_t num_proposed = 0;
      for (const Sequence& sequence : sequences) {
        num_proposed += sequence.num_proposed;
      }
      EXPECT_GT(num_proposed, 20u) << num_blocks;
      sequences.clear();
      EXPECT_EQ(fake.engine->kv_blocks_used(), 0);
    }
  }
}

}  // namespace
}  // namespace specwire
