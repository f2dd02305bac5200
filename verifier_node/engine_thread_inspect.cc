// SPDX-License-Identifier: Apache-2.0

// The engine thread's inspection.

#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/retry_delay.h"
#include "verifier_node/engine_thread.h"

namespace specwire::verifier {
namespace {

// Told to those that find another one.
constexpr absl::Duration kRetryDelay = absl::Milliseconds(500);

absl::StatusOr<bool> Step(Inspection* inspection, Engine* engine) {
  try {
    return inspection->Step(engine);
  } catch (const std::exception& error) {
    return absl::InternalError(
        absl::StrCat("the engine failed: ", error.what()));
  } catch (...) {
    return absl::InternalError("the engine failed");
  }
}

}  // namespace

void EngineThread::OnOpenInspection(StreamId stream, OpenInspection open) {
  if (inspection_stream_ != 0) {
    worker_.Release(stream);
    open.done(WithRetryDelay(
        absl::ResourceExhaustedError(
            "another inspection is under way; retry when it has ended"),
        kRetryDelay));
    return;
  }
  inspection_stream_ = stream;
  inspection_ = std::move(open);
}

bool EngineThread::StepInspection() {
  if (inspection_stream_ == 0) return false;
  if (inspection_.abandoned()) {
    EndInspection(absl::CancelledError("the caller has gone"));
    return true;
  }
  if (clock_->Now() > inspection_.deadline) {
    EndInspection(absl::DeadlineExceededError("the inspection takes too long"));
    return true;
  }
  absl::StatusOr<bool> done = Step(inspection_.inspection.get(), engine_);
  if (!done.ok()) {
    EndInspection(std::move(done).status());
  } else if (*done) {
    EndInspection(absl::OkStatus());
  }
  return true;
}

void EngineThread::EndInspection(absl::Status status) {
  if (inspection_stream_ == 0) return;
  // What it holds is free, and its place as well, before that is told.
  const OpenInspection ended = std::move(inspection_);
  inspection_ = {};
  worker_.Release(std::exchange(inspection_stream_, 0));
  ended.inspection->Release();
  ended.done(std::move(status));
}

}  // namespace specwire::verifier
