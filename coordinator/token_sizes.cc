// SPDX-License-Identifier: Apache-2.0
#include "coordinator/token_sizes.h"

#include <algorithm>
#include <cstdint>

namespace specwire::coordinator {

TokenSizes::TokenSizes(const Tokenizer& tokenizer) {
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const absl::string_view bytes = tokenizer.TokenBytes(id);
    longest_ = std::max(longest_, bytes.size());
    if (bytes.size() == 1) known_.set(static_cast<unsigned char>(bytes[0]));
  }
}

size_t TokenSizes::LeastBytes(absl::string_view text) const {
  constexpr size_t kMostContraction = 3;
  size_t ascii = 0;
  size_t others = 0;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x80) {
      ++others;
    } else if (known_[byte]) {
      ++ascii;
    }
  }
  const bool all_known = (known_ >> 0x80).count() == 0x80;
  return ascii + (all_known ? others / kMostContraction : 0);
}

}  // namespace specwire::coordinator
