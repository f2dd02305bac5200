// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>

#include "absl/status/status.h"
#include "google/protobuf/message_lite.h"

// Whether a message is the one that was sent, in its place. HTTP/2 over plain
// TCP checks nothing, so what a buffer on the way alters may still parse: as
// other tokens, another name, another stream's message. Messages between the
// processes of a cluster carry a checksum of their bytes and of their place in
// the stream; see docs/design.md, "What a message carries". It protects against
// accidents, not against people: that is TLS's part.

namespace specwire {

// A message with the field `checksum`.
template <class Message>
concept HasChecksum = requires(Message& message) {
  { message.has_checksum() } -> std::same_as<bool>;
  message.set_checksum(uint32_t{0});
  message.clear_checksum();
};

// CRC-32 (ISO 3309) of `place` as eight bytes, lowest first, and of the
// message as it is serialised.
uint32_t ChecksumOf(const google::protobuf::MessageLite& message,
                    int64_t place);

// Sets the checksum of the message that `place` others precede on its stream;
// nothing if it has no such field.
template <class Message>
void SetChecksum(int64_t place, Message* message) {
  if constexpr (HasChecksum<Message>) {
    message->clear_checksum();
    message->set_checksum(ChecksumOf(*message, place));
  }
}

// ABORTED if the message is not what was sent, or not in its place. It has no
// checksum afterwards. One that never had any passes: its sender sets none.
template <class Message>
absl::Status CheckChecksum(int64_t place, Message* message) {
  if constexpr (HasChecksum<Message>) {
    if (!message->has_checksum()) return absl::OkStatus();
    const uint32_t checksum = message->checksum();
    message->clear_checksum();
    if (checksum != ChecksumOf(*message, place)) {
      return absl::AbortedError(
          "a message was altered or lost on its way: its checksum is wrong");
    }
  }
  return absl::OkStatus();
}

}  // namespace specwire
