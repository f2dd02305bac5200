// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/rpc/tls_files.h"
#include "openssl/ssl.h"

namespace specwire {

// What connections with TLS are made from: the same files, versions of TLS and
// rules as those of gRPC. A client may show a certificate; one that it shows
// must come from the roots.
//
// Thread safety: any thread.
class TlsContext {
 public:
  // REQUIRES: CheckTlsFiles(files, true, ...) is OK. INVALID_ARGUMENT if the
  // files have changed since and are wrong.
  static absl::StatusOr<std::unique_ptr<TlsContext>> Load(
      const TlsFiles& files);

  // The state of the files, read again within kCertificateRefresh of a change;
  // what cannot be used leaves it as it was, and is logged.
  std::shared_ptr<SSL_CTX> Current();

 private:
  explicit TlsContext(TlsFiles files) : files_(std::move(files)) {}
  // Tells one state of the files from another.
  std::string Version() const;
  static absl::StatusOr<std::shared_ptr<SSL_CTX>> Make(const TlsFiles& files);

  const TlsFiles files_;
  const SteadyClock clock_;
  Mutex mutex_;
  std::shared_ptr<SSL_CTX> context_ ABSL_GUARDED_BY(mutex_);
  std::string version_ ABSL_GUARDED_BY(mutex_);
  absl::Time looked_ ABSL_GUARDED_BY(mutex_);
};

// The DNS names of the certificate that the peer has shown, and whether it has.
bool PeerNames(const SSL* ssl, std::vector<std::string>* names);

}  // namespace specwire
