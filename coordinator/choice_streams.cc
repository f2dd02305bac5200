// SPDX-License-Identifier: Apache-2.0

// How a choice makes sure that its streams carry what they are given; see
// StreamAccount.

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "coordinator/choice.h"
#include "coordinator/wire.h"

namespace specwire::coordinator {
namespace {

// A check that comes later than this is a pause of our own.
constexpr absl::Duration kLongestDelay = absl::Seconds(1);

// Clocks of gRPC and ours may differ by less than this.
constexpr absl::Duration kEarly = absl::Milliseconds(100);

absl::Status Silent(absl::Duration silence) {
  return absl::UnavailableError(
      absl::StrCat("nothing has been heard of the stream for ",
                   absl::FormatDuration(absl::Floor(silence, absl::Seconds(1))),
                   ", not even that it is there"));
}

}  // namespace

void Choice::SendToVerifier(v1::DecodeRequest message) {
  if (verifier_.sender == nullptr) return;
  verifier_.account.OnSending();
  verifier_.sender->Send(std::move(message));
}

void Choice::SendToDrafter(v1::DraftRequest message) {
  if (drafter_.sender == nullptr) return;
  drafter_.account.OnSending();
  drafter_.sender->Send(std::move(message));
}

void Choice::FailVerifierStream(const absl::Status& why) {
  environment_.membership->RenewLink(verifier_.node.node_id,
                                     verifier_.link.get());
  LoseVerifier(why);
}

void Choice::FailDrafterStream(const absl::Status& why) {
  environment_.membership->RenewLink(drafter_.node.node_id,
                                     drafter_.link.get());
  LoseDrafter(drafter_.source, why);
}

bool Choice::TellsOfConnection(const absl::Status& status) const {
  return absl::IsUnknown(status) || absl::IsUnimplemented(status) ||
         (absl::IsDeadlineExceeded(status) &&
          absl::Now() + kEarly < context_.deadline);
}

absl::Status Choice::Garbled(const absl::Status& status) {
  return absl::AbortedError(
      absl::StrCat("the connection does not carry calls as they are made: ",
                   status.message()));
}

void Choice::ScheduleCheck() {
  if (ended_) return;
  check_id_ = environment_.timer->ScheduleAfter(
      StreamAccount::CheckInterval(environment_.stream_deadline),
      [weak = context_.host->weak_from_this(), this] {
        // The host owns this choice.
        const std::shared_ptr<ChoiceHost> host = weak.lock();
        if (host != nullptr) host->Post([this] { CheckStreams(); });
      });
}

void Choice::CheckStreams() {
  if (ended_) return;
  const absl::Time now = absl::Now();
  const absl::Duration deadline = environment_.stream_deadline;
  if (now - std::exchange(checked_, now) >
      StreamAccount::CheckInterval(deadline) + kLongestDelay) {
    verifier_.account.Forgive(now);
    drafter_.account.Forgive(now);
  }
  if (drafter_.sender != nullptr) {
    const absl::Duration silence = drafter_.account.Silence(now);
    if (silence > deadline) {
      FailDrafterStream(Silent(silence));
    } else {
      v1::DraftRequest message;
      message.mutable_check()->set_num_sent(drafter_.account.num_sent());
      SendToDrafter(std::move(message));
    }
  }
  if (verifier_.sender != nullptr) {
    const absl::Duration silence = verifier_.account.Silence(now);
    if (silence > deadline) {
      FailVerifierStream(Silent(silence));
    } else {
      // A tune that was altered on its way must not hold up the sequence.
      SendToVerifier(MakeDecodeTune(machine_.verifier_settings()));
      v1::DecodeRequest message;
      message.mutable_check()->set_num_sent(verifier_.account.num_sent());
      SendToVerifier(std::move(message));
    }
  }
  ScheduleCheck();
}

}  // namespace specwire::coordinator
