// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/worker_stream.h"

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "common/base/mutex.h"
#include "common/rpc/stream_watch.h"
#include "gtest/gtest.h"
#include "specwire/v1/verifier.pb.h"

namespace specwire {
namespace {

using Worker = StreamWorker<int>;
using Stream = WorkerStream<v1::DecodeRequest, v1::DecodeResponse, int>;

class CollectingSender final : public ServerSender<v1::DecodeResponse> {
 public:
  bool Send(v1::DecodeResponse message) override {
    return SendNumbered([&](int64_t) { return std::move(message); });
  }
  bool SendNumbered(
      absl::FunctionRef<v1::DecodeResponse(int64_t)> make) override {
    MutexLock lock(&mutex_);
    sent_.push_back(make(static_cast<int64_t>(sent_.size())));
    return true;
  }
  size_t num_queued() const override { return 0; }
  void Finish(absl::Status status) override { End(std::move(status)); }
  void Cancel(absl::Status status) override { End(std::move(status)); }

  std::vector<v1::DecodeResponse> sent() {
    MutexLock lock(&mutex_);
    return sent_;
  }
  std::optional<absl::Status> end() {
    MutexLock lock(&mutex_);
    return end_;
  }
  // Nothing if it has not ended within `limit`.
  std::optional<absl::Status> WaitForEnd(absl::Duration limit) {
    const absl::Time deadline = absl::Now() + limit;
    MutexLock lock(&mutex_);
    while (!end_.has_value() && changed_.WaitUntil(&mutex_, deadline)) {
    }
    return end_;
  }

 private:
  void End(absl::Status status) {
    MutexLock lock(&mutex_);
    if (!end_.has_value()) end_ = std::move(status);
    changed_.NotifyAll();
  }

  Mutex mutex_;
  CondVar changed_;
  std::vector<v1::DecodeResponse> sent_;
  std::optional<absl::Status> end_;
};

class WorkerStreamTest : public testing::Test {
 protected:
  std::unique_ptr<Stream> MakeStream(StreamWatch* watch = nullptr) {
    return std::make_unique<Stream>(
        &worker_,
        sender_,
        [](const v1::DecodeRequest&, bool) -> absl::StatusOr<int> { return 1; },
        watch);
  }
  static v1::DecodeRequest Open(int64_t max_silence_ms = 0) {
    v1::DecodeRequest request;
    request.mutable_open()->set_max_silence_ms(max_silence_ms);
    return request;
  }
  static v1::DecodeRequest Tune() {
    v1::DecodeRequest request;
    request.mutable_tune();
    return request;
  }
  static v1::DecodeRequest Check(int64_t num_sent) {
    v1::DecodeRequest request;
    request.mutable_check()->set_num_sent(num_sent);
    return request;
  }

  Worker worker_{{.thread_name = "worker"}};
  const std::shared_ptr<CollectingSender> sender_ =
      std::make_shared<CollectingSender>();
};

TEST_F(WorkerStreamTest, AnswersChecksWithWhatItHasSent) {
  const std::unique_ptr<Stream> stream = MakeStream();
  stream->OnMessage(Open());
  stream->OnMessage(Check(1));
  ASSERT_EQ(sender_->sent().size(), 1u);
  EXPECT_EQ(sender_->sent()[0].check().num_sent(), 0);
  sender_->Send(v1::DecodeResponse());
  stream->OnMessage(Tune());
  stream->OnMessage(Check(3));
  ASSERT_EQ(sender_->sent().size(), 3u);
  EXPECT_EQ(sender_->sent()[2].check().num_sent(), 2);
  EXPECT_EQ(sender_->end(), std::nullopt);
  // Checks are not for the worker.
  EXPECT_EQ(worker_.num_queued(), 2u);
}

TEST_F(WorkerStreamTest, EndsWhenMessagesWereLost) {
  for (const int64_t num_sent : {0, 2, -1}) {
    const auto sender = std::make_shared<CollectingSender>();
    Stream stream(&worker_,
                  sender,
                  [](const v1::DecodeRequest&, bool) -> absl::StatusOr<int> {
                    return 1;
                  });
    stream.OnMessage(Open());
    stream.OnMessage(Check(num_sent));
    ASSERT_TRUE(sender->end().has_value());
    EXPECT_EQ(sender->end()->code(), absl::StatusCode::kAborted);
    EXPECT_TRUE(sender->sent().empty());
  }
}

TEST_F(WorkerStreamTest, PeerThatIsSilentIsGivenUp) {
  StreamWatch watch(absl::Minutes(10), absl::Milliseconds(10));
  const std::unique_ptr<Stream> stream = MakeStream(&watch);
  stream->OnMessage(Open(/*max_silence_ms=*/200));
  for (int i = 1; i <= 40; ++i) {
    stream->OnMessage(Check(i));
    absl::SleepFor(absl::Milliseconds(10));
  }
  const std::optional<absl::Status> end =
      sender_->WaitForEnd(absl::Seconds(30));
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->code(), absl::StatusCode::kAborted);
  // All checks were answered: it was not silent while they came.
  EXPECT_EQ(sender_->sent().size(), 40u);
}

TEST_F(WorkerStreamTest, PeerThatNamesNoLimitMayBeSilent) {
  StreamWatch watch(absl::Milliseconds(50), absl::Milliseconds(10));
  const std::unique_ptr<Stream> stream = MakeStream(&watch);
  stream->OnMessage(Open());
  EXPECT_EQ(sender_->WaitForEnd(absl::Milliseconds(300)), std::nullopt);
}

TEST_F(WorkerStreamTest, StreamThatIsNeverOpenedIsGivenUp) {
  StreamWatch watch(absl::Milliseconds(50), absl::Milliseconds(10));
  const std::unique_ptr<Stream> stream = MakeStream(&watch);
  EXPECT_TRUE(sender_->WaitForEnd(absl::Seconds(30)).has_value());
}

TEST_F(WorkerStreamTest, StreamMayGoBeforeItsWatch) {
  StreamWatch watch(absl::Milliseconds(20), absl::Milliseconds(5));
  for (int i = 0; i < 50; ++i) {
    MakeStream(&watch);
    absl::SleepFor(absl::Milliseconds(1));
  }
}

}  // namespace
}  // namespace specwire
