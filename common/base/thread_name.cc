// SPDX-License-Identifier: Apache-2.0
#include "common/base/thread_name.h"

#include <string>

#include <pthread.h>

namespace specwire {

void SetThreadName(const char* name) {
  pthread_setname_np(pthread_self(), std::string(name).substr(0, 15).c_str());
}

}  // namespace specwire
