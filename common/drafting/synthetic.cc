// SPDX-License-Identifier: Apache-2.0
#include "common/drafting/synthetic.h"

#include <sys/prctl.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/sha256.h"
#include "common/base/stable_hash.h"
#include "common/base/status_macros.h"
#include "common/sampling/philox.h"
#include "common/text/byte_spelling.h"

namespace specwire {
namespace {

constexpr int32_t kFirstByte = 1;
constexpr int32_t kFirstWord = kFirstByte + 256;
static_assert(kFirstWord == kMinSyntheticVocab);
// The printable characters of ASCII.
constexpr int32_t kFirstPrintable = 0x20;
constexpr int32_t kNumPrintable = 0x7f - kFirstPrintable;

// A word of at least two syllables, another for each number.
std::string Word(int number) {
  constexpr absl::string_view kConsonants = "bdfgklmnprstvz";
  constexpr absl::string_view kVowels = "aeiou";
  constexpr int kSyllables =
      static_cast<int>(kConsonants.size() * kVowels.size());
  std::string word;
  for (int count = 0; count < 2 || number > 0; ++count) {
    const auto syllable = static_cast<size_t>(number % kSyllables);
    number /= kSyllables;
    word.insert(0, 1, kVowels[syllable % kVowels.size()]);
    word.insert(0, 1, kConsonants[syllable / kVowels.size()]);
  }
  return absl::StrCat(" ", word);
}

}  // namespace

SyntheticLanguage::SyntheticLanguage(int vocab_size)
    : vocab_size_(vocab_size),
      first_word_(vocab_size > kFirstWord ? kFirstWord
                                          : kFirstByte + kFirstPrintable),
      num_words_(vocab_size > kFirstWord ? vocab_size - kFirstWord
                                         : kNumPrintable) {}

uint64_t SyntheticLanguage::Extend(uint64_t state, int32_t token) const {
  constexpr uint64_t kOdd = 0x9e3779b97f4a7c15;
  return MixBits(state + kOdd * (static_cast<uint64_t>(token) + 1));
}

int32_t SyntheticLanguage::Next(uint64_t state) const {
  return first_word_ +
         static_cast<int32_t>(state % static_cast<uint64_t>(num_words_));
}

int32_t SyntheticLanguage::Other(int32_t token) const {
  if (num_words_ == 1) return token == kEos ? first_word_ : kEos;
  return first_word_ + (token - first_word_ + 1) % num_words_;
}

std::string SyntheticLanguage::Digest() const {
  Sha256 hash;
  hash.UpdateSized("specwire synthetic language 1");
  hash.UpdateInt(vocab_size_);
  return hash.FinishHex();
}

TokenizerModel SyntheticLanguage::Tokenizer() const {
  TokenizerModel model;
  model.kind = "gpt2";
  model.pre = "smollm";
  model.tokens = {"<|end|>"};
  model.types = {static_cast<int32_t>(TokenType::kControl)};
  for (int byte = 0; byte < 256; ++byte) {
    const char text = static_cast<char>(byte);
    model.tokens.push_back(SpellingFromBytes(absl::string_view(&text, 1)));
  }
  for (int i = kFirstWord; i < vocab_size_; ++i) {
    model.tokens.push_back(SpellingFromBytes(Word(i - kFirstWord)));
  }
  model.types.resize(model.tokens.size(),
                     static_cast<int32_t>(TokenType::kNormal));
  model.eos_id = kEos;
  model.chat_template =
      "{% for message in messages %}{{ message['role'] + ': ' + "
      "message['content'] + '\\n' }}{% endfor %}";
  return model;
}

absl::Status CheckSyntheticVocab(int vocab_size, absl::string_view field) {
  if (vocab_size >= kMinSyntheticVocab && vocab_size <= kMaxSyntheticVocab) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(field,
                                                 ": ",
                                                 vocab_size,
                                                 " is not between ",
                                                 kMinSyntheticVocab,
                                                 " and ",
                                                 kMaxSyntheticVocab));
}

absl::Status CheckSyntheticWait(int64_t wait_us, absl::string_view field) {
  if (wait_us >= 0 && wait_us <= kMaxSyntheticWaitUs) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      field, ": ", wait_us, " is not between 0 and ", kMaxSyntheticWaitUs));
}

absl::Status CheckSyntheticAllowed(bool allowed, absl::string_view flag) {
  if (allowed) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(flag,
                   ": its tokens are made up, for load tests only; it needs "
                   "--allow_synthetic"));
}

namespace {

void SleepUntil(std::chrono::steady_clock::time_point when) {
  // Else the kernel may add 50 us to any sleep.
  prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL);
  const auto since = std::chrono::duration_cast<std::chrono::nanoseconds>(
                         when.time_since_epoch())
                         .count();
  timespec until = {};
  until.tv_sec = static_cast<time_t>(since / 1'000'000'000);
  until.tv_nsec = static_cast<long>(since % 1'000'000'000);
  // The steady clock is CLOCK_MONOTONIC.
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) ==
         EINTR) {
  }
}

}  // namespace

void SyntheticTime::Spend(std::chrono::steady_clock::time_point due) {
  constexpr std::chrono::milliseconds kPart(50);
  if (num_spent_++ == hang_.after) {
    const absl::Time end = absl::Now() + hang_.duration;
    while (absl::Now() < end) absl::SleepFor(absl::Milliseconds(50));
  }
  for (auto now = std::chrono::steady_clock::now(); now < due;
       now = std::chrono::steady_clock::now()) {
    SleepUntil(std::min(now + kPart, due));
    ++progress_;
  }
}

absl::Status CheckSyntheticDrafterOptions(
    const SyntheticDrafterOptions& options) {
  SPECWIRE_RETURN_IF_ERROR(
      CheckSyntheticVocab(options.vocab_size, "--synthetic_vocab"));
  SPECWIRE_RETURN_IF_ERROR(CheckSyntheticWait(
      absl::ToInt64Microseconds(options.delay), "--synthetic_delay_us"));
  if (options.acceptance.empty()) {
    return absl::InvalidArgumentError("--synthetic_acceptance: is empty");
  }
  for (const double probability : options.acceptance) {
    if (!(probability >= 0 && probability <= 1)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--synthetic_acceptance: ", probability, " is not in [0, 1]"));
    }
  }
  return absl::OkStatus();
}

class SyntheticDrafter::Sequence final : public DraftSequence {
 public:
  Sequence(SyntheticDrafter* drafter, const DraftSequenceParams& params)
      : drafter_(*drafter),
        seed_(static_cast<uint64_t>(params.sampling.seed)),
        choice_(static_cast<uint32_t>(params.choice)) {}

  absl::StatusOr<DraftRun> Propose(absl::Span<const int32_t> path,
                                   const DraftLimits& limits) override {
    const auto due = std::chrono::steady_clock::now() +
                     absl::ToChronoNanoseconds(drafter_.options_.delay);
    const SyntheticLanguage& language = drafter_.language_;
    const std::vector<double>& law = drafter_.options_.acceptance;
    uint64_t state = Follow(path);
    DraftRun run;
    float survival = 1;
    for (size_t i = 0; i < static_cast<size_t>(limits.max_tokens); ++i) {
      const double probability = law[std::min(i, law.size() - 1)];
      survival *= static_cast<float>(probability);
      if (survival < limits.min_survival) break;
      int32_t token = language.Next(state);
      if (Uniform(path.size() + i) >= probability) {
        token = language.Other(token);
      }
      run.tokens.push_back(token);
      run.survival.push_back(survival);
      state = language.Extend(state, token);
    }
    drafter_.time_.Spend(due);
    return run;
  }

 private:
  // The state after `path`; what has been followed before is kept.
  uint64_t Follow(absl::Span<const int32_t> path) {
    const auto [known, other] =
        std::mismatch(path_.begin(), path_.end(), path.begin(), path.end());
    path_.erase(known, path_.end());
    states_.resize(path_.size());
    for (; path_.size() < path.size(); path_.push_back(path[path_.size()])) {
      states_.push_back(drafter_.language_.Extend(
          states_.empty() ? drafter_.language_.Begin() : states_.back(),
          path[path_.size()]));
    }
    return states_.back();
  }

  // In [0, 1).
  double Uniform(size_t position) const {
    const uint32_t word =
        Philox4x32({static_cast<uint32_t>(position),
                    choice_,
                    static_cast<uint32_t>(NoiseStream::kDrafter),
                    0},
                   seed_)[0];
    return word * 0x1p-32;
  }

  SyntheticDrafter& drafter_;
  const uint64_t seed_;
  const uint32_t choice_;
  std::vector<int32_t> path_;
  // The state after each token of path_.
  std::vector<uint64_t> states_;
};

SyntheticDrafter::SyntheticDrafter(SyntheticDrafterOptions options)
    : options_(std::move(options)),
      time_(options_.hang),
      language_(options_.vocab_size),
      digest_(language_.Digest()) {}

std::unique_ptr<DraftSequence> SyntheticDrafter::NewSequence(
    const DraftSequenceParams& params) {
  return std::make_unique<Sequence>(this, params);
}

}  // namespace specwire
