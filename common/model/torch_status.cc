// SPDX-License-Identifier: Apache-2.0
#include "common/model/torch_status.h"

#include <c10/util/Exception.h>

#include <new>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace specwire {
namespace {

// libtorch reports a failed CPU allocation as a plain c10::Error.
bool IsOutOfMemory(absl::string_view message) {
  return absl::StrContains(message, "DefaultCPUAllocator") ||
         absl::StrContains(message, "out of memory");
}

}  // namespace

absl::Status StatusFromException(std::exception_ptr error,
                                 absl::string_view doing) {
  try {
    std::rethrow_exception(error);
  } catch (const c10::Error& e) {
    const std::string message =
        absl::StrCat(doing, ": ", e.what_without_backtrace());
    return IsOutOfMemory(message) ? absl::ResourceExhaustedError(message)
                                  : absl::InternalError(message);
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(absl::StrCat(doing, ": out of memory"));
  } catch (const std::exception& e) {
    return absl::InternalError(absl::StrCat(doing, ": ", e.what()));
  } catch (...) {
    return absl::InternalError(absl::StrCat(doing, ": unknown exception"));
  }
}

}  // namespace specwire
