// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/fake_engine.h"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace specwire {

// Its cache is the tokens themselves.
class FakeEngine::Sequence final : public KvSequence {
 public:
  Sequence(FakeEngine* engine, int number) : engine_(engine), number_(number) {}
  ~Sequence() override { Resize(0); }

  int length() const override { return static_cast<int>(tokens_.size()); }
  void Truncate(int length) override { Resize(static_cast<size_t>(length)); }

  void Append(absl::Span<const int32_t> tokens) {
    const size_t old = tokens_.size();
    Resize(old + tokens.size());
    std::copy(tokens.begin(),
              tokens.end(),
              tokens_.begin() + static_cast<std::ptrdiff_t>(old));
    if (salt_.has_value()) {
      const auto block = static_cast<size_t>(engine_->options_.block_size);
      for (size_t end = old / block * block + block; end <= tokens_.size();
           end += block) {
        engine_->prefixes_.insert({*salt_, First(tokens_, end)});
      }
    }
  }

  int ReusePrefix(absl::string_view salt,
                  absl::Span<const int32_t> tokens) override {
    if (!engine_->options_.prefix_cache) return 0;
    salt_ = std::string(salt);
    const auto block = static_cast<size_t>(engine_->options_.block_size);
    size_t length = 0;
    while (
        length + block < tokens.size() &&
        engine_->BlocksFor(static_cast<int64_t>(length + block)) <=
            engine_->options_.num_blocks - engine_->blocks_used_ &&
        engine_->prefixes_.contains({*salt_, First(tokens, length + block)})) {
      length += block;
    }
    Resize(length);
    const std::vector<int32_t> taken = First(tokens, length);
    std::copy(taken.begin(), taken.end(), tokens_.begin());
    return static_cast<int>(length);
  }

  absl::Span<const int32_t> tokens() const { return tokens_; }
  int number() const { return number_; }

 private:
  void Resize(size_t length) {
    engine_->blocks_used_ +=
        engine_->BlocksFor(static_cast<int64_t>(length)) -
        engine_->BlocksFor(static_cast<int64_t>(tokens_.size()));
    tokens_.resize(length);
  }

  static std::vector<int32_t> First(absl::Span<const int32_t> tokens,
                                    size_t count) {
    return {tokens.begin(),
            tokens.begin() + static_cast<std::ptrdiff_t>(count)};
  }

  FakeEngine* const engine_;
  const int number_;
  std::vector<int32_t> tokens_;
  // Set if its blocks are offered to others.
  std::optional<std::string> salt_;
};

FakeEngine::FakeEngine(FakeEngineOptions options) : options_(options) {
  info_.name = "fake";
  info_.architecture = "fake";
  info_.engine = "fake";
  info_.model_digest = std::string(64, 'f');
  info_.vocab_size = kVocabSize;
  info_.num_layers = 1;
  info_.max_model_len = options.max_model_len;
  info_.eos_ids = {kEos};
  tokenizer_.kind = "gpt2";
  tokenizer_.pre = "smollm";
  tokenizer_.tokens = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
  while (tokenizer_.tokens.size() < kVocabSize) {
    // One printable character for each token.
    tokenizer_.tokens.emplace_back(
        1, static_cast<char>('!' + tokenizer_.tokens.size() - 3));
  }
  tokenizer_.types.assign(kVocabSize, static_cast<int32_t>(TokenType::kNormal));
  for (size_t i = 0; i < 3; ++i) {
    tokenizer_.types[i] = static_cast<int32_t>(TokenType::kControl);
  }
  tokenizer_.bos_id = 1;
  tokenizer_.eos_id = kEos;
}

FakeEngine::~FakeEngine() = default;

std::unique_ptr<KvSequence> FakeEngine::NewSequence() {
  return std::make_unique<Sequence>(this, num_sequences_++);
}

int32_t FakeEngine::NextToken(absl::Span<const int32_t> tokens) const {
  if (options_.eos_position == static_cast<int>(tokens.size())) return kEos;
  uint64_t hash = 0x9e3779b97f4a7c15;
  for (size_t i = tokens.size() - std::min<size_t>(tokens.size(), 3);
       i < tokens.size();
       ++i) {
    hash = (hash ^ static_cast<uint64_t>(tokens[i])) * 0xbf58476d1ce4e5b9;
    hash ^= hash >> 29;
  }
  constexpr uint64_t kFirst = kLastSpecial + 1;
  return static_cast<int32_t>(kFirst + hash % (kVocabSize - kFirst));
}

std::vector<int32_t> FakeEngine::Continue(std::vector<int32_t> tokens,
                                          int count) const {
  const auto length = static_cast<std::ptrdiff_t>(tokens.size());
  for (int i = 0; i < count; ++i) {
    tokens.push_back(NextToken(tokens));
  }
  tokens.erase(tokens.begin(), tokens.begin() + length);
  return tokens;
}

int64_t FakeEngine::BlocksFor(int64_t length) const {
  return (length + options_.block_size - 1) / options_.block_size;
}

absl::Status FakeEngine::CheckRuns(absl::Span<const ForwardRun> runs) const {
  int64_t needed = 0;
  int64_t rows = 0;
  for (const ForwardRun& run : runs) {
    const auto count = static_cast<int64_t>(run.tokens.size());
    const int64_t length = run.kv->length();
    rows += count;
    if (count < 1 || run.num_logits < 0 || run.num_logits > count ||
        length + count > options_.max_model_len) {
      return absl::InvalidArgumentError("a run of wrong length");
    }
    needed += BlocksFor(length + count) - BlocksFor(length);
    for (const int32_t token : run.tokens) {
      if (token < 0 || token >= kVocabSize) {
        return absl::InvalidArgumentError(
            absl::StrCat("token ", token, " is not in the vocabulary"));
      }
      if (token == kThrowingToken) throw std::runtime_error("thrown for test");
      if (token == kFailingToken) return absl::InternalError("failed for test");
    }
  }
  if (rows < 1 || rows > kMaxRows) {
    return absl::InvalidArgumentError("a pass of too many rows");
  }
  const int64_t free = options_.num_blocks - blocks_used_;
  if (needed > free) {
    return absl::ResourceExhaustedError(absl::StrCat("KV cache: ",
                                                     needed,
                                                     " blocks needed, ",
                                                     free,
                                                     " of ",
                                                     options_.num_blocks,
                                                     " free"));
  }
  return absl::OkStatus();
}

absl::StatusOr<absl::Span<const float>> FakeEngine::Forward(
    absl::Span<const ForwardRun> runs) {
  WaitWhilePaused();
  if (absl::Status status = CheckRuns(runs); !status.ok()) return status;
  if (num_failing_ > 0) {
    --num_failing_;
    return absl::InternalError("broken for test");
  }
  if (options_.pass_delay > absl::ZeroDuration()) {
    absl::SleepFor(options_.pass_delay);
  }
  logits_.clear();
  for (const ForwardRun& run : runs) {
    auto* const sequence = static_cast<Sequence*>(run.kv);
    const auto old = static_cast<size_t>(sequence->length());
    sequence->Append(run.tokens);
    const size_t skipped =
        run.tokens.size() - static_cast<size_t>(run.num_logits);
    for (size_t i = skipped; i < run.tokens.size(); ++i) {
      if (!run.best.empty()) {
        run.best[i - skipped] =
            run.tokens[i] == kNanToken
                ? -1
                : NextToken(sequence->tokens().first(old + i + 1));
        continue;
      }
      const size_t row = logits_.size();
      const bool nan = run.tokens[i] == kNanToken;
      logits_.resize(row + kVocabSize,
                     nan ? std::numeric_limits<float>::quiet_NaN() : 0.0f);
      if (nan) continue;
      const int32_t next = NextToken(sequence->tokens().first(old + i + 1));
      logits_[row + static_cast<size_t>(next)] = 1.0f;
    }
    num_rows_ += static_cast<int64_t>(run.tokens.size());
    MutexLock lock(&mutex_);
    runs_.emplace_back(sequence->number(), static_cast<int>(run.tokens.size()));
  }
  ++num_passes_;
  return absl::MakeConstSpan(logits_);
}

std::vector<std::pair<int, int>> FakeEngine::runs() const {
  MutexLock lock(&mutex_);
  return runs_;
}

void FakeEngine::Pause() {
  MutexLock lock(&mutex_);
  paused_ = true;
}

void FakeEngine::Resume() {
  MutexLock lock(&mutex_);
  paused_ = false;
  changed_.NotifyAll();
}

bool FakeEngine::WaitUntilPaused() {
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  MutexLock lock(&mutex_);
  while (!waiting_) {
    if (!changed_.WaitUntil(&mutex_, deadline)) return false;
  }
  return true;
}

void FakeEngine::WaitWhilePaused() {
  // Not for ever, lest a test that fails while it is paused hang.
  const absl::Time deadline = absl::Now() + absl::Seconds(60);
  MutexLock lock(&mutex_);
  while (paused_) {
    waiting_ = true;
    changed_.NotifyAll();
    if (!changed_.WaitUntil(&mutex_, deadline)) break;
  }
  waiting_ = false;
}

}  // namespace specwire
