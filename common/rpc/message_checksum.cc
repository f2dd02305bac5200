// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/message_checksum.h"

#include <array>
#include <cstddef>
#include <string>

#include "zlib.h"

namespace specwire {

uint32_t ChecksumOf(const google::protobuf::MessageLite& message,
                    int64_t place) {
  std::array<Bytef, sizeof(place)> prefix;
  for (size_t i = 0; i < prefix.size(); ++i) {
    prefix[i] = static_cast<Bytef>(static_cast<uint64_t>(place) >> (8 * i));
  }
  const std::string bytes = message.SerializeAsString();
  uLong crc = crc32_z(0, prefix.data(), prefix.size());
  crc =
      crc32_z(crc, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size());
  return static_cast<uint32_t>(crc);
}

}  // namespace specwire
