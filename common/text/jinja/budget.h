// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/text/chat_template_limits.h"

namespace specwire::jinja {

// INVALID_ARGUMENT: the template, or what it was given, is wrong.
template <typename... Args>
absl::Status TemplateError(const Args&... args) {
  return absl::InvalidArgumentError(absl::StrCat(args...));
}

// RESOURCE_EXHAUSTED: a limit of ChatTemplateLimits was reached.
template <typename... Args>
absl::Status LimitError(const Args&... args) {
  return absl::ResourceExhaustedError(absl::StrCat(args...));
}

// What one rendering may still spend. Everything that an untrusted template can
// make large or repeat is charged here before it is done.
//
// Thread safety: one thread at a time.
class Budget {
 public:
  explicit Budget(const ChatTemplateLimits& limits) : limits_(limits) {}

  const ChatTemplateLimits& limits() const { return limits_; }

  // One node of the template is about to be evaluated.
  absl::Status Step() {
    if (++steps_ <= limits_.max_steps) return absl::OkStatus();
    return LimitError("more than ", limits_.max_steps, " steps");
  }

  // One more turn of a loop.
  absl::Status Iterate() {
    if (++iterations_ <= limits_.max_iterations) return absl::OkStatus();
    return LimitError("more than ", limits_.max_iterations, " loop iterations");
  }

  // `bytes` are about to be read, made or copied. List items count as
  // kBytesPerItem.
  absl::Status Charge(size_t bytes) {
    if (bytes <= limits_.max_work_bytes - work_bytes_) {
      work_bytes_ += bytes;
      return absl::OkStatus();
    }
    return LimitError("more than ", limits_.max_work_bytes, " bytes of work");
  }
  static constexpr size_t kBytesPerItem = 32;

 private:
  const ChatTemplateLimits limits_;
  int64_t steps_ = 0;
  int64_t iterations_ = 0;
  // Never above max_work_bytes.
  size_t work_bytes_ = 0;
};

}  // namespace specwire::jinja
