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
constexpr int64_t kMaxRate = 1'000'000'000'000;

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
  if (conditions.rate < 0 || conditions.rate > kMaxRate) {
    return absl::InvalidArgumentError(absl::StrCat(
        "rate must be in [0, ", kMaxRate, "], not ", conditions.rate));
  }
  // NaN is out of range too.
  if (!(conditions.flip_rate >= 0 && conditions.flip_rate <= 1)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "flip_rate must be in [0, 1], not ", conditions.flip_rate));
  }
  if (conditions.cut_after.value_or(0) < 0 ||
      conditions.flip_at.value_or(0) < 0) {
    return absl::InvalidArgumentError(
        "cut_after and flip_at must not be negative");
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

int64_t Relay::num_flips() const { return loop_->num_flips(); }

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
