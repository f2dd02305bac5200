// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace specwire {

// The names by which peers know each other's role: a DNS name among the subject
// alternative names of a certificate. Addresses are of no account, so that a
// certificate outlives a move to another machine.
inline constexpr char kCoordinatorCertificate[] = "specwire-coordinator";
inline constexpr char kNodeCertificate[] = "specwire-node";
inline constexpr char kOperatorCertificate[] = "specwire-operator";

// Paths of a process's PEM files. All empty: it speaks without TLS.
struct TlsFiles {
  // Certificates from its own up to one that is signed by a root.
  std::string cert;
  // The private key of the first of them.
  std::string key;
  // Roots that peers' certificates must come from.
  std::string ca;

  // All three, as a server needs them; a client may do with `ca`.
  bool enabled() const { return !ca.empty(); }
};

// INVALID_ARGUMENT, naming the flag (--tls_cert, --tls_key, --tls_ca), unless
// the files are none, or can be read and belong together: the key is the
// certificate's, which is in its period of validity, comes from a root of `ca`
// and carries `name`, if one is given. A client (`needs_certificate` false) may
// have `ca` alone.
absl::Status CheckTlsFiles(const TlsFiles& files,
                           bool needs_certificate,
                           absl::string_view name);

}  // namespace specwire
