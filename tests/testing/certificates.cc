// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/certificates.h"

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace specwire {
namespace {

// A test cannot go on without its files.
void Require(bool holds, const std::string& what) {
  if (holds) return;
  std::fprintf(stderr, "certificates: %s failed\n", what.c_str());
  std::abort();
}

void Extend(X509* certificate,
            X509* issuer,
            int nid,
            const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* const extension =
      X509V3_EXT_conf_nid(nullptr, &context, nid, value.c_str());
  Require(extension != nullptr, value);
  X509_add_ext(certificate, extension, -1);
  X509_EXTENSION_free(extension);
}

// A certificate without extensions or signature.
X509* MakeCertificate(EVP_PKEY* key, const std::string& name, absl::Time end) {
  static int serial = 0;
  X509* const certificate = X509_new();
  X509_set_version(certificate, 2);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate), ++serial);
  ASN1_TIME_set(X509_getm_notBefore(certificate),
                absl::ToTimeT(absl::Now() - absl::Hours(48)));
  ASN1_TIME_set(X509_getm_notAfter(certificate), absl::ToTimeT(end));
  X509_NAME_add_entry_by_txt(
      X509_get_subject_name(certificate),
      "CN",
      MBSTRING_ASC,
      reinterpret_cast<const unsigned char*>(name.c_str()),
      -1,
      -1,
      0);
  X509_set_pubkey(certificate, key);
  return certificate;
}

// By way of another name, so that readers see the old file or the new one.
template <class Write>
void WriteFile(const std::string& path, const Write& write) {
  const std::string scratch = path + ".new";
  std::FILE* const file = std::fopen(scratch.c_str(), "w");
  Require(file != nullptr && write(file) == 1 && std::fclose(file) == 0, path);
  std::filesystem::rename(scratch, path);
}

}  // namespace

struct TestAuthority::State {
  std::filesystem::path folder;
  EVP_PKEY* key = nullptr;
  X509* root = nullptr;
};

TestAuthority::TestAuthority() : state_(std::make_unique<State>()) {
  std::string pattern =
      (std::filesystem::temp_directory_path() / "specwire-tls-XXXXXX").string();
  Require(mkdtemp(pattern.data()) != nullptr, "mkdtemp");
  state_->folder = pattern;
  state_->key = EVP_EC_gen("P-256");
  state_->root =
      MakeCertificate(state_->key, "test root", absl::Now() + absl::Hours(24));
  X509* const root = state_->root;
  X509_set_issuer_name(root, X509_get_subject_name(root));
  Extend(root, root, NID_basic_constraints, "critical,CA:TRUE");
  Require(X509_sign(root, state_->key, EVP_sha256()) > 0, "signing");
  WriteFile(Path("ca.pem"),
            [root](std::FILE* file) { return PEM_write_X509(file, root); });
}

TestAuthority::~TestAuthority() {
  X509_free(state_->root);
  EVP_PKEY_free(state_->key);
  std::error_code ignored;
  std::filesystem::remove_all(state_->folder, ignored);
}

TlsFiles TestAuthority::Root() const { return {"", "", Path("ca.pem")}; }

TlsFiles TestAuthority::Issue(const std::string& dns_names,
                              const std::string& file,
                              absl::Time end) {
  EVP_PKEY* const key = EVP_EC_gen("P-256");
  X509* const certificate = MakeCertificate(key, "test", end);
  X509_set_issuer_name(certificate, X509_get_subject_name(state_->root));
  Extend(
      certificate,
      state_->root,
      NID_subject_alt_name,
      absl::StrCat("DNS:", absl::StrReplaceAll(dns_names, {{",", ",DNS:"}})));
  Require(X509_sign(certificate, state_->key, EVP_sha256()) > 0, "signing");
  const TlsFiles files = {
      Path(file + ".pem"), Path(file + ".key"), Path("ca.pem")};
  WriteFile(files.cert, [certificate](std::FILE* out) {
    return PEM_write_X509(out, certificate);
  });
  WriteFile(files.key, [key](std::FILE* out) {
    return PEM_write_PrivateKey(
        out, key, nullptr, nullptr, 0, nullptr, nullptr);
  });
  X509_free(certificate);
  EVP_PKEY_free(key);
  return files;
}

std::string TestAuthority::Path(const std::string& file) const {
  return (state_->folder / file).string();
}

}  // namespace specwire
