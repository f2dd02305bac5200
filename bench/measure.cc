// SPDX-License-Identifier: Apache-2.0
#include "bench/measure.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <fstream>
#include <limits>
#include <new>
#include <string>
#include <thread>

#include "absl/time/clock.h"

namespace specwire {
namespace {

constexpr size_t kLargePage = size_t{1} << 21;
constexpr size_t kBandwidthBytes = size_t{1} << 28;
constexpr int kBandwidthRounds = 9;
// How far ahead memory is asked for. Without it a thread reads at half the
// speed, which no program that streams needs to put up with.
constexpr size_t kPrefetchBytes = 8192;

// A sum, so that no read can be left out.
uint64_t ReadAll(const uint8_t* from, size_t size) {
  constexpr size_t kLine = 64;
  uint64_t sums[8] = {};
  for (size_t at = 0; at + kLine <= size; at += kLine) {
    __builtin_prefetch(from + at + kPrefetchBytes);
    uint64_t line[8];
    std::memcpy(line, from + at, kLine);
    for (size_t i = 0; i < 8; ++i) sums[i] += line[i];
  }
  uint64_t sum = 0;
  for (const uint64_t of_lane : sums) sum += of_lane;
  return sum;
}

}  // namespace

double MillisecondsSince(absl::Time start) {
  return absl::ToDoubleMilliseconds(absl::Now() - start);
}

double Median(std::vector<double> values) {
  const auto middle =
      values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

LargeBytes RandomBytes(size_t size) {
  const size_t whole = (size + kLargePage - 1) / kLargePage * kLargePage;
  LargeBytes bytes(
      static_cast<uint8_t*>(std::aligned_alloc(kLargePage, whole)));
  if (bytes == nullptr) throw std::bad_alloc();
  // Only advice.
  madvise(bytes.get(), whole, MADV_HUGEPAGE);
  uint64_t state = 0x9e3779b97f4a7c15u;
  for (size_t i = 0; i < whole; i += sizeof(state)) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    const uint64_t word = state | 0x0101010101010101u;
    std::memcpy(bytes.get() + i, &word, sizeof(word));
  }
  return bytes;
}

double ReadBandwidth(int threads) {
  const LargeBytes memory = RandomBytes(kBandwidthBytes);
  double best = 0;
  for (int round = 0; round < kBandwidthRounds; ++round) {
    std::atomic<uint64_t> sum = 0;
    // Taken piece by piece, so that a thread which is held up holds nobody up.
    std::atomic<size_t> next = 0;
    const auto read = [&] {
      for (size_t at; (at = next.fetch_add(kLargePage)) < kBandwidthBytes;) {
        sum += ReadAll(memory.get() + at, kLargePage);
      }
    };
    const absl::Time start = absl::Now();
    std::vector<std::thread> others;
    for (int thread = 1; thread < threads; ++thread) others.emplace_back(read);
    read();
    for (std::thread& other : others) other.join();
    best = std::max(
        best,
        static_cast<double>(kBandwidthBytes) / MillisecondsSince(start) * 1e3);
    // The sum is needed, so it is computed.
    if (sum == 0) std::abort();
  }
  return best;
}

int64_t AvailableMemory() {
  std::ifstream in("/proc/meminfo");
  int64_t kibibytes = 0;
  for (std::string word; in >> word;) {
    if (word == "MemAvailable:" && in >> kibibytes) return kibibytes << 10;
  }
  return std::numeric_limits<int64_t>::max();
}

std::vector<const Kernels*> AvailableKernels() {
  std::vector<const Kernels*> available;
  for (const Isa isa : {Isa::kScalar, Isa::kAvx2, Isa::kAvx512Vnni}) {
    if (const Kernels* kernels = KernelsFor(isa)) available.push_back(kernels);
  }
  return available;
}

}  // namespace specwire
