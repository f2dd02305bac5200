// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"

namespace specwire {

// SHA-256 (FIPS 180-4) of a sequence of pieces.
//
// Thread safety: one thread at a time.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  // Appends the bytes of `data`.
  void Update(absl::string_view data);
  // Appends a length as 8 little-endian bytes, then the bytes, so that two
  // different lists of pieces never hash alike.
  void UpdateSized(absl::string_view data);
  // Appends 8 little-endian bytes.
  void UpdateInt(int64_t value);

  // The digest of all that was appended, as 64 lower-case hexadecimal digits.
  // REQUIRES: called once, last.
  std::string FinishHex();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace specwire
