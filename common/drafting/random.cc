// SPDX-License-Identifier: Apache-2.0
#include "common/drafting/random.h"

#include <cstddef>

#include "common/sampling/philox.h"

namespace specwire {
namespace {

class RandomSequence final : public DraftSequence {
 public:
  RandomSequence(uint64_t seed, int vocab_size)
      : seed_(seed), vocab_size_(static_cast<uint64_t>(vocab_size)) {}

  absl::StatusOr<DraftRun> Propose(absl::Span<const int32_t> path,
                                   const DraftLimits& limits) override {
    DraftRun run;
    for (size_t i = 0;
         vocab_size_ > 0 && i < static_cast<size_t>(limits.max_tokens);
         ++i) {
      const auto position = static_cast<uint32_t>(path.size() + i);
      const uint64_t word = Philox4x32(
          {position, 0, static_cast<uint32_t>(NoiseStream::kDrafter), 0},
          seed_)[0];
      run.tokens.push_back(static_cast<int32_t>(word * vocab_size_ >> 32));
    }
    return run;
  }

 private:
  const uint64_t seed_;
  const uint64_t vocab_size_;
};

}  // namespace

std::unique_ptr<DraftSequence> RandomDrafter::NewSequence(
    const DraftSequenceParams& params) {
  return std::make_unique<RandomSequence>(
      static_cast<uint64_t>(params.sampling.seed), params.vocab_size);
}

}  // namespace specwire
