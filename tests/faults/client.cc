// SPDX-License-Identifier: Apache-2.0
#include "tests/faults/client.h"

#include <signal.h>
#include <sys/wait.h>

#include <iostream>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "cli/client.h"
#include "cli/resuming_call.h"
#include "common/rpc/status.h"

namespace specwire::faults {
namespace {

constexpr absl::string_view kStarted = "started";
constexpr absl::string_view kTokens = "tokens ";
constexpr absl::string_view kFinished = "finished";
constexpr absl::string_view kEnd = "end ";

void Write(const v1::GenerateResponse& response) {
  if (response.has_started()) std::cout << kStarted << std::endl;
  if (response.has_delta()) {
    std::cout << kTokens << response.delta().first_index() << " "
              << absl::StrJoin(response.delta().token_ids(), ",") << std::endl;
  }
  if (response.has_finished()) std::cout << kFinished << std::endl;
}

std::string OneLine(std::string text) {
  for (char& c : text) c = c == '\n' ? ' ' : c;
  return text;
}

}  // namespace

int RunClient(const std::string& addresses,
              const TlsFiles& tls,
              const std::string& request_hex) {
  v1::GenerateRequest request;
  cli::ClientFlags flags;
  flags.coordinators = addresses;
  flags.tls = tls;
  absl::StatusOr<std::vector<std::string>> parsed =
      cli::ParseCoordinators(flags);
  absl::StatusOr<std::unique_ptr<cli::Client>> client =
      cli::Client::Connect(flags);
  if (!request.ParseFromString(absl::HexStringToBytes(request_hex)) ||
      !parsed.ok() || !client.ok()) {
    std::cout << kEnd << OneLine(client.status().ToString()) << std::endl;
    return 1;
  }
  cli::ResumingCall call(*parsed, *std::move(client), request);
  const cli::GenerateOutcome outcome =
      call.Run([](const v1::GenerateResponse& response) {
        Write(response);
        return true;
      });
  std::cout << kEnd << OneLine(FromGrpcStatus(outcome.status).ToString())
            << std::endl;
  return outcome.status.ok() ? 0 : 1;
}

ClientProcess::ClientProcess(const std::string& program,
                             const std::string& addresses,
                             const TlsFiles& tls,
                             const v1::GenerateRequest& request)
    : process_({program,
                "client",
                addresses,
                tls.cert,
                tls.key,
                tls.ca,
                absl::BytesToHexString(request.SerializeAsString())}),
      reader_([this] { ReadAll(); }) {}

ClientProcess::~ClientProcess() {
  process_.Signal(SIGKILL);
  reader_.join();
}

ClientLog ClientProcess::log() const {
  MutexLock lock(&mutex_);
  return log_;
}

void ClientProcess::ReadAll() {
  // Lines are never empty: that is the end.
  for (std::string line = process_.ReadLine(); !line.empty();
       line = process_.ReadLine()) {
    Take(line);
  }
  // It is not reaped before this object goes: whoever signals it means it.
  siginfo_t info = {};
  waitid(P_PID, static_cast<id_t>(process_.pid()), &info, WEXITED | WNOWAIT);
  const std::string errors = process_.errors();
  MutexLock lock(&mutex_);
  if (log_.end.empty()) {
    log_.end = OneLine(absl::StrCat(
        "ended with code or signal ", info.si_status, ": ", errors));
  }
  log_.ended = true;
  changed_.NotifyAll();
}

void ClientProcess::Take(const std::string& line) {
  MutexLock lock(&mutex_);
  changed_.NotifyAll();
  if (line == kStarted) {
    log_.started = true;
  } else if (line == kFinished) {
    log_.finished = true;
  } else if (absl::StartsWith(line, kEnd)) {
    log_.end = line.substr(kEnd.size());
  } else if (absl::StartsWith(line, kTokens)) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    int first = 0;
    // A client that is killed may leave half a line behind.
    if (words.size() != 3 || !absl::SimpleAtoi(words[1], &first)) return;
    const int due = static_cast<int>(log_.tokens.size());
    log_.doubled += std::max(due - first, 0);
    log_.lost += std::max(first - due, 0);
    for (const absl::string_view word : absl::StrSplit(words[2], ',')) {
      int32_t token = 0;
      if (!absl::SimpleAtoi(word, &token)) return;
      log_.tokens.push_back(token);
      log_.times.push_back(absl::Now());
    }
  }
}

template <class Condition>
bool ClientProcess::WaitFor(Condition condition, absl::Time deadline) {
  MutexLock lock(&mutex_);
  while (!condition(log_)) {
    const absl::Duration left = deadline - absl::Now();
    if (left <= absl::ZeroDuration()) return false;
    changed_.WaitFor(&mutex_, left);
  }
  return true;
}

bool ClientProcess::WaitStarted(absl::Time deadline) {
  return WaitFor([](const ClientLog& log) { return log.started || log.ended; },
                 deadline);
}

bool ClientProcess::WaitTokens(size_t count, absl::Time deadline) {
  return WaitFor(
      [count](const ClientLog& log) {
        return log.tokens.size() >= count || log.ended;
      },
      deadline);
}

bool ClientProcess::WaitEnded(absl::Time deadline) {
  return WaitFor([](const ClientLog& log) { return log.ended; }, deadline);
}

}  // namespace specwire::faults
