// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/rpc/tls_files.h"
#include "specwire/v1/generation.pb.h"
#include "tests/testing/child_process.h"

namespace specwire::faults {

// What a client has seen: the log that is compared with plain decoding.
struct ClientLog {
  bool started = false;
  std::vector<int32_t> tokens;
  // When each of them came.
  std::vector<absl::Time> times;
  // Positions that came again, and those left out.
  int doubled = 0;
  int lost = 0;
  // It was told that the request had ended.
  bool finished = false;
  // The client's last line: "OK", or a code and what was wrong. If it did not
  // get to say it: its exit code and what it wrote to standard error.
  std::string end;
  bool ended = false;
};

// A user's client as a process of its own, so that it can be killed and
// stopped: it makes one call, goes on at another coordinator when it loses one,
// as `specwire generate` does, and writes down what it sees.
//
// Thread safety: any thread.
class ClientProcess {
 public:
  // `program` is this program, which runs RunClient for it; `addresses` are
  // those of coordinators, by commas.
  ClientProcess(const std::string& program,
                const std::string& addresses,
                const TlsFiles& tls,
                const v1::GenerateRequest& request);
  // Kills it.
  ~ClientProcess();
  ClientProcess(const ClientProcess&) = delete;
  ClientProcess& operator=(const ClientProcess&) = delete;

  pid_t pid() const { return process_.pid(); }
  ClientLog log() const;
  // False if that was not so by `deadline`.
  bool WaitStarted(absl::Time deadline);
  bool WaitTokens(size_t count, absl::Time deadline);
  bool WaitEnded(absl::Time deadline);

 private:
  void ReadAll();
  void Take(const std::string& line);
  template <class Condition>
  bool WaitFor(Condition condition, absl::Time deadline);

  ChildProcess process_;
  mutable Mutex mutex_;
  CondVar changed_;
  ClientLog log_ ABSL_GUARDED_BY(mutex_);
  std::thread reader_;
};

// The client's side: the process's main().
int RunClient(const std::string& addresses,
              const TlsFiles& tls,
              const std::string& request_hex);

}  // namespace specwire::faults
