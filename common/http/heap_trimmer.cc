// SPDX-License-Identifier: Apache-2.0
#include "common/http/heap_trimmer.h"

#include <malloc.h>

#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/thread_name.h"

namespace specwire {
namespace {

// Of bodies: what is made of one may be fifty times as large.
constexpr size_t kMuchFreed = 1 << 20;
constexpr absl::Duration kPause = absl::Seconds(1);

}  // namespace

HeapTrimmer::HeapTrimmer() {
  thread_ = std::thread([this] { Run(); });
}

HeapTrimmer::~HeapTrimmer() {
  {
    MutexLock lock(&mutex_);
    ended_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
}

void HeapTrimmer::OnFreed(size_t bytes) {
  if (bytes == 0) return;
  MutexLock lock(&mutex_);
  const bool was_much = freed_ >= kMuchFreed;
  freed_ += bytes;
  if (!was_much && freed_ >= kMuchFreed) changed_.NotifyAll();
}

void HeapTrimmer::Run() {
  SetThreadName("http_trim");
  const SteadyClock clock;
  for (;;) {
    {
      MutexLock lock(&mutex_);
      while (!ended_ && freed_ < kMuchFreed) changed_.Wait(&mutex_);
      if (ended_) return;
      freed_ = 0;
    }
    malloc_trim(0);
    const absl::Time next = clock.Now() + kPause;
    MutexLock lock(&mutex_);
    while (!ended_ && clock.Now() < next) {
      changed_.WaitFor(&mutex_, next - clock.Now());
    }
  }
}

}  // namespace specwire
