// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/relay.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/rpc/relay_loop.h"
#include "common/rpc/relay_socket.h"

namespace specwire {
namespace {

constexpr absl::Duration kLongestDelay = absl::Seconds(60);

absl::Status CheckConditions(const LinkConditions& conditions) {
  for (const absl::Duration time : {conditions.delay, conditions.jitter}) {
    if (time < absl::ZeroDuration() || time > kLongestDelay) {
      return absl::InvalidArgumentError(
          absl::StrCat("delay and jitter must be in [0, ",
                       absl::FormatDuration(kLongestDelay),
                       "], not ",
                       absl::FormatDuration(time)));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Relay>> Relay::Start(
    const RelayOptions& options) {
  SPECWIRE_ASSIGN_OR_RETURN(std::unique_ptr<RelayLoop> loop,
                            RelayLoop::Open(options));
  auto relay = std::unique_ptr<Relay>(new Relay(std::move(loop)));
  if (!options.target.empty()) {
    SPECWIRE_RETURN_IF_ERROR(relay->SetTarget(options.target));
  }
  return relay;
}

Relay::Relay(std::unique_ptr<RelayLoop> loop)
    : loop_(std::move(loop)), thread_([this] { loop_->Run(); }) {}

Relay::~Relay() {
  loop_->Stop();
  thread_.join();
}

const std::string& Relay::address() const { return loop_->address(); }

int64_t Relay::num_accepted() const { return loop_->num_accepted(); }

int64_t Relay::num_open() const { return loop_->num_open(); }

absl::Status Relay::SetTarget(const std::string& target) {
  SPECWIRE_ASSIGN_OR_RETURN(const SocketAddress address,
                            ParseSocketAddress(target, "target"));
  loop_->SetTarget(address);
  return absl::OkStatus();
}

absl::Status Relay::SetConditions(const LinkConditions& forward,
                                  const LinkConditions& backward) {
  SPECWIRE_RETURN_IF_ERROR(CheckConditions(forward));
  SPECWIRE_RETURN_IF_ERROR(CheckConditions(backward));
  loop_->SetConditions(forward, backward);
  return absl::OkStatus();
}

}  // namespace specwire
