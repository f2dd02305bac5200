// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace specwire {

// What operator new has given and not yet got back, in bytes: a program that
// links live_memory.cc counts it, sanitized or not.
//
// Thread safety: one thread; what others allocate counts too.
class LiveMemory {
 public:
  // Starts to watch.
  LiveMemory();
  // The most that has been live since beyond what was live then.
  size_t Peak() const;

 private:
  size_t start_;
};

}  // namespace specwire
