// SPDX-License-Identifier: Apache-2.0
#include "common/text/pre_tokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/text/utf8.h"

namespace specwire {
namespace {

struct KnownPattern {
  absl::string_view name;
  absl::string_view pattern;
  bool ignores_merges = false;
  bool normalizes_to_nfc = false;
};

// The pattern of GPT-2, with which byte-level BPE began.
constexpr absl::string_view kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+)"
    R"(|\s+(?!\S)|\s+)";
// GPT-2's pattern within the pieces that are left when every numeric character
// has been split off by itself. A digit is the end of the piece before it, so
// white space in front of one stays together.
constexpr absl::string_view kSingleDigits =
    R"(\p{N}|'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?[^\s\p{L}\p{N}]+)"
    R"(|\s+(?![^\s\p{N}])|\s+)";
constexpr absl::string_view kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr absl::string_view kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr absl::string_view kTekken =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*)"
    R"([\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+)"
    R"([\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// Names are those of GGUF's tokenizer.ggml.pre.
constexpr KnownPattern kKnownPatterns[] = {
    {"smollm", kSingleDigits},
    {"starcoder", kSingleDigits},
    {"default", kGpt2},
    {"gpt-2", kGpt2},
    {"gpt2", kGpt2},
    {"llama-bpe", kLlama3, true},
    {"llama-v3", kLlama3, true},
    {"llama3", kLlama3, true},
    {"qwen2", kQwen2, false, true},
    {"deepseek-r1-qwen", kQwen2, false, true},
    {"tekken", kTekken, true},
};

// The patterns mean Unicode's White_Space by \s. PCRE2's own \s also takes
// U+180E, which has not been white space since Unicode 6.3.
std::string WithUnicodeSpace(absl::string_view pattern) {
  return absl::StrReplaceAll(pattern,
                             {{R"([^\s)", R"([^\p{Z}\t-\r\x{85})"},
                              {R"(\s)", R"([\p{Z}\t-\r\x{85}])"},
                              {R"(\S)", R"([^\p{Z}\t-\r\x{85}])"}});
}

// A text whose malformed bytes have been replaced by U+FFFD, since PCRE2 reads
// well-formed UTF-8 only, and the way back to the original.
class WellFormed {
 public:
  explicit WellFormed(absl::string_view original) : original_(original) {
    if (IsValidUtf8(original)) {
      view_ = original;
      return;
    }
    while (!original.empty()) {
      const Utf8Step step = ReadUtf8(original);
      if (step.kind == Utf8Step::Kind::kCharacter) {
        copy_.append(original.data(), step.length);
      } else {
        for (size_t i = 0; i < step.length; ++i) {
          replaced_.push_back(copy_.size());
          AppendUtf8(kReplacementCharacter, &copy_);
        }
      }
      original.remove_prefix(step.length);
    }
    view_ = copy_;
  }
  WellFormed(const WellFormed&) = delete;
  WellFormed& operator=(const WellFormed&) = delete;

  absl::string_view view() const { return view_; }

  // The original bytes of view()[end of the last call, end).
  absl::string_view TakeUntil(size_t end) {
    size_t length = end - taken_;
    while (next_replaced_ < replaced_.size() &&
           replaced_[next_replaced_] < end) {
      length -= 2;  // Three bytes stand for one.
      ++next_replaced_;
    }
    const absl::string_view piece = original_.substr(original_taken_, length);
    taken_ = end;
    original_taken_ += length;
    return piece;
  }

 private:
  absl::string_view original_;
  std::string copy_;
  absl::string_view view_;
  // Offsets of the replacements in copy_.
  std::vector<size_t> replaced_;
  size_t taken_ = 0;
  size_t original_taken_ = 0;
  size_t next_replaced_ = 0;
};

struct MatchDataDeleter {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};

absl::Status MatchError(int code) {
  char message[120] = "";
  pcre2_get_error_message(
      code, reinterpret_cast<PCRE2_UCHAR*>(message), sizeof(message));
  return absl::ResourceExhaustedError(
      absl::StrCat("text: could not be cut into words: ", message));
}

}  // namespace

struct PreTokenizer::Impl {
  const KnownPattern* known = nullptr;
  pcre2_code* code = nullptr;
  pcre2_match_context* context = nullptr;

  ~Impl() {
    pcre2_match_context_free(context);
    pcre2_code_free(code);
  }
};

PreTokenizer::PreTokenizer(std::unique_ptr<Impl> impl)
    : impl_(std::move(impl)) {}

PreTokenizer::~PreTokenizer() = default;

absl::string_view PreTokenizer::Gpt2Pattern() { return kGpt2; }

absl::string_view PreTokenizer::SingleDigitsPattern() { return kSingleDigits; }

absl::string_view PreTokenizer::FindName(absl::string_view pattern,
                                         bool ignores_merges,
                                         bool normalizes_to_nfc) {
  for (const KnownPattern& known : kKnownPatterns) {
    if (known.pattern == pattern && known.ignores_merges == ignores_merges &&
        known.normalizes_to_nfc == normalizes_to_nfc) {
      return known.name;
    }
  }
  return {};
}

bool PreTokenizer::ignores_merges() const {
  return impl_->known->ignores_merges;
}

bool PreTokenizer::normalizes_to_nfc() const {
  return impl_->known->normalizes_to_nfc;
}

absl::StatusOr<std::unique_ptr<PreTokenizer>> PreTokenizer::Create(
    absl::string_view name, uint32_t match_limit) {
  auto impl = std::make_unique<Impl>();
  std::string names;
  for (const KnownPattern& known : kKnownPatterns) {
    absl::StrAppend(&names, names.empty() ? "" : ", ", known.name);
    if (known.name == name) impl->known = &known;
  }
  if (impl->known == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("pre: unknown pre-tokenizer",
                                                   " \"",
                                                   name.substr(0, 64),
                                                   "\" (known: ",
                                                   names,
                                                   ")"));
  }
  const std::string pattern = WithUnicodeSpace(impl->known->pattern);
  int error = 0;
  PCRE2_SIZE error_offset = 0;
  impl->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()),
                             pattern.size(),
                             PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C,
                             &error,
                             &error_offset,
                             nullptr);
  impl->context = pcre2_match_context_create(nullptr);
  if (impl->code == nullptr || impl->context == nullptr) {
    return absl::InternalError(absl::StrCat("pre-tokenizer \"",
                                            name,
                                            "\": PCRE2 error ",
                                            error,
                                            " at ",
                                            error_offset));
  }
  // Where PCRE2 has no JIT for the processor, matching is interpreted.
  pcre2_jit_compile(impl->code, PCRE2_JIT_COMPLETE);
  pcre2_set_match_limit(impl->context, match_limit);
  return std::unique_ptr<PreTokenizer>(new PreTokenizer(std::move(impl)));
}

absl::Status PreTokenizer::Split(
    absl::string_view text,
    absl::FunctionRef<void(absl::string_view)> emit) const {
  if (text.empty()) return absl::OkStatus();
  const std::unique_ptr<pcre2_match_data, MatchDataDeleter> data(
      pcre2_match_data_create(1, nullptr));
  if (data == nullptr) return MatchError(PCRE2_ERROR_NOMEMORY);
  WellFormed source(text);
  const absl::string_view subject = source.view();
  const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(data.get());
  size_t position = 0;
  while (position < subject.size()) {
    // The subject has been checked once; checking the rest of it again at
    // every piece would be quadratic.
    const int result = pcre2_match(impl_->code,
                                   reinterpret_cast<PCRE2_SPTR>(subject.data()),
                                   subject.size(),
                                   position,
                                   PCRE2_NO_UTF_CHECK,
                                   data.get(),
                                   impl_->context);
    if (result == PCRE2_ERROR_NOMATCH) break;
    if (result < 0) return MatchError(result);
    // The patterns leave no gaps; if one did, the gap would be a piece.
    if (bounds[0] > position) emit(source.TakeUntil(bounds[0]));
    if (bounds[1] <= bounds[0]) {
      return absl::InternalError("pre-tokenizer: empty match");
    }
    emit(source.TakeUntil(bounds[1]));
    position = bounds[1];
  }
  if (position < subject.size()) emit(source.TakeUntil(subject.size()));
  return absl::OkStatus();
}

}  // namespace specwire
