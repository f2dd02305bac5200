// SPDX-License-Identifier: Apache-2.0
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "cli/client.h"
#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/node_text.h"
#include "cli/terminal.h"
#include "cli/top_view.h"
#include "common/base/clock.h"

namespace specwire::cli {
namespace {

// Longest wait for an answer before the frame says that there is none.
constexpr absl::Duration kReadTimeout = absl::Seconds(2);
constexpr absl::Duration kOncePause = absl::Seconds(1);
constexpr double kLeastInterval = 0.1;
constexpr double kLongestInterval = 3600;

struct TopFlags {
  ClientFlags client;
  double interval = 2;
  bool once = false;
};

// Reads the cluster through the first coordinator that answers, and through
// another, or the same one when it is back, once that has gone.
class Reader {
 public:
  Reader(std::vector<std::string> addresses, std::unique_ptr<Client> client)
      : addresses_(std::move(addresses)),
        options_(client->channel_options()),
        client_(std::move(client)) {}

  absl::StatusOr<Reading> Read() {
    if (client_ == nullptr && !Reconnect()) return Failure();
    Reading reading;
    const absl::Time deadline = absl::Now() + kReadTimeout;
    failure_ = Call(deadline, &reading);
    if (failure_.ok()) return reading;
    client_.reset();
    return Failure();
  }

  // Of the coordinator that answered last.
  const std::string& address() const { return address_; }
  // It answers, and refuses.
  bool refused() const {
    return failure_.error_code() == grpc::StatusCode::UNAUTHENTICATED ||
           failure_.error_code() == grpc::StatusCode::PERMISSION_DENIED ||
           failure_.error_code() == grpc::StatusCode::UNIMPLEMENTED;
  }
  const grpc::Status& failure() const { return failure_; }

 private:
  grpc::Status Call(absl::Time deadline, Reading* reading) {
    grpc::ClientContext nodes;
    nodes.set_deadline(absl::ToChronoTime(deadline));
    grpc::Status status =
        client_->cluster()->ListNodes(&nodes, {}, &reading->nodes);
    if (!status.ok()) return status;
    grpc::ClientContext stats;
    stats.set_deadline(absl::ToChronoTime(deadline));
    status = client_->cluster()->GetStats(&stats, {}, &reading->stats);
    reading->time = clock_.Now();
    address_ = client_->address();
    return status;
  }

  bool Reconnect() {
    for (size_t i = 0; i < addresses_.size(); ++i) {
      absl::StatusOr<std::unique_ptr<Client>> client =
          Client::ConnectTo(addresses_[next_], kReadTimeout, options_);
      next_ = (next_ + 1) % addresses_.size();
      if (client.ok()) {
        client_ = *std::move(client);
        return true;
      }
      failure_ = grpc::Status(grpc::StatusCode::UNAVAILABLE,
                              std::string(client.status().message()));
    }
    return false;
  }

  absl::Status Failure() const {
    return absl::UnavailableError(failure_.error_message());
  }

  const std::vector<std::string> addresses_;
  const RpcChannelOptions options_;
  const SteadyClock clock_;
  std::unique_ptr<Client> client_;
  std::string address_;
  size_t next_ = 0;
  grpc::Status failure_;
};

// Two readings, one frame: for scripts.
int ShowOnce(Reader* reader, absl::Duration pause) {
  const absl::StatusOr<Reading> before = reader->Read();
  if (!before.ok()) return FailCall(reader->failure());
  SignalSource signals({SIGINT, SIGTERM});
  pollfd fd = {signals.fd(), POLLIN, 0};
  poll(&fd, 1, static_cast<int>(absl::ToInt64Milliseconds(pause)));
  if (signals.Take().has_value()) return kExitInterrupted;
  const absl::StatusOr<Reading> now = reader->Read();
  if (!now.ok()) return FailCall(reader->failure());
  std::printf("coordinator %s\n", reader->address().c_str());
  for (const std::string& line : FrameLines(*now, &*before)) {
    std::printf("%s\n", line.c_str());
  }
  return FinishOutput();
}

// The live view.
class LiveView {
 public:
  LiveView(Reader* reader, absl::Duration interval)
      : reader_(reader), interval_(interval) {}

  int Run() {
    for (;;) {
      Update();
      if (reader_->refused()) return kExitFailed;
      if (!Show()) return kExitFailed;
      if (!Wait()) return kExitDone;
    }
  }

 private:
  void Update() {
    absl::StatusOr<Reading> reading = reader_->Read();
    if (!reading.ok()) {
      note_ = absl::StrCat(
          "no answer: ", Escaped(reading.status().message()), "; trying again");
      return;
    }
    note_.clear();
    before_ = std::exchange(now_, *std::move(reading));
    if (before_.has_value() && WasRestarted(*before_, *now_)) {
      note_ = "the coordinator was restarted";
      before_.reset();
    }
  }

  bool Show() {
    const Terminal::Size size = terminal_.size();
    std::vector<std::string> lines = {absl::StrCat(
        "specwire top  coordinator ",
        reader_->address(),
        absl::FormatTime("  %H:%M:%S", absl::Now(), absl::LocalTimeZone()),
        "  q quits")};
    if (!note_.empty()) lines.push_back(note_);
    if (now_.has_value()) {
      const std::vector<std::string> frame =
          FrameLines(*now_, before_.has_value() ? &*before_ : nullptr);
      lines.insert(lines.end(), frame.begin(), frame.end());
    }
    return terminal_.Show(Fit(std::move(lines), size.width, size.height));
  }

  // Until the next frame; false if the user wants no more.
  bool Wait() {
    const absl::Time end = absl::Now() + interval_;
    for (;;) {
      const absl::Duration left = end - absl::Now();
      if (left <= absl::ZeroDuration()) return true;
      pollfd fds[2] = {{signals_.fd(), POLLIN, 0}, {STDIN_FILENO, POLLIN, 0}};
      poll(fds,
           terminal_.has_keys() ? 2 : 1,
           static_cast<int>(absl::ToInt64Milliseconds(left)) + 1);
      if (signals_.Take().has_value()) return false;
      if (terminal_.has_keys() && fds[1].revents != 0) {
        // Nothing to read although there is something: it has gone.
        const std::string keys = terminal_.TakeKeys();
        if (keys.empty() || keys.find_first_of("qQ") != std::string::npos) {
          return false;
        }
      }
    }
  }

  Reader* const reader_;
  const absl::Duration interval_;
  SignalSource signals_{SIGINT, SIGTERM};
  Terminal terminal_;
  std::optional<Reading> before_;
  std::optional<Reading> now_;
  std::string note_;
};

int RunTop(const TopFlags& flags) {
  absl::StatusOr<std::vector<std::string>> addresses =
      ParseCoordinators(flags.client);
  if (!addresses.ok()) return FailUsage(addresses.status());
  // A number that is none fails too.
  if (!(flags.interval >= kLeastInterval &&
        flags.interval <= kLongestInterval)) {
    return FailUsage(absl::InvalidArgumentError(absl::StrCat("--interval: ",
                                                             flags.interval,
                                                             " is not between ",
                                                             kLeastInterval,
                                                             " and ",
                                                             kLongestInterval,
                                                             " seconds")));
  }
  absl::StatusOr<std::unique_ptr<Client>> client =
      Client::Connect(flags.client);
  if (!client.ok()) return FailConnect(client.status());
  Reader reader(*std::move(addresses), *std::move(client));
  const absl::Duration interval = absl::Seconds(flags.interval);
  if (flags.once || isatty(STDOUT_FILENO) != 1) {
    return ShowOnce(&reader, std::min(interval, kOncePause));
  }
  int code = kExitDone;
  {
    LiveView view(&reader, interval);
    code = view.Run();
  }
  return code == kExitFailed && !reader.failure().ok()
             ? FailCall(reader.failure())
             : code;
}

}  // namespace

void AddTopCommand(CLI::App* app, Runner* runner) {
  CLI::App* command = app->add_subcommand(
      "top",
      "Nodes, load, cache, requests, tokens per second and acceptance by "
      "drafter, live; q or Ctrl-C quits. Where standard output is no terminal, "
      "one frame");
  auto flags = std::make_shared<TopFlags>();
  AddClientFlags(command, &flags->client);
  command
      ->add_option("--interval",
                   flags->interval,
                   "Seconds between two frames, and what rates are taken over")
      ->capture_default_str();
  command->add_flag(
      "--once", flags->once, "One frame, after two readings, and the end");
  AddEnvironmentNames(command);
  command->callback(
      [flags, runner] { *runner = [flags] { return RunTop(*flags); }; });
}

}  // namespace specwire::cli
