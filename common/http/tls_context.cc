// SPDX-License-Identifier: Apache-2.0
#include "common/http/tls_context.h"

#include <utility>

#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>

#include "absl/strings/str_cat.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"
#include "common/rpc/limits.h"

namespace specwire {
namespace {

absl::Status Problem(const char* flag, const std::string& path) {
  ERR_clear_error();
  return absl::InvalidArgumentError(
      absl::StrCat(flag, ": ", path, " cannot be used"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<TlsContext>> TlsContext::Load(
    const TlsFiles& files) {
  std::unique_ptr<TlsContext> context(new TlsContext(files));
  MutexLock lock(&context->mutex_);
  // Asked before the files are read: a change meanwhile is seen later.
  context->version_ = context->Version();
  context->looked_ = context->clock_.Now();
  SPECWIRE_ASSIGN_OR_RETURN(context->context_, Make(files));
  return context;
}

absl::StatusOr<std::shared_ptr<SSL_CTX>> TlsContext::Make(
    const TlsFiles& files) {
  SPECWIRE_RETURN_IF_ERROR(CheckTlsFiles(files, true, ""));
  std::shared_ptr<SSL_CTX> context(SSL_CTX_new(TLS_server_method()),
                                   SSL_CTX_free);
  if (context == nullptr) return absl::InternalError("TLS cannot be set up");
  SSL_CTX* const raw = context.get();
  SSL_CTX_set_min_proto_version(raw, TLS1_2_VERSION);
  SSL_CTX_set_options(raw, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  SSL_CTX_set_mode(raw,
                   SSL_MODE_ENABLE_PARTIAL_WRITE |
                       SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                       SSL_MODE_RELEASE_BUFFERS);
  // A resumed session shows no certificate again: none is resumed.
  SSL_CTX_set_session_cache_mode(raw, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_options(raw, SSL_OP_NO_TICKET);
  if (SSL_CTX_use_certificate_chain_file(raw, files.cert.c_str()) != 1) {
    return Problem("--tls_cert", files.cert);
  }
  if (SSL_CTX_use_PrivateKey_file(raw, files.key.c_str(), SSL_FILETYPE_PEM) !=
          1 ||
      SSL_CTX_check_private_key(raw) != 1) {
    return Problem("--tls_key", files.key);
  }
  if (SSL_CTX_load_verify_locations(raw, files.ca.c_str(), nullptr) != 1) {
    return Problem("--tls_ca", files.ca);
  }
  SSL_CTX_set_client_CA_list(raw, SSL_load_client_CA_file(files.ca.c_str()));
  SSL_CTX_set_verify(raw, SSL_VERIFY_PEER, nullptr);
  return context;
}

std::string TlsContext::Version() const {
  std::string version;
  for (const std::string* path : {&files_.cert, &files_.key, &files_.ca}) {
    struct stat status {};
    if (stat(path->c_str(), &status) != 0) continue;
    absl::StrAppend(&version,
                    status.st_ino,
                    " ",
                    status.st_size,
                    " ",
                    status.st_mtim.tv_sec,
                    ".",
                    status.st_mtim.tv_nsec,
                    ";");
  }
  return version;
}

std::shared_ptr<SSL_CTX> TlsContext::Current() {
  MutexLock lock(&mutex_);
  const absl::Time now = clock_.Now();
  if (now < looked_ + kCertificateRefresh) return context_;
  looked_ = now;
  std::string version = Version();
  if (version == version_) return context_;
  version_ = std::move(version);
  absl::StatusOr<std::shared_ptr<SSL_CTX>> context = Make(files_);
  if (context.ok()) {
    context_ = *std::move(context);
  } else {
    SPECWIRE_LOG(Error,
                 "HTTP: ",
                 context.status().message(),
                 "; the certificate stays as it was before");
  }
  return context_;
}

bool PeerNames(const SSL* ssl, std::vector<std::string>* names) {
  X509* const certificate = SSL_get1_peer_certificate(ssl);
  if (certificate == nullptr) return false;
  auto* const all = static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr));
  for (int i = 0; i < sk_GENERAL_NAME_num(all); ++i) {
    const GENERAL_NAME* const name = sk_GENERAL_NAME_value(all, i);
    if (name->type != GEN_DNS) continue;
    names->emplace_back(
        reinterpret_cast<const char*>(ASN1_STRING_get0_data(name->d.dNSName)),
        static_cast<size_t>(ASN1_STRING_length(name->d.dNSName)));
  }
  GENERAL_NAMES_free(all);
  X509_free(certificate);
  return true;
}

}  // namespace specwire
