// SPDX-License-Identifier: Apache-2.0

// The drafter thread with a real, tiny model: many streams that come, commit,
// rewind and go, and a cache that is empty afterwards.
#include <cstdint>
#include <functional>
#include <iterator>
#include <list>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "common/metrics/metrics.h"
#include "common/model/engine.h"
#include "common/model_drafting/model_drafter.h"
#include "draft_node/drafter_thread.h"
#include "gtest/gtest.h"
#include "tests/draft_node/scripted_drafter.h"
#include "tests/testing/eventually.h"

namespace specwire::draft {
namespace {

class ModelThreadTest : public testing::Test {
 protected:
  // A stream, seen from its peer.
  struct Stream {
    DrafterThread::StreamId id = 0;
    std::shared_ptr<RecordingSink> sink;
    int committed = 0;
    // Proposals that it waits for before it goes on.
    size_t wanted = 1;
    int steps_left = 0;
  };

  void Start(int64_t kv_cache_mib) {
    EngineOptions options;
    options.kv_cache_mib = kv_cache_mib;
    auto engine = LoadEngine(SPECWIRE_TINY_MODEL, options);
    ASSERT_TRUE(engine.ok()) << engine.status();
    auto drafter = ModelDrafter::Create(*std::move(engine), {});
    ASSERT_TRUE(drafter.ok()) << drafter.status();
    drafter_ = *std::move(drafter);
    thread_ = std::make_unique<DrafterThread>(
        drafter_.get(), DrafterThreadOptions(), &registry_);
    thread_->Start();
  }

  Stream Open(std::vector<int32_t> tokens,
              AcceptanceRule rule = AcceptanceRule::kCoupled) {
    Stream stream = {.id = thread_->worker()->Open(),
                     .sink = std::make_shared<RecordingSink>(),
                     .committed = static_cast<int>(tokens.size())};
    OpenDraft open;
    open.tokens = std::move(tokens);
    open.prompt_length = 1;
    open.run_length = 4;
    open.window = rule == AcceptanceRule::kRatio ? 4 : 12;
    open.params.rule = rule;
    open.params.sampling.temperature = stream.id % 2 == 0 ? 0.0f : 1.0f;
    open.params.sampling.seed = static_cast<int64_t>(stream.id);
    open.params.tenant_salt.assign(1, stream.id % 3 == 0 ? 'a' : 'b');
    open.sink = stream.sink;
    Post(stream, std::move(open));
    return stream;
  }
  void Post(const Stream& stream, DraftEvent event) {
    ASSERT_EQ(thread_->worker()->Post(stream.id, std::move(event), 1),
              StreamWorker<DraftEvent>::PostResult::kPosted);
  }

  // A commit that follows the latest proposal or does not, or a rewind: after
  // each of them the drafter has to say something, if only now and then.
  void Step(Stream* stream, std::mt19937* random) {
    const std::vector<Proposal> proposals = stream->sink->proposals();
    if ((*random)() % 4 == 0) {
      Post(*stream, Rewind{.position = stream->committed});
    } else {
      std::vector<int32_t> tokens = {30};
      const Proposal& latest = proposals.back();
      if ((*random)() % 2 == 0 && latest.position == stream->committed &&
          !latest.tokens.empty()) {
        tokens = latest.tokens;
        tokens.push_back(31);
      }
      Post(*stream,
           CommittedTokens{.position = stream->committed, .tokens = tokens});
      stream->committed += static_cast<int>(tokens.size());
    }
    stream->wanted = proposals.size() + 1;
    --stream->steps_left;
  }

  void ExpectAllFree() {
    EXPECT_TRUE(Eventually([&] { return drafter_->kv_blocks_used() == 0; }));
    EXPECT_TRUE(Eventually([&] { return thread_->num_sequences() == 0; }));
  }

  MetricsRegistry registry_;
  std::unique_ptr<ModelDrafter> drafter_;
  std::unique_ptr<DrafterThread> thread_;
};

TEST_F(ModelThreadTest, AThousandStreamsOneAfterTheOtherLeaveNothing) {
  Start(/*kv_cache_mib=*/8);
  std::vector<int32_t> prompt(20, 40);
  for (int i = 0; i < 1000; ++i) {
    prompt[10] = 20 + i % 7;
    Stream stream = Open(prompt);
    ASSERT_TRUE(Eventually([&] { return stream.sink->num_proposals() > 0; }));
    if (i % 2 == 0) {
      Post(stream, PeerDone());
      ASSERT_TRUE(
          Eventually([&] { return stream.sink->status().has_value(); }));
      EXPECT_TRUE(stream.sink->status()->ok());
    } else {
      thread_->worker()->Close(stream.id);
    }
  }
  ExpectAllFree();
}

TEST_F(ModelThreadTest, SixtyFourStreamsAtOnceLeaveNothing) {
  constexpr unsigned kSeed = 20240706;
  std::mt19937 random(kSeed);
  // 1 MiB is too little for all of them.
  for (const int64_t kv_cache_mib : {8, 1}) {
    Start(kv_cache_mib);
    std::list<Stream> streams;
    int num_opened = 0;
    int num_steps = 0;
    const auto done = [&] { return num_opened >= 200 && streams.empty(); };
    const absl::Time deadline = absl::Now() + absl::Seconds(100);
    while (!done() && absl::Now() < deadline) {
      while (streams.size() < 64 && num_opened < 200) {
        ++num_opened;
        std::vector<int32_t> prompt(random() % 4 == 0 ? 300 : 20, 50);
        prompt[5] = 20 + static_cast<int32_t>(random() % 8);
        streams.push_back(Open(std::move(prompt),
                               random() % 4 == 0 ? AcceptanceRule::kRatio
                                                 : AcceptanceRule::kCoupled));
        streams.back().steps_left = static_cast<int>(random() % 12);
      }
      for (auto it = streams.begin(); it != streams.end();) {
        Stream& stream = *it;
        ASSERT_FALSE(stream.sink->status().has_value())
            << *stream.sink->status();
        // Some go while they are waited for.
        const bool gone = random() % 4096 == 0;
        if (!gone && stream.sink->num_proposals() < stream.wanted) {
          ++it;
        } else if (!gone && stream.steps_left > 0) {
          Step(&stream, &random);
          ++num_steps;
          ++it;
        } else {
          thread_->worker()->Close(stream.id);
          it = streams.erase(it);
        }
      }
      absl::SleepFor(absl::Microseconds(100));
    }
    EXPECT_TRUE(done()) << streams.size();
    EXPECT_GT(num_steps, 400);
    ExpectAllFree();
    thread_ = nullptr;
  }
}

}  // namespace
}  // namespace specwire::draft
