// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "common/drafting/suffix_trie.h"

namespace specwire {

// What earlier sequences generated, of each tenant apart. It has two
// generations for each: the newer one is added to, and takes the older one's
// place when it holds half of what fits. Where tenants together have more than
// that, those go first to whom nothing was added for longest.
//
// Thread safety: one thread at a time.
class SuffixStore {
 public:
  struct Tenant {
    SuffixTrie newer;
    SuffixTrie older;
    // Another one after each change, of whichever tenant.
    int64_t version = 0;

    size_t num_tokens() const {
      return newer.num_tokens() + older.num_tokens();
    }
  };

  explicit SuffixStore(size_t max_tokens) : max_tokens_(max_tokens) {}

  // Adds a text, or its end if it is longer than a generation.
  void Add(const std::string& salt, absl::Span<const int32_t> text);
  // Null: nothing is known of that tenant. Valid until the next Add.
  const Tenant* Find(const std::string& salt) const;

  size_t num_tokens() const { return num_tokens_; }

 private:
  // The one that was added to least recently.
  absl::flat_hash_map<std::string, Tenant>::iterator Coldest();

  const size_t max_tokens_;
  absl::flat_hash_map<std::string, Tenant> tenants_;
  size_t num_tokens_ = 0;
  int64_t version_ = 0;
};

}  // namespace specwire
