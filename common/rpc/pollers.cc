// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/pollers.h"

#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "grpcpp/client_context.h"
#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "grpcpp/support/byte_buffer.h"

namespace specwire {
namespace {

// gRPC starts no more.
constexpr int kMaxThreads = 16;
// A callback that comes through does so within this.
constexpr absl::Duration kPatience = absl::Milliseconds(250);

// A call to nobody in particular, whose end occupies the thread that tells it.
// Shared by its owner and its callback.
class Occupation {
 public:
  static std::shared_ptr<Occupation> Begin(grpc::GenericStub* stub) {
    auto occupation = std::make_shared<Occupation>();
    stub->UnaryCall(
        &occupation->context_,
        "/none/None",
        grpc::StubOptions(),
        &occupation->request_,
        &occupation->response_,
        [occupation](const grpc::Status& /*status*/) { occupation->Occupy(); });
    return occupation;
  }

  // Whether a thread is occupied within kPatience.
  bool WaitOccupied() {
    const absl::Time deadline = absl::Now() + kPatience;
    MutexLock lock(&mutex_);
    while (!occupied_ && changed_.WaitUntil(&mutex_, deadline)) {
    }
    return occupied_;
  }

  // Lets the thread go, now or as soon as it comes.
  void Release() {
    MutexLock lock(&mutex_);
    released_ = true;
    changed_.NotifyAll();
  }
  // Waits until the callback is over. REQUIRES: released.
  void WaitEnded() {
    MutexLock lock(&mutex_);
    while (!ended_) changed_.Wait(&mutex_);
  }

 private:
  void Occupy() {
    MutexLock lock(&mutex_);
    occupied_ = true;
    changed_.NotifyAll();
    while (!released_) changed_.Wait(&mutex_);
    ended_ = true;
    changed_.NotifyAll();
  }

  grpc::ClientContext context_;
  // An empty message, which is valid.
  grpc::Slice slice_;
  grpc::ByteBuffer request_{&slice_, 1};
  grpc::ByteBuffer response_;
  Mutex mutex_;
  CondVar changed_;
  bool occupied_ ABSL_GUARDED_BY(mutex_) = false;
  bool released_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace

class Pollers::Impl {
 public:
  explicit Impl(int num_threads) {
    grpc::ServerBuilder builder;
    // Answers every call with UNIMPLEMENTED.
    builder.RegisterCallbackGenericService(&service_);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr) return;
    grpc::GenericStub stub(server_->InProcessChannel(grpc::ChannelArguments()));
    // Until a call finds no thread any more; it ends once there is one.
    while (calls_.size() < kMaxThreads) {
      calls_.push_back(Occupation::Begin(&stub));
      if (!calls_.back()->WaitOccupied()) break;
    }
    const std::shared_ptr<Occupation> last = calls_.back();
    last->Release();
    calls_.pop_back();
    for (int i = 0; i < num_threads && !calls_.empty(); ++i) {
      calls_.back()->Release();
      calls_.back()->WaitEnded();
      calls_.pop_back();
    }
    last->WaitEnded();
  }

  ~Impl() {
    for (const auto& call : calls_) call->Release();
    for (const auto& call : calls_) call->WaitEnded();
    if (server_ != nullptr) server_->Shutdown();
  }

  int num_parked() const { return static_cast<int>(calls_.size()); }

 private:
  grpc::CallbackGenericService service_;
  std::unique_ptr<grpc::Server> server_;
  // Those that occupy a thread.
  std::vector<std::shared_ptr<Occupation>> calls_;
};

Pollers::Pollers(int num_threads)
    : impl_(std::make_unique<Impl>(num_threads)) {}

Pollers::~Pollers() = default;

int Pollers::num_parked() const { return impl_->num_parked(); }

}  // namespace specwire
