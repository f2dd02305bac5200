// SPDX-License-Identifier: Apache-2.0

// Whether the engine is to blame for passes that fail, or what was computed.

#include <algorithm>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"
#include "verifier_node/check_logits.h"
#include "verifier_node/engine_thread.h"

namespace specwire::verifier {
namespace {

// So many in a row are no accident.
constexpr int kMaxFailedChecks = 3;
constexpr absl::Duration kCheckPeriod = absl::Milliseconds(500);

// A full cache says nothing of the engine.
bool IsFault(const absl::Status& status) {
  return !status.ok() && !absl::IsResourceExhausted(status);
}

}  // namespace

absl::Status EngineThread::FindFault(absl::Span<const PassRun> runs) {
  const auto failed =
      std::find_if(runs.begin(), runs.end(), [](const PassRun& run) {
        return IsFault(run.status);
      });
  return failed == runs.end() ? absl::OkStatus() : failed->status;
}

absl::Status EngineThread::SelfCheck() {
  const std::unique_ptr<KvSequence> kv = engine_->NewSequence();
  const std::vector<int32_t> tokens = {0};
  const ForwardRun run = {.kv = kv.get(), .tokens = tokens, .num_logits = 1};
  SPECWIRE_ASSIGN_OR_RETURN(const absl::Span<const float> logits,
                            Forward(absl::MakeConstSpan(&run, 1)));
  if (logits.size() != static_cast<size_t>(engine_->info().vocab_size)) {
    return absl::InternalError(
        absl::StrCat("the engine computed ", logits.size(), " logits"));
  }
  return CheckLogits(logits);
}

void EngineThread::CheckEngine(const absl::Status& fault, absl::Time now) {
  next_check_ = now + kCheckPeriod;
  const absl::Status status = SelfCheck();
  ++progress_;
  if (!IsFault(status)) {
    num_failed_checks_ = 0;
    return;
  }
  ++num_failed_checks_;
  SPECWIRE_LOG(Error,
               "the engine has failed (",
               fault.message(),
               ") and cannot compute a pass of its own either: ",
               status.message());
  if (num_failed_checks_ < kMaxFailedChecks || options_.on_fatal == nullptr) {
    return;
  }
  num_failed_checks_ = 0;
  options_.on_fatal(status);
}

void EngineThread::RepeatCheck(absl::Time now, absl::Duration* pause) {
  if (num_failed_checks_ == 0) return;
  if (now >= next_check_) {
    CheckEngine(absl::InternalError("as before"), now);
  }
  if (num_failed_checks_ > 0) {
    *pause =
        std::min(*pause, std::max(next_check_ - now, absl::ZeroDuration()));
  }
}

}  // namespace specwire::verifier
