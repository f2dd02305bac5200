// SPDX-License-Identifier: Apache-2.0
#include "common/base/host_port.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"

namespace specwire {
namespace {

constexpr size_t kMaxAddresses = 16;
// DNS allows no longer names.
constexpr size_t kMaxHostLength = 253;

using AddressInfo = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

// 0 if a socket could be bound there, else the error number.
int TryBind(const addrinfo& info) {
  const int fd =
      socket(info.ai_family, info.ai_socktype | SOCK_CLOEXEC, info.ai_protocol);
  if (fd < 0) return errno;
  const int on = 1;
  // As the servers do: a port whose old connections linger is free, one that
  // somebody listens on is not.
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (info.ai_family == AF_INET6) {
    setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
  }
  const int error = bind(fd, info.ai_addr, info.ai_addrlen) == 0 ? 0 : errno;
  close(fd);
  return error;
}

}  // namespace

std::string HostPort::ToString() const {
  const bool v6 = host.find(':') != std::string::npos;
  return v6 ? absl::StrCat("[", host, "]:", port)
            : absl::StrCat(host, ":", port);
}

absl::StatusOr<HostPort> ParseHostPort(absl::string_view text,
                                       absl::string_view field) {
  const auto error = [&](absl::string_view problem) {
    return absl::InvalidArgumentError(absl::StrCat(
        field, ": \"", text.substr(0, 300), "\" is not HOST:PORT: ", problem));
  };
  const size_t colon = text.rfind(':');
  if (colon == absl::string_view::npos) return error("there is no port");
  absl::string_view host = text.substr(0, colon);
  const absl::string_view port_text = text.substr(colon + 1);
  const bool bracketed =
      host.size() >= 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != absl::string_view::npos) {
    return error("an IPv6 address needs brackets");
  }
  if (host.empty()) return error("the host is empty");
  if (host.size() > kMaxHostLength) return error("the host is too long");
  for (const char c : host) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) &&
        !absl::StrContains(".-_:%", c)) {
      return error("the host has a character that is not allowed");
    }
  }
  HostPort result;
  result.host = std::string(host);
  const bool digits =
      !port_text.empty() && port_text.size() <= 5 &&
      std::all_of(port_text.begin(), port_text.end(), [](char c) {
        return absl::ascii_isdigit(static_cast<unsigned char>(c));
      });
  if (!digits || !absl::SimpleAtoi(port_text, &result.port) ||
      result.port > 65535) {
    return error("the port must be a number from 0 to 65535");
  }
  return result;
}

namespace {

constexpr absl::string_view kDnsScheme = "dns:///";

absl::StatusOr<std::vector<std::string>> ParseList(absl::string_view text,
                                                   absl::string_view field,
                                                   bool names) {
  std::vector<std::string> result;
  for (absl::string_view part : absl::StrSplit(text, ',')) {
    part = absl::StripAsciiWhitespace(part);
    const bool name = names && absl::ConsumePrefix(&part, kDnsScheme);
    SPECWIRE_ASSIGN_OR_RETURN(const HostPort address,
                              ParseHostPort(part, field));
    if (address.port == 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          field, ": ", address.ToString(), ": the port must not be 0"));
    }
    std::string spelled =
        absl::StrCat(name ? kDnsScheme : "", address.ToString());
    if (std::find(result.begin(), result.end(), spelled) != result.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat(field, ": ", spelled, " is named twice"));
    }
    if (result.size() == kMaxAddresses) {
      return absl::InvalidArgumentError(
          absl::StrCat(field, ": more than ", kMaxAddresses, " addresses"));
    }
    result.push_back(std::move(spelled));
  }
  return result;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ParseAddressList(
    absl::string_view text, absl::string_view field) {
  return ParseList(text, field, /*names=*/false);
}

absl::StatusOr<std::vector<std::string>> ParseTargetList(
    absl::string_view text, absl::string_view field) {
  return ParseList(text, field, /*names=*/true);
}

std::optional<HostPort> NameOfTarget(absl::string_view target) {
  if (!absl::ConsumePrefix(&target, kDnsScheme)) return std::nullopt;
  const absl::StatusOr<HostPort> name = ParseHostPort(target, "target");
  return name.ok() ? std::optional(*name) : std::nullopt;
}

bool IsLoopback(absl::string_view host) {
  if (absl::EqualsIgnoreCase(host, "localhost")) return true;
  const std::string text(host);
  in_addr v4;
  if (inet_pton(AF_INET, text.c_str(), &v4) == 1) {
    return (ntohl(v4.s_addr) >> 24) == 127;
  }
  in6_addr v6;
  return inet_pton(AF_INET6, text.c_str(), &v6) == 1 &&
         IN6_IS_ADDR_LOOPBACK(&v6);
}

absl::Status CheckCanListen(const HostPort& address) {
  const auto failure = [&](absl::string_view reason) {
    std::string text(reason);
    if (!text.empty())
      text[0] = absl::ascii_tolower(static_cast<unsigned char>(text[0]));
    return absl::UnavailableError(
        absl::StrCat("cannot listen on ", address.ToString(), ": ", text));
  };
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int resolved = getaddrinfo(
      address.host.c_str(), absl::StrCat(address.port).c_str(), &hints, &found);
  if (resolved != 0) return failure(gai_strerror(resolved));
  const AddressInfo addresses(found, &freeaddrinfo);
  bool any_free = false;
  int error = 0;
  for (const addrinfo* info = found; info != nullptr; info = info->ai_next) {
    const int result = TryBind(*info);
    if (result == EADDRINUSE || result == EACCES) {
      return failure(std::strerror(result));
    }
    // A name may have an address of a family that this machine lacks.
    any_free = any_free || result == 0;
    if (result != 0) error = result;
  }
  return any_free ? absl::OkStatus() : failure(std::strerror(error));
}

}  // namespace specwire
