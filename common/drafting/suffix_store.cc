// SPDX-License-Identifier: Apache-2.0
#include "common/drafting/suffix_store.h"

#include <algorithm>
#include <utility>

namespace specwire {

void SuffixStore::Add(const std::string& salt, absl::Span<const int32_t> text) {
  const size_t generation = max_tokens_ / 2;
  const size_t size = std::min(text.size(), generation);
  if (size == 0) return;
  Tenant& tenant = tenants_[salt];
  num_tokens_ -= tenant.num_tokens();
  if (tenant.newer.num_tokens() + size > generation) {
    tenant.older = std::exchange(tenant.newer, SuffixTrie());
  }
  SuffixTrie::Place place;
  for (const int32_t token : text.last(size)) tenant.newer.Add(&place, token);
  num_tokens_ += tenant.num_tokens();
  tenant.version = ++version_;
  // The one that was added to is never too large by itself, and the last to go.
  while (num_tokens_ > max_tokens_) {
    const auto coldest = Coldest();
    num_tokens_ -= coldest->second.num_tokens();
    tenants_.erase(coldest);
  }
}

const SuffixStore::Tenant* SuffixStore::Find(const std::string& salt) const {
  const auto it = tenants_.find(salt);
  return it == tenants_.end() ? nullptr : &it->second;
}

absl::flat_hash_map<std::string, SuffixStore::Tenant>::iterator
SuffixStore::Coldest() {
  return std::min_element(
      tenants_.begin(), tenants_.end(), [](const auto& a, const auto& b) {
        return a.second.version < b.second.version;
      });
}

}  // namespace specwire
