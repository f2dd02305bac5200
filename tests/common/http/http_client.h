// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/http/http_server.h"
#include "tests/testing/loopback_socket.h"

namespace specwire {

inline void SendAll(int fd, absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count <= 0) return;
    bytes.remove_prefix(static_cast<size_t>(count));
  }
}

// All that comes until the end.
inline std::string ReceiveAll(int fd) {
  std::string answer;
  char buffer[4096];
  ssize_t count = 0;
  while ((count = recv(fd, buffer, sizeof(buffer), 0)) > 0) {
    answer.append(buffer, static_cast<size_t>(count));
  }
  return answer;
}

// What comes until it ends with, or holds, `text`, or until the end.
inline std::string ReceiveUntil(int fd, const std::string& text) {
  std::string answer;
  char byte = 0;
  while (answer.find(text) == std::string::npos && recv(fd, &byte, 1, 0) == 1) {
    answer += byte;
  }
  return answer;
}

// Sends raw bytes and returns all that comes back until the end.
inline std::string Exchange(int port, const std::string& bytes) {
  const int fd = DialLoopback(port);
  SendAll(fd, bytes);
  std::string answer = ReceiveAll(fd);
  close(fd);
  return answer;
}

inline std::string Get(int port, const std::string& target) {
  return Exchange(port,
                  absl::StrCat("GET ",
                               target,
                               " HTTP/1.1\r\nHost: x\r\nX-Name: Value\r\n"
                               "Connection: close\r\n\r\n"));
}

inline std::string PostText(const std::string& path,
                            const std::string& body,
                            const std::string& headers = "") {
  return absl::StrCat("POST ",
                      path,
                      " HTTP/1.1\r\nHost: x\r\nContent-Type: "
                      "application/json\r\nContent-Length: ",
                      body.size(),
                      "\r\n",
                      headers,
                      "\r\n",
                      body);
}

inline std::string BodyOf(const std::string& answer) {
  const size_t end = answer.find("\r\n\r\n");
  return end == std::string::npos ? "" : answer.substr(end + 4);
}

inline HttpRoute Post(const std::string& path, HttpRoute::Handler handler) {
  HttpRoute route;
  route.method = "POST";
  route.path = path;
  route.handler = std::move(handler);
  return route;
}

}  // namespace specwire
