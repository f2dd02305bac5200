// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace specwire {

// What an exception of libtorch or of the C++ library means: RESOURCE_EXHAUSTED
// for lack of memory, otherwise INTERNAL. `doing` says what failed.
absl::Status StatusFromException(std::exception_ptr error,
                                 absl::string_view doing);

// Returns what `function` (which returns an absl::Status or StatusOr) returns,
// or the status that its exception means. Every call into libtorch that can
// come from a request goes through here.
template <typename Function>
auto CatchingTorch(absl::string_view doing, Function&& function)
    -> decltype(function()) {
  try {
    return function();
  } catch (...) {
    return StatusFromException(std::current_exception(), doing);
  }
}

}  // namespace specwire
