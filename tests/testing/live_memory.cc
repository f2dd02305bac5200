// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/live_memory.h"

#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<size_t> live{0};
std::atomic<size_t> peak{0};

void* Count(void* memory) {
  if (memory == nullptr) return nullptr;
  const size_t size = malloc_usable_size(memory);
  const size_t now = live.fetch_add(size) + size;
  size_t most = peak.load();
  while (most < now && !peak.compare_exchange_weak(most, now)) {
  }
  return memory;
}

void* CountOrThrow(void* memory) {
  if (memory == nullptr) throw std::bad_alloc();
  return Count(memory);
}

void* Aligned(size_t size, std::align_val_t alignment) {
  const auto align = static_cast<size_t>(alignment);
  return std::aligned_alloc(align, (size + align - 1) / align * align);
}

void Release(void* memory) {
  if (memory == nullptr) return;
  live.fetch_sub(malloc_usable_size(memory));
  std::free(memory);
}

}  // namespace

// All forms, since a sanitizer's own would not come here.
void* operator new(size_t size) { return CountOrThrow(std::malloc(size)); }
void* operator new[](size_t size) { return CountOrThrow(std::malloc(size)); }
void* operator new(size_t size, const std::nothrow_t&) noexcept {
  return Count(std::malloc(size));
}
void* operator new[](size_t size, const std::nothrow_t&) noexcept {
  return Count(std::malloc(size));
}
void* operator new(size_t size, std::align_val_t alignment) {
  return CountOrThrow(Aligned(size, alignment));
}
void* operator new[](size_t size, std::align_val_t alignment) {
  return CountOrThrow(Aligned(size, alignment));
}
void operator delete(void* memory) noexcept { Release(memory); }
void operator delete[](void* memory) noexcept { Release(memory); }
void operator delete(void* memory, size_t) noexcept { Release(memory); }
void operator delete[](void* memory, size_t) noexcept { Release(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept {
  Release(memory);
}
void operator delete[](void* memory, const std::nothrow_t&) noexcept {
  Release(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  Release(memory);
}
void operator delete[](void* memory, std::align_val_t) noexcept {
  Release(memory);
}
void operator delete(void* memory, size_t, std::align_val_t) noexcept {
  Release(memory);
}
void operator delete[](void* memory, size_t, std::align_val_t) noexcept {
  Release(memory);
}

namespace specwire {

LiveMemory::LiveMemory() : start_(live.load()) { peak.store(start_); }

size_t LiveMemory::Peak() const { return peak.load() - start_; }

}  // namespace specwire
