// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/load.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <set>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "cli/bench/dataset.h"
#include "cli/bench/runner.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"

namespace specwire::cli::bench {
namespace {

// Answers as the prompt's text says: "full" and "late" are refused, "cut" ends
// without its last message, "hang" waits until it is cancelled; others get
// three tokens in two messages.
class FakeCluster final : public v1::GenerationService::Service {
 public:
  FakeCluster() {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort(
        "127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    stub_ = v1::GenerationService::NewStub(grpc::CreateChannel(
        absl::StrCat("127.0.0.1:", port), grpc::InsecureChannelCredentials()));
  }

  grpc::Status Generate(
      grpc::ServerContext* context,
      const v1::GenerateRequest* request,
      grpc::ServerWriter<v1::GenerateResponse>* writer) override {
    const int now = ++num_running_;
    int most = most_running_;
    while (most < now && !most_running_.compare_exchange_weak(most, now)) {
    }
    const grpc::Status status = Answer(context, request->text(), writer);
    --num_running_;
    return status;
  }

  v1::GenerationService::Stub* stub() { return stub_.get(); }
  int num_running() const { return num_running_; }
  int most_running() const { return most_running_; }

 private:
  grpc::Status Answer(grpc::ServerContext* context,
                      const std::string& text,
                      grpc::ServerWriter<v1::GenerateResponse>* writer) {
    if (text == "full") return {grpc::StatusCode::RESOURCE_EXHAUSTED, "full"};
    if (text == "gone") return {grpc::StatusCode::UNAVAILABLE, "gone"};
    v1::GenerateResponse response;
    response.mutable_started()->set_model("fake");
    writer->Write(response);
    for (int i = 0; i < 2; ++i) {
      v1::GenerateDelta* delta = response.mutable_delta();
      delta->Clear();
      for (int j = 0; j <= i; ++j) delta->add_token_ids(10 * i + j);
      writer->Write(response);
    }
    while (text == "hang" && !context->IsCancelled()) {
      absl::SleepFor(absl::Milliseconds(1));
    }
    if (text == "hang") return grpc::Status::CANCELLED;
    if (text == "cut") return grpc::Status::OK;
    response.mutable_finished()->mutable_usage()->set_completion_tokens(3);
    writer->Write(response);
    // What is behind the last message is of no interest.
    return {grpc::StatusCode::UNAVAILABLE, "shutting down"};
  }

  std::atomic<int> num_running_ = 0;
  std::atomic<int> most_running_ = 0;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<v1::GenerationService::Stub> stub_;
};

class LoadGeneratorTest : public testing::Test {
 protected:
  LoadGenerator::Settings SettingsFor(const std::string& text) {
    LoadGenerator::Settings settings;
    settings.stubs = {cluster_.stub()};
    settings.num_questions = 3;
    settings.make_request = [text](const Record&) {
      v1::GenerateRequest request;
      request.set_text(text);
      return request;
    };
    return settings;
  }

  static LoadGenerator::Block Block(int64_t begin, int64_t end) {
    LoadGenerator::Block block;
    block.number = 5;
    block.mode = Mode::kSpeculative;
    block.begin = begin;
    block.end = end;
    return block;
  }

  FakeCluster cluster_;
};

TEST_F(LoadGeneratorTest, EveryRequestOfABlockIsSentOnceAndRecorded) {
  LoadGenerator load(SettingsFor("hello"));
  const auto pacer = MakeClosedLoop(4, absl::ZeroDuration());
  std::vector<Record> records;
  const absl::Duration wall = load.Run(Block(10, 110), pacer.get(), &records);
  ASSERT_EQ(records.size(), 100u);
  EXPECT_LE(cluster_.most_running(), 4);
  std::set<int64_t> indices;
  for (const Record& record : records) {
    EXPECT_TRUE(record.ok()) << record.status;
    indices.insert(record.index);
    EXPECT_EQ(record.question, static_cast<size_t>(record.index % 3));
    EXPECT_EQ(record.block, 5);
    EXPECT_EQ(record.mode, Mode::kSpeculative);
    EXPECT_EQ(record.token_ids, (std::vector<int32_t>{0, 10, 11}));
    ASSERT_EQ(record.chunks.size(), 2u);
    EXPECT_EQ(record.chunks[1].num_tokens, 2);
    EXPECT_EQ(record.model, "fake");
    EXPECT_LE(record.scheduled, record.sent);
    EXPECT_LE(record.sent, record.chunks[0].time);
    EXPECT_LE(record.chunks[0].time, record.chunks[1].time);
    EXPECT_LE(record.chunks[1].time, record.done);
  }
  EXPECT_EQ(indices.size(), 100u);
  EXPECT_EQ(*indices.begin(), 10);
  EXPECT_GT(wall, absl::ZeroDuration());
  EXPECT_FALSE(load.stopped());
}

TEST_F(LoadGeneratorTest, AnOpenLoopDoesNotWaitForReplies) {
  LoadGenerator::Settings settings = SettingsFor("hang");
  settings.deadline = absl::Seconds(1);
  LoadGenerator load(std::move(settings));
  // All arrive within a fraction of the deadline.
  const auto pacer = MakeOpenLoop(Arrivals(2000, 1, 1), 1000);
  std::vector<Record> records;
  load.Run(Block(0, 20), pacer.get(), &records);
  ASSERT_EQ(records.size(), 20u);
  EXPECT_GT(cluster_.most_running(), 4);
  for (const Record& record : records) {
    EXPECT_TRUE(absl::IsDeadlineExceeded(record.status)) << record.status;
    EXPECT_GE(record.done - record.scheduled, absl::Milliseconds(950));
  }
}

TEST_F(LoadGeneratorTest, NothingStartsOnceTheDurationIsOver) {
  LoadGenerator load(SettingsFor("hello"));
  const auto pacer = MakeOpenLoop(Arrivals(100, 1, 1), 1000);
  LoadGenerator::Block block = Block(0, int64_t{1} << 40);
  block.duration = absl::Milliseconds(500);
  std::vector<Record> records;
  load.Run(block, pacer.get(), &records);
  EXPECT_FALSE(records.empty());
  // The arrivals of half a second, no more.
  Arrivals arrivals(100, 1, 1);
  size_t expected = 0;
  while (arrivals.Next() < block.duration) ++expected;
  EXPECT_LE(records.size(), expected);
}

TEST_F(LoadGeneratorTest, StopCancelsWhatIsInFlight) {
  LoadGenerator load(SettingsFor("hang"));
  const auto pacer = MakeClosedLoop(8, absl::ZeroDuration());
  std::vector<Record> records;
  std::thread stopper([&] {
    while (cluster_.num_running() < 8) absl::SleepFor(absl::Milliseconds(1));
    load.Stop();
  });
  load.Run(Block(0, 1000), pacer.get(), &records);
  stopper.join();
  EXPECT_EQ(records.size(), 8u);
  for (const Record& record : records) {
    EXPECT_TRUE(record.cancelled);
    EXPECT_FALSE(record.failed());
  }
  EXPECT_TRUE(load.stopped());
  // Nothing more is sent.
  load.Run(Block(0, 10), pacer.get(), &records);
  EXPECT_EQ(records.size(), 8u);
}

TEST_F(LoadGeneratorTest, FailuresInARowEndTheRun) {
  LoadGenerator::Settings settings = SettingsFor("gone");
  settings.give_up_after = 7;
  LoadGenerator load(std::move(settings));
  const auto pacer = MakeClosedLoop(1, absl::ZeroDuration());
  std::vector<Record> records;
  load.Run(Block(0, 1000), pacer.get(), &records);
  EXPECT_EQ(records.size(), 7u);
  EXPECT_TRUE(load.stopped());
}

TEST_F(LoadGeneratorTest, RefusalsForLoadDoNotEndTheRun) {
  LoadGenerator::Settings settings = SettingsFor("full");
  settings.give_up_after = 7;
  int64_t num_failed = 0;
  settings.on_progress = [&](int64_t, int64_t failed, int64_t) {
    num_failed = failed;
  };
  LoadGenerator load(std::move(settings));
  const auto pacer = MakeClosedLoop(2, absl::ZeroDuration());
  std::vector<Record> records;
  load.Run(Block(0, 50), pacer.get(), &records);
  EXPECT_EQ(records.size(), 50u);
  EXPECT_EQ(num_failed, 50);
  EXPECT_FALSE(load.stopped());
  EXPECT_TRUE(absl::IsResourceExhausted(records[0].status));
}

TEST_F(LoadGeneratorTest, AReplyWithoutItsLastMessageHasFailed) {
  LoadGenerator load(SettingsFor("cut"));
  const auto pacer = MakeClosedLoop(1, absl::ZeroDuration());
  std::vector<Record> records;
  load.Run(Block(0, 1), pacer.get(), &records);
  ASSERT_EQ(records.size(), 1u);
  EXPECT_TRUE(absl::IsInternal(records[0].status)) << records[0].status;
}

TEST(RequestMakerTest, BothModesAskTheSameAndShareNoPrefix) {
  const std::vector<Question> questions = {{1, "qa", "Why?"},
                                           {2, "qa", "How?"}};
  Options options;
  options.seed = 40;
  options.drafter = "ngram";
  auto maker = RequestMaker::Create(options, &questions);
  ASSERT_TRUE(maker.ok()) << maker.status();
  Record record;
  record.index = 3;
  record.question = 1;
  const v1::GenerateRequest plain = maker->Make(record);
  record.mode = Mode::kSpeculative;
  const v1::GenerateRequest speculative = maker->Make(record);
  for (const v1::GenerateRequest* request : {&plain, &speculative}) {
    ASSERT_EQ(request->chat().messages_size(), 1);
    EXPECT_EQ(request->chat().messages(0).role(), "user");
    EXPECT_EQ(request->chat().messages(0).content(), "How?");
    EXPECT_EQ(request->sampling().seed(), 43);
    EXPECT_EQ(request->sampling().temperature(), 0);
    EXPECT_EQ(request->stop().max_tokens(), 128);
    EXPECT_FALSE(request->cache_salt().empty());
    EXPECT_LE(request->cache_salt().size(), 64u);
  }
  EXPECT_TRUE(plain.speculation().has_enabled());
  EXPECT_FALSE(plain.speculation().enabled());
  EXPECT_TRUE(plain.speculation().drafter().empty());
  EXPECT_EQ(speculative.speculation().drafter(), "ngram");
  EXPECT_NE(plain.cache_salt(), speculative.cache_salt());
  EXPECT_NE(maker->Make(record).cache_salt(), speculative.cache_salt());
}

TEST(RequestMakerTest, SharedPrefixesAreSharedWithinAModeOfARun) {
  const std::vector<Question> questions = {{1, "qa", "Why?"}};
  Options options;
  options.share_prefixes = true;
  auto maker = RequestMaker::Create(options, &questions);
  auto other = RequestMaker::Create(options, &questions);
  ASSERT_TRUE(maker.ok() && other.ok());
  Record record;
  const std::string salt = maker->Make(record).cache_salt();
  EXPECT_EQ(maker->Make(record).cache_salt(), salt);
  EXPECT_NE(other->Make(record).cache_salt(), salt);
  record.mode = Mode::kSpeculative;
  EXPECT_NE(maker->Make(record).cache_salt(), salt);
}

}  // namespace
}  // namespace specwire::cli::bench
