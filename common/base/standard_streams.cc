// SPDX-License-Identifier: Apache-2.0
#include "common/base/standard_streams.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace specwire {
namespace {

// Runs before everything else, so it makes system calls and nothing more.
void Reserve(int /*argc*/, char** /*argv*/, char** /*environment*/) {
  // The kernel hands out the lowest free descriptor: done once all three are
  // taken.
  long fd = 0;
  while (fd >= 0 && fd <= STDERR_FILENO) {
    fd = syscall(SYS_openat, AT_FDCWD, "/dev/null", O_RDONLY);
  }
  if (fd > STDERR_FILENO) syscall(SYS_close, fd);
}

// main() would be too late: libraries open descriptors when they are loaded.
using Initializer = void (*)(int, char**, char**);
[[gnu::used, gnu::section(".preinit_array")]] const Initializer kReserve =
    &Reserve;

}  // namespace

// Being referred to, it brings this file, and so kReserve, into the program.
void ReserveStandardStreams() {}

}  // namespace specwire
