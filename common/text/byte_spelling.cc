// SPDX-License-Identifier: Apache-2.0
#include "common/text/byte_spelling.h"

#include <array>
#include <cstddef>
#include <cstdint>

#include "common/text/utf8.h"

namespace specwire {
namespace {

constexpr char32_t kFirstStandIn = 0x100;

constexpr bool StandsForItself(size_t byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) ||
         byte >= 0xAE;
}

struct Table {
  // By byte.
  std::array<char32_t, 256> characters{};
  // By character; -1 where none.
  std::array<int16_t, 512> bytes{};
};

constexpr Table MakeTable() {
  Table table;
  table.bytes.fill(-1);
  char32_t next = kFirstStandIn;
  for (size_t byte = 0; byte < 256; ++byte) {
    const char32_t character =
        StandsForItself(byte) ? static_cast<char32_t>(byte) : next++;
    table.characters[byte] = character;
    table.bytes[character] = static_cast<int16_t>(byte);
  }
  return table;
}

constexpr Table kTable = MakeTable();

}  // namespace

bool BytesFromSpelling(absl::string_view spelling, std::string* bytes) {
  bytes->clear();
  while (!spelling.empty()) {
    const Utf8Step step = ReadUtf8(spelling);
    if (step.kind != Utf8Step::Kind::kCharacter ||
        step.code_point >= kTable.bytes.size() ||
        kTable.bytes[step.code_point] < 0) {
      return false;
    }
    bytes->push_back(static_cast<char>(kTable.bytes[step.code_point]));
    spelling.remove_prefix(step.length);
  }
  return true;
}

std::string SpellingFromBytes(absl::string_view bytes) {
  std::string spelling;
  for (const char byte : bytes) {
    AppendUtf8(kTable.characters[static_cast<uint8_t>(byte)], &spelling);
  }
  return spelling;
}

}  // namespace specwire
