// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/tls_files.h"

#include <memory>

#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace specwire {
namespace {

template <auto* free_function>
struct Free {
  template <class T>
  void operator()(T* object) const {
    free_function(object);
  }
};
using File = std::unique_ptr<BIO, Free<BIO_free>>;
using Certificate = std::unique_ptr<X509, Free<X509_free>>;
using Key = std::unique_ptr<EVP_PKEY, Free<EVP_PKEY_free>>;
using Store = std::unique_ptr<X509_STORE, Free<X509_STORE_free>>;
using Check = std::unique_ptr<X509_STORE_CTX, Free<X509_STORE_CTX_free>>;

struct FreeChain {
  void operator()(STACK_OF(X509) * chain) const {
    sk_X509_pop_free(chain, X509_free);
  }
};
using Chain = std::unique_ptr<STACK_OF(X509), FreeChain>;

absl::Status Problem(absl::string_view flag,
                     const std::string& path,
                     absl::string_view problem) {
  ERR_clear_error();
  return absl::InvalidArgumentError(
      absl::StrCat(flag, ": ", path, " ", problem));
}

absl::StatusOr<File> Open(absl::string_view flag, const std::string& path) {
  File file(BIO_new_file(path.c_str(), "r"));
  if (file == nullptr) return Problem(flag, path, "cannot be read");
  return file;
}

// A passphrase must never be asked for on the terminal.
int NoPassphrase(char* /*buffer*/, int /*size*/, int /*rw*/, void* /*data*/) {
  return -1;
}

// All certificates of a file, at least one.
absl::StatusOr<Chain> ReadCertificates(absl::string_view flag,
                                       const std::string& path) {
  SPECWIRE_ASSIGN_OR_RETURN(const File file, Open(flag, path));
  Chain chain(sk_X509_new_null());
  while (X509* const next =
             PEM_read_bio_X509(file.get(), nullptr, NoPassphrase, nullptr)) {
    sk_X509_push(chain.get(), next);
  }
  // The loop ends with an error: no further certificate.
  ERR_clear_error();
  if (sk_X509_num(chain.get()) == 0) {
    return Problem(flag, path, "holds no certificate in PEM form");
  }
  return chain;
}

absl::StatusOr<Key> ReadKey(const std::string& path) {
  SPECWIRE_ASSIGN_OR_RETURN(const File file, Open("--tls_key", path));
  Key key(PEM_read_bio_PrivateKey(file.get(), nullptr, NoPassphrase, nullptr));
  if (key == nullptr) {
    return Problem(
        "--tls_key", path, "holds no private key in PEM form, unencrypted");
  }
  return key;
}

// Whether the first of `chain` comes from one of `roots`, by way of the others,
// and is valid now.
absl::Status CheckChain(const TlsFiles& files,
                        STACK_OF(X509) * chain,
                        STACK_OF(X509) * roots) {
  const Store store(X509_STORE_new());
  for (int i = 0; i < sk_X509_num(roots); ++i) {
    X509_STORE_add_cert(store.get(), sk_X509_value(roots, i));
  }
  const Check check(X509_STORE_CTX_new());
  if (X509_STORE_CTX_init(
          check.get(), store.get(), sk_X509_value(chain, 0), chain) != 1) {
    return Problem("--tls_cert", files.cert, "cannot be checked");
  }
  if (X509_verify_cert(check.get()) == 1) return absl::OkStatus();
  return Problem("--tls_cert",
                 files.cert,
                 absl::StrCat("is not accepted by --tls_ca ",
                              files.ca,
                              ": ",
                              X509_verify_cert_error_string(
                                  X509_STORE_CTX_get_error(check.get()))));
}

}  // namespace

absl::Status CheckTlsFiles(const TlsFiles& files,
                           bool needs_certificate,
                           absl::string_view name) {
  if (files.cert.empty() != files.key.empty()) {
    return absl::InvalidArgumentError(
        files.cert.empty() ? "--tls_key: needs --tls_cert as well"
                           : "--tls_cert: needs --tls_key as well");
  }
  if (files.ca.empty()) {
    if (files.cert.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        "--tls_ca: say which authority's certificates are accepted of others");
  }
  if (files.cert.empty() && needs_certificate) {
    return absl::InvalidArgumentError(
        "--tls_ca: needs --tls_cert and --tls_key as well");
  }
  SPECWIRE_ASSIGN_OR_RETURN(const Chain roots,
                            ReadCertificates("--tls_ca", files.ca));
  if (files.cert.empty()) return absl::OkStatus();
  SPECWIRE_ASSIGN_OR_RETURN(const Chain chain,
                            ReadCertificates("--tls_cert", files.cert));
  SPECWIRE_ASSIGN_OR_RETURN(const Key key, ReadKey(files.key));
  X509* const own = sk_X509_value(chain.get(), 0);
  if (X509_check_private_key(own, key.get()) != 1) {
    return Problem("--tls_key",
                   files.key,
                   absl::StrCat("is not the key of --tls_cert ", files.cert));
  }
  SPECWIRE_RETURN_IF_ERROR(CheckChain(files, chain.get(), roots.get()));
  if (!name.empty() && X509_check_host(own,
                                       name.data(),
                                       name.size(),
                                       X509_CHECK_FLAG_NEVER_CHECK_SUBJECT |
                                           X509_CHECK_FLAG_NO_WILDCARDS,
                                       nullptr) != 1) {
    return Problem("--tls_cert",
                   files.cert,
                   absl::StrCat("lacks the name ",
                                name,
                                " (DNS, subject alternative name) by which "
                                "others know this role"));
  }
  return absl::OkStatus();
}

}  // namespace specwire
