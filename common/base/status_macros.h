// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// Returns from the enclosing function if `expr` (an absl::Status) is an error.
#define SPECWIRE_RETURN_IF_ERROR(expr)                                  \
  do {                                                                  \
    if (absl::Status specwire_status = (expr); !specwire_status.ok()) { \
      return specwire_status;                                           \
    }                                                                   \
  } while (false)

// Evaluates `expr` (an absl::StatusOr<T>); returns its status on error, else
// assigns the value to `lhs`, which may declare a variable.
#define SPECWIRE_ASSIGN_OR_RETURN(lhs, expr) \
  SPECWIRE_ASSIGN_OR_RETURN_IMPL(            \
      SPECWIRE_CONCAT(specwire_statusor_, __LINE__), lhs, expr)

#define SPECWIRE_ASSIGN_OR_RETURN_IMPL(statusor, lhs, expr) \
  auto statusor = (expr);                                   \
  if (!statusor.ok()) {                                     \
    return std::move(statusor).status();                    \
  }                                                         \
  lhs = *std::move(statusor)

#define SPECWIRE_CONCAT(a, b) SPECWIRE_CONCAT_IMPL(a, b)
#define SPECWIRE_CONCAT_IMPL(a, b) a##b
