// SPDX-License-Identifier: Apache-2.0

// Runs the streams' bookkeeping over a transport of the test's own, which keeps
// gRPC's rules for reactors, checks that they are kept, and completes
// operations on several threads in random order. Unlike gRPC as packaged,
// ThreadSanitizer understands all of it, so this is where races and uses after
// the end show.

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/mutex.h"
#include "common/rpc/client_stream.h"
#include "common/rpc/server_stream.h"
#include "gtest/gtest.h"

namespace specwire {
namespace {

struct Message {
  std::vector<int> tokens;
  size_t ByteSizeLong() const { return tokens.size() * sizeof(int); }
};

// Runs tasks on its threads in random order.
class ShufflingPool {
 public:
  ShufflingPool(int num_threads, unsigned seed) : random_(seed) {
    for (int i = 0; i < num_threads; ++i) {
      threads_.emplace_back([this] { Run(); });
    }
  }
  // Waits until no task is left.
  ~ShufflingPool() {
    {
      MutexLock lock(&mutex_);
      stopping_ = true;
      changed_.NotifyAll();
    }
    for (std::thread& thread : threads_) thread.join();
  }

  void Post(std::function<void()> task) {
    MutexLock lock(&mutex_);
    tasks_.push_back(std::move(task));
    changed_.NotifyAll();
  }

 private:
  void Run() {
    while (true) {
      std::function<void()> task;
      {
        MutexLock lock(&mutex_);
        while (tasks_.empty()) {
          if (stopping_ && running_ == 0) return;
          changed_.Wait(&mutex_);
        }
        std::swap(tasks_[random_() % tasks_.size()], tasks_.back());
        task = std::move(tasks_.back());
        tasks_.pop_back();
        ++running_;
      }
      task();
      MutexLock lock(&mutex_);
      --running_;
      changed_.NotifyAll();
    }
  }

  Mutex mutex_;
  CondVar changed_;
  std::mt19937 random_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::function<void()>> tasks_ ABSL_GUARDED_BY(mutex_);
  int running_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

// What is common to the two ends: operations in flight, and the call's end.
// Owns itself, as gRPC's reactors do.
class FakeCall {
 public:
  explicit FakeCall(ShufflingPool* pool) : pool_(pool) {}
  virtual ~FakeCall() = default;

  // Ends the call as the peer, the network or TryCancel do.
  void Cut() {
    if (cut_.exchange(true)) return;
    OnCut();
    CompleteBlockedWrite();
  }
  bool cut() const { return cut_; }

 protected:
  // Runs a reaction later. The call stays until it has returned.
  void Later(std::function<void()> reaction) {
    ++in_flight_;
    pool_->Post([this, reaction = std::move(reaction)] {
      reaction();
      Release();
    });
  }
  void Release() {
    if (in_flight_.fetch_sub(1) == 1) OnDone();
  }
  void Write(const Message* message, std::function<void(bool)> done) {
    EXPECT_FALSE(writing_.exchange(true)) << "two writes at once";
    // As serialisation would.
    int sum = 0;
    for (const int token : message->tokens) sum += token;
    EXPECT_EQ(sum, static_cast<int>(message->tokens.size()));
    ++in_flight_;
    std::function<void()> complete = [this, message, done = std::move(done)] {
      EXPECT_FALSE(message->tokens.empty());
      writing_ = false;
      done(!cut_);
      Release();
    };
    // The peer's flow control holds every eighth until the call is cut.
    if (++num_writes_ % 8 != 0) {
      pool_->Post(std::move(complete));
      return;
    }
    {
      MutexLock lock(&mutex_);
      blocked_ = std::move(complete);
    }
    if (cut_) CompleteBlockedWrite();
  }

  virtual void OnCut() = 0;
  virtual void OnDone() = 0;

  ShufflingPool* const pool_;
  std::atomic<bool> writing_ = false;

 private:
  void CompleteBlockedWrite() {
    std::function<void()> complete;
    {
      MutexLock lock(&mutex_);
      complete.swap(blocked_);
    }
    if (complete) pool_->Post(std::move(complete));
  }

  // One for the call itself.
  std::atomic<int> in_flight_ = 1;
  std::atomic<bool> cut_ = false;
  std::atomic<int> num_writes_ = 0;
  Mutex mutex_;
  std::function<void()> blocked_ ABSL_GUARDED_BY(mutex_);
};

// How often calls ended, and how.
struct Tally {
  std::atomic<int> ended = 0;
  std::atomic<int> cancelled = 0;
};

class FakeServerCall;

// Lives as long as its call.
class FakeServerContext {
 public:
  explicit FakeServerContext(FakeServerCall* call) : call_(call) {}
  void TryCancel();
  bool IsCancelled() const;
  std::chrono::system_clock::time_point deadline() const {
    return std::chrono::system_clock::time_point::max();
  }

 private:
  FakeServerCall* const call_;
};

class FakeServerCall final : public FakeCall {
 public:
  using State = ServerStreamState<FakeServerCall, Message, FakeServerContext>;

  FakeServerCall(ShufflingPool* pool, Tally* tally, const StreamLimits& limits)
      : FakeCall(pool),
        tally_(tally),
        context_(std::make_unique<FakeServerContext>(this)),
        state_(std::make_shared<State>(this, context_.get(), limits)) {}

  const std::shared_ptr<State>& state() const { return state_; }
  // What the peer does.
  void CutSoon() {
    Later([this] { Cut(); });
  }

  void StartWrite(const Message* message) {
    EXPECT_FALSE(finished_) << "a write after Finish";
    Write(message, [this](bool ok) { state_->OnWriteDone(ok); });
  }
  void Finish(const grpc::Status&) {
    EXPECT_FALSE(finished_.exchange(true)) << "two Finish";
    EXPECT_FALSE(writing_) << "Finish while a write is in flight";
    // Gives the call's own hold back, later.
    pool_->Post([this] { Release(); });
  }

 private:
  void OnCut() override {
    Later([this] { state_->OnPeerGone(); });
  }
  void OnDone() override {
    EXPECT_TRUE(finished_);
    const absl::Status status = state_->End();
    if (status.code() == absl::StatusCode::kCancelled) ++tally_->cancelled;
    ++tally_->ended;
    delete this;
  }

  Tally* const tally_;
  std::atomic<bool> finished_ = false;
  std::unique_ptr<FakeServerContext> context_;
  const std::shared_ptr<State> state_;
};

void FakeServerContext::TryCancel() { call_->Cut(); }
bool FakeServerContext::IsCancelled() const { return call_->cut(); }

class FakeClientCall;

class FakeClientContext {
 public:
  void TryCancel();
  FakeClientCall* call = nullptr;
};

class FakeClientCall final : public FakeCall {
 public:
  using State = ClientStreamState<FakeClientCall, Message, FakeClientContext>;

  FakeClientCall(ShufflingPool* pool, Tally* tally, const StreamLimits& limits)
      : FakeCall(pool), tally_(tally) {
    auto context = std::make_unique<FakeClientContext>();
    context->call = this;
    state_ = std::make_shared<State>(this, std::move(context), limits);
  }

  const std::shared_ptr<State>& state() const { return state_; }
  void CutSoon() {
    Later([this] { Cut(); });
  }

  void StartWrite(const Message* message) {
    EXPECT_TRUE(held_) << "a write after the hold was removed";
    EXPECT_FALSE(writes_done_) << "a write after WritesDone";
    Write(message, [this](bool ok) { state_->OnWriteDone(ok); });
  }
  void StartWritesDone() {
    EXPECT_TRUE(held_);
    EXPECT_FALSE(writes_done_.exchange(true)) << "two WritesDone";
    EXPECT_FALSE(writing_);
    Later([this] {
      state_->OnWritesDoneDone();
      // The server then ends the call.
      Cut();
    });
  }
  void RemoveHold() {
    // gRPC would bear that, but whoever was about to start the write would not.
    EXPECT_FALSE(writing_) << "the hold was removed while a write is in flight";
    EXPECT_TRUE(held_.exchange(false)) << "the hold was removed twice";
    pool_->Post([this] { Release(); });
  }

 private:
  // The pending read fails.
  void OnCut() override {
    Later([this] { state_->OnReadsDone(); });
  }
  void OnDone() override {
    EXPECT_FALSE(held_);
    const absl::Status status =
        state_->End(grpc::Status(grpc::StatusCode::CANCELLED, ""));
    if (status.code() == absl::StatusCode::kCancelled) ++tally_->cancelled;
    ++tally_->ended;
    delete this;
  }

  Tally* const tally_;
  std::atomic<bool> held_ = true;
  std::atomic<bool> writes_done_ = false;
  std::shared_ptr<State> state_;
};

void FakeClientContext::TryCancel() { call->Cut(); }

Message SomeMessage(size_t tokens) {
  return Message{std::vector<int>(tokens, 1)};
}

// Two users of one sender, who do not know of each other.
template <class Sender, class End>
void UseFromTwoThreads(const std::shared_ptr<Sender>& sender,
                       unsigned seed,
                       End end) {
  std::vector<std::thread> users;
  for (unsigned user = 0; user < 2; ++user) {
    users.emplace_back([sender, end, seed = seed * 2 + user] {
      std::mt19937 random(seed);
      const unsigned sends = static_cast<unsigned>(random() % 12);
      for (unsigned i = 0; i < sends; ++i) {
        sender->Send(SomeMessage(1 + random() % 8));
        sender->num_queued();
      }
      end(sender.get(), static_cast<unsigned>(random() % 4));
      // Also after the end.
      sender->Send(SomeMessage(1));
    });
  }
  for (std::thread& user : users) user.join();
}

constexpr int kCalls = 1500;

TEST(ServerStreamStateTest, KeepsTheRulesWhateverTheOrder) {
  Tally tally;
  {
    ShufflingPool pool(3, 1);
    for (unsigned i = 0; i < kCalls; ++i) {
      StreamLimits limits;
      limits.max_queued_messages = 6;
      auto* call = new FakeServerCall(&pool, &tally, limits);
      const std::shared_ptr<FakeServerCall::State> state = call->state();
      // Without a peer that ends it, our side has to.
      const bool peer_cuts = i % 3 != 0;
      if (peer_cuts) call->CutSoon();
      UseFromTwoThreads(state, i, [](auto* sender, unsigned choice) {
        if (choice == 0) sender->Finish(absl::OkStatus());
        if (choice == 1) sender->Cancel(absl::AbortedError("enough"));
      });
      if (!peer_cuts) {
        state->Finish(absl::OkStatus());
        state->Cancel(absl::AbortedError("enough"));
      }
    }
  }
  EXPECT_EQ(tally.ended, kCalls);
  EXPECT_GT(tally.cancelled, 0);
  EXPECT_LT(tally.cancelled, kCalls);
}

TEST(ClientStreamStateTest, KeepsTheRulesWhateverTheOrder) {
  Tally tally;
  {
    ShufflingPool pool(3, 2);
    for (unsigned i = 0; i < kCalls; ++i) {
      StreamLimits limits;
      limits.max_queued_messages = 6;
      auto* call = new FakeClientCall(&pool, &tally, limits);
      const std::shared_ptr<FakeClientCall::State> state = call->state();
      const bool peer_cuts = i % 3 != 0;
      if (peer_cuts) call->CutSoon();
      UseFromTwoThreads(state, i, [](auto* sender, unsigned choice) {
        if (choice == 0) sender->WritesDone();
        if (choice == 1) sender->Cancel();
      });
      if (!peer_cuts) state->Cancel();
    }
  }
  EXPECT_EQ(tally.ended, kCalls);
  // The others overflowed.
  EXPECT_GT(tally.cancelled, 0);
  EXPECT_LT(tally.cancelled, kCalls);
}

}  // namespace
}  // namespace specwire
