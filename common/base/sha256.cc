// SPDX-License-Identifier: Apache-2.0
#include "common/base/sha256.h"

#include <openssl/evp.h>

#include "absl/strings/escaping.h"

namespace specwire {

struct Sha256::State {
  EVP_MD_CTX* context;
};

Sha256::Sha256() : state_(new State{EVP_MD_CTX_new()}) {
  EVP_DigestInit_ex(state_->context, EVP_sha256(), nullptr);
}

Sha256::~Sha256() { EVP_MD_CTX_free(state_->context); }

void Sha256::Update(absl::string_view data) {
  EVP_DigestUpdate(state_->context, data.data(), data.size());
}

void Sha256::UpdateSized(absl::string_view data) {
  UpdateInt(static_cast<int64_t>(data.size()));
  Update(data);
}

void Sha256::UpdateInt(int64_t value) {
  char bytes[8];
  for (int i = 0; i < 8; ++i) {
    bytes[i] = static_cast<char>(static_cast<uint64_t>(value) >> (8 * i));
  }
  Update(absl::string_view(bytes, sizeof(bytes)));
}

std::string Sha256::FinishHex() {
  unsigned char digest[32];
  unsigned int size = 0;
  EVP_DigestFinal_ex(state_->context, digest, &size);
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(digest), size));
}

}  // namespace specwire
