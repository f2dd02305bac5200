// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/drafting/drafter.h"
#include "common/text/tokenizer_model.h"

// Nodes without models, for load tests: a language that is made up, and a
// drafter of it that is right as often as it is told to be. A verifier of it is
// in verifier_node/synthetic_engine.h.

namespace specwire {

// The name of the engine; the drafter has it too (kSyntheticDrafter).
inline constexpr char kSynthetic[] = "synthetic";

// Sizes of a vocabulary, its default included.
inline constexpr int kMinSyntheticVocab = 257;
inline constexpr int kDefaultSyntheticVocab = 1024;
inline constexpr int kMaxSyntheticVocab = 1 << 17;
// Longest pass or proposal.
inline constexpr int64_t kMaxSyntheticWaitUs = 10'000'000;

// A language whose next token is a hash of all tokens before it. Token 0 ends a
// sequence and is never generated, the 256 bytes follow, then made-up words.
// Generated are the words; if there are none, the printable characters of
// ASCII.
//
// A prefix is represented by its *state*: Extend() takes one token more.
// Thread safety: any thread.
class SyntheticLanguage {
 public:
  // REQUIRES: CheckSyntheticVocab is OK.
  explicit SyntheticLanguage(int vocab_size);

  // The state of the empty prefix.
  uint64_t Begin() const { return kBegin; }
  uint64_t Extend(uint64_t state, int32_t token) const;
  // The token that follows.
  int32_t Next(uint64_t state) const;
  // One that could be generated and is not `token`.
  int32_t Other(int32_t token) const;

  int vocab_size() const { return vocab_size_; }
  static constexpr int32_t kEos = 0;

  // Hexadecimal SHA-256 of all that decides the tokens.
  std::string Digest() const;
  // Any text in, byte by byte; words out.
  TokenizerModel Tokenizer() const;

 private:
  static constexpr uint64_t kBegin = 0x5bd1e995'9ddfea08;

  const int vocab_size_;
  // The generated tokens: num_words_ from first_word_ on.
  const int32_t first_word_;
  const int32_t num_words_;
};

// INVALID_ARGUMENT, naming `field`, if there is no language of that size.
absl::Status CheckSyntheticVocab(int vocab_size, absl::string_view field);
// INVALID_ARGUMENT, naming `field`, unless it is one to wait.
absl::Status CheckSyntheticWait(int64_t wait_us, absl::string_view field);
// INVALID_ARGUMENT unless `allowed`: nobody is to be served made-up tokens
// by mistake. `flag` is what asked for them, for example "--engine synthetic".
absl::Status CheckSyntheticAllowed(bool allowed, absl::string_view flag);

// For tests: what hangs as an engine or a drafter may.
struct SyntheticHang {
  // Pieces of work done before the one that hangs; -1: none hangs.
  int64_t after = -1;
  // How long that one hangs.
  absl::Duration duration = absl::InfiniteDuration();

  // From flags; `duration_ms` -1: for ever.
  static SyntheticHang FromFlags(int64_t after, int64_t duration_ms) {
    return {after,
            duration_ms < 0 ? absl::InfiniteDuration()
                            : absl::Milliseconds(duration_ms)};
  }
};

// The time that made-up work takes: waits it out in parts that count as
// progress, as a model's layers do, and hangs where it is told to.
//
// Thread safety: Spend on one thread, progress from any.
class SyntheticTime {
 public:
  explicit SyntheticTime(const SyntheticHang& hang = {}) : hang_(hang) {}
  // One piece of work, until `due`, to within some ten microseconds on an idle
  // processor; at once if that has passed.
  void Spend(std::chrono::steady_clock::time_point due);
  int64_t progress() const { return progress_; }

 private:
  const SyntheticHang hang_;
  int64_t num_spent_ = 0;
  std::atomic<int64_t> progress_{0};
};

struct SyntheticDrafterOptions {
  int vocab_size = kDefaultSyntheticVocab;
  // Of the vocabulary; see Drafter.
  std::string vocabulary_fingerprint;
  // Probability that the token at each place of a run is the target's, given
  // that those before it are; the last holds for all later places.
  std::vector<double> acceptance = {0.8};
  // How long a run takes. The drafter's thread waits, as it would compute.
  absl::Duration delay = absl::ZeroDuration();
  SyntheticHang hang = {};
};

// INVALID_ARGUMENT, naming the flag, if the options are out of range.
absl::Status CheckSyntheticDrafterOptions(
    const SyntheticDrafterOptions& options);

// Proposes the language's own tokens, now and then a wrong one: which, only
// position, place in the run, seed and choice decide.
//
// Thread safety: as Drafter says.
class SyntheticDrafter final : public Drafter {
 public:
  // REQUIRES: CheckSyntheticDrafterOptions is OK.
  explicit SyntheticDrafter(SyntheticDrafterOptions options);

  const std::string& name() const override { return name_; }
  const std::string& vocabulary_fingerprint() const override {
    return options_.vocabulary_fingerprint;
  }
  const std::string& model_digest() const override { return digest_; }
  int max_model_len() const override { return 0; }
  bool synthetic() const override { return true; }
  int64_t progress() const override { return time_.progress(); }
  std::unique_ptr<DraftSequence> NewSequence(
      const DraftSequenceParams& params) override;

 private:
  class Sequence;

  const SyntheticDrafterOptions options_;
  SyntheticTime time_;
  const SyntheticLanguage language_;
  const std::string name_ = kSynthetic;
  const std::string digest_;
};

}  // namespace specwire
