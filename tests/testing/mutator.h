// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"

namespace specwire {

// How many mutated inputs a test takes: `few`, or what the environment variable
// SPECWIRE_TEST_MUTATIONS says.
inline int NumMutations(int few) {
  const char* const value = std::getenv("SPECWIRE_TEST_MUTATIONS");
  int number = 0;
  return value != nullptr && absl::SimpleAtoi(value, &number) ? number : few;
}

// Makes inputs that are nearly right: changes bytes, cuts, repeats and joins
// parts of examples, and puts in words that mean something to the reader.
//
// The same seed makes the same inputs everywhere.
// Thread safety: one thread.
class Mutator {
 public:
  Mutator(uint32_t seed,
          std::vector<std::string> examples,
          std::vector<std::string> words)
      : random_(seed),
        examples_(std::move(examples)),
        words_(std::move(words)) {}

  // An example with 1 to 4 changes.
  std::string Next() {
    std::string text = Pick(examples_);
    for (size_t left = 1 + Below(4); left > 0; --left) Change(&text);
    return text;
  }

  // A number below `end`. REQUIRES: end > 0.
  size_t Below(size_t end) { return random_() % end; }
  template <typename T>
  const T& Pick(const std::vector<T>& from) {
    return from[Below(from.size())];
  }

 private:
  void Change(std::string* text) {
    const size_t from = Below(text->size() + 1);
    const size_t size = std::min(Below(16), text->size() - from);
    switch (Below(8)) {
      case 0:
        text->erase(from, size);
        break;
      case 1:
        text->insert(from, text->substr(from, size));
        break;
      case 2:
        text->insert(from, Pick(words_));
        break;
      case 3:
        text->replace(from, size, Pick(words_));
        break;
      case 4:
        text->insert(from, 1, static_cast<char>(random_()));
        break;
      case 5:
        if (from < text->size()) {
          (*text)[from] = static_cast<char>((*text)[from] ^ (1 << Below(8)));
        }
        break;
      case 6: {
        const std::string& other = Pick(examples_);
        text->replace(from, std::string::npos, other, Below(other.size() + 1));
        break;
      }
      default:
        // Seldom: what is cut short is soon refused.
        if (Below(4) == 0) text->resize(from);
    }
  }

  std::mt19937 random_;
  const std::vector<std::string> examples_;
  const std::vector<std::string> words_;
};

}  // namespace specwire
