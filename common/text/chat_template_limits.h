// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace specwire {

// How much an untrusted chat template may cost. The defaults let the templates
// of well-known models render conversations of megabytes, and end a hostile one
// within about a second.
struct ChatTemplateLimits {
  size_t max_source_bytes = size_t{256} << 10;
  // Of blocks, brackets and operators inside each other, macros included.
  int max_depth = 150;
  // Turns of all loops of one rendering together.
  int64_t max_iterations = 100'000;
  // Evaluated nodes of one rendering.
  int64_t max_steps = 2'000'000;
  // Bytes of strings and lists that one rendering reads, makes and copies.
  size_t max_work_bytes = size_t{256} << 20;
  // Of the rendered conversation, and of any string on the way to it.
  size_t max_output_bytes = size_t{8} << 20;
};

}  // namespace specwire
