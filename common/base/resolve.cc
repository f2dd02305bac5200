// SPDX-License-Identifier: Apache-2.0
#include "common/base/resolve.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <memory>
#include <set>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace specwire {
namespace {

using AddressInfo = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

// Without the port; empty if it is of another family.
std::string HostOf(const addrinfo& info, int family) {
  if (info.ai_family != family) return "";
  const void* address =
      family == AF_INET
          ? static_cast<const void*>(
                &reinterpret_cast<const sockaddr_in*>(info.ai_addr)->sin_addr)
          : &reinterpret_cast<const sockaddr_in6*>(info.ai_addr)->sin6_addr;
  char text[INET6_ADDRSTRLEN] = {};
  return inet_ntop(family, address, text, sizeof(text)) == nullptr ? "" : text;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ResolveAddresses(
    const HostPort& name) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(name.host.c_str(), nullptr, &hints, &found);
  if (error != 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot resolve ", name.host, ": ", gai_strerror(error)));
  }
  const AddressInfo infos(found, &freeaddrinfo);
  for (const int family : {AF_INET, AF_INET6}) {
    std::set<std::string> addresses;
    for (const addrinfo* info = found; info != nullptr; info = info->ai_next) {
      const std::string host = HostOf(*info, family);
      if (host.empty()) continue;
      addresses.insert(HostPort{host, name.port}.ToString());
      if (addresses.size() == size_t{kMaxResolvedAddresses}) break;
    }
    if (!addresses.empty())
      return std::vector(addresses.begin(), addresses.end());
  }
  return absl::UnavailableError(
      absl::StrCat("cannot resolve ", name.host, ": it has no address"));
}

}  // namespace specwire
