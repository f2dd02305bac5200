// SPDX-License-Identifier: Apache-2.0
#include "common/model/large_pages.h"

#include <ATen/ops/from_blob.h>
#include <sys/mman.h>

#include <new>

namespace specwire {

at::Tensor LargePages(int64_t bytes) {
  constexpr size_t kPage = size_t{1} << 21;
  // The system chooses a place for small pages; the first large one lies
  // within.
  const size_t size = (static_cast<size_t>(bytes) + kPage - 1) / kPage * kPage;
  void* const mapped = mmap(nullptr,
                            size + kPage,
                            PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                            -1,
                            0);
  if (mapped == MAP_FAILED) {
    throw std::bad_alloc();
  }
  auto* const start = static_cast<uint8_t*>(mapped);
  const size_t beyond = reinterpret_cast<uintptr_t>(mapped) % kPage;
  uint8_t* const aligned = start + (beyond == 0 ? 0 : kPage - beyond);
  // Only advice: without large pages everything works, more slowly.
  madvise(aligned, size, MADV_HUGEPAGE);
  return at::from_blob(
      aligned,
      {bytes},
      [mapped, size](void*) { munmap(mapped, size + kPage); },
      at::kByte);
}

}  // namespace specwire
