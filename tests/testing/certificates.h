// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/rpc/tls_files.h"

namespace specwire {

// An authority whose certificates live in a folder of their own, which goes
// with it.
class TestAuthority {
 public:
  TestAuthority();
  ~TestAuthority();
  TestAuthority(const TestAuthority&) = delete;
  TestAuthority& operator=(const TestAuthority&) = delete;

  // The root alone, as a user without a certificate has it.
  TlsFiles Root() const;
  // A new certificate with the names, by commas, until `end`. The files are
  // named `file` and replaced if they exist.
  TlsFiles Issue(const std::string& dns_names,
                 const std::string& file,
                 absl::Time end = absl::Now() + absl::Hours(1));
  // Where a file of this name is or would be.
  std::string Path(const std::string& file) const;

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace specwire
