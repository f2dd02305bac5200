// SPDX-License-Identifier: Apache-2.0
#include "tests/common/rpc/relay.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace specwire {
namespace {

sockaddr_in Local(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

// Returns false at the connection's end.
bool Forward(int from, int to) {
  char buffer[16384];
  const ssize_t count = recv(from, buffer, sizeof(buffer), 0);
  if (count <= 0) return false;
  for (ssize_t sent = 0; sent < count;) {
    const ssize_t more = send(
        to, buffer + sent, static_cast<size_t>(count - sent), MSG_NOSIGNAL);
    if (more <= 0) return false;
    sent += more;
  }
  return true;
}

}  // namespace

Relay::Relay(int target_port) : target_port_(target_port) {
  listener_ = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = Local(0);
  socklen_t length = sizeof(address);
  EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&address), length), 0);
  EXPECT_EQ(listen(listener_, 1), 0);
  EXPECT_EQ(
      getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &length),
      0);
  port_ = ntohs(address.sin_port);
  thread_ = std::thread([this] { Run(); });
}

Relay::~Relay() {
  stopping_ = true;
  thread_.join();
  close(listener_);
}

std::string Relay::address() const { return absl::StrCat("127.0.0.1:", port_); }

void Relay::Run() {
  constexpr int kPollMs = 10;
  pollfd waiting{listener_, POLLIN, 0};
  while (poll(&waiting, 1, kPollMs) == 0) {
    if (stopping_) return;
  }
  const int client = accept(listener_, nullptr, nullptr);
  const int server = socket(AF_INET, SOCK_STREAM, 0);
  const sockaddr_in target = Local(target_port_);
  EXPECT_EQ(
      connect(
          server, reinterpret_cast<const sockaddr*>(&target), sizeof(target)),
      0);
  bool open = true;
  while (open && !stopping_) {
    pollfd ends[2] = {{client, POLLIN, 0}, {server, POLLIN, 0}};
    if (blackhole_) {
      poll(nullptr, 0, kPollMs);
      continue;
    }
    if (poll(ends, 2, kPollMs) <= 0) continue;
    if (ends[0].revents != 0) open = open && Forward(client, server);
    if (ends[1].revents != 0) open = open && Forward(server, client);
  }
  close(client);
  close(server);
}

}  // namespace specwire
