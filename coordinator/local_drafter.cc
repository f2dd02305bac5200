// SPDX-License-Identifier: Apache-2.0
#include "coordinator/local_drafter.h"

#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/drafting/suffix.h"

namespace specwire::coordinator {
namespace {

// Tokens of the streams that are open: some 200 MiB with the drafter's index of
// them.
constexpr int64_t kMaxTokens = int64_t{1} << 20;
// Tokens that are read in about a tenth of a millisecond.
constexpr int kLongText = 1024;

}  // namespace

bool MayDraftLocally(absl::string_view drafter) {
  return drafter.empty() || drafter == kLocalDrafter ||
         drafter == kLocalDrafterKind;
}

LocalDraftStream::LocalDraftStream(LocalDrafter* drafter,
                                   DraftPath path,
                                   std::unique_ptr<DraftSequence> sequence)
    : drafter_(drafter),
      path_(std::move(path)),
      sequence_(std::move(sequence)) {
  CountTokens();
}

LocalDraftStream::~LocalDraftStream() { drafter_->num_tokens_ -= num_counted_; }

void LocalDraftStream::CountTokens() {
  const int64_t now = path_.committed_length();
  drafter_->num_tokens_ += now - num_counted_;
  num_counted_ = now;
}

void LocalDraftStream::OnCommit(int32_t position,
                                absl::Span<const int32_t> tokens) {
  status_.Update(path_.OnCommit(position, tokens));
  CountTokens();
}

void LocalDraftStream::OnRewind(int32_t position) {
  status_.Update(path_.OnRewind(position));
}

void LocalDraftStream::OnTune(std::optional<int> run_length,
                              std::optional<int> window,
                              std::optional<float> min_survival) {
  status_.Update(path_.OnTune(run_length, window, min_survival));
}

absl::StatusOr<std::optional<Proposal>> LocalDraftStream::Next() {
  while (status_.ok()) {
    DraftPath::Work work = path_.NextWork();
    switch (work.kind) {
      case DraftPath::Work::Kind::kNone:
        return std::nullopt;
      case DraftPath::Work::Kind::kSend:
        return std::move(work.proposal);
      case DraftPath::Work::Kind::kDraft:
        status_.Update(Draft(work.limits));
        break;
    }
  }
  return status_;
}

bool LocalDraftStream::has_long_text() const {
  return !has_drafted_ && path_.committed_length() > kLongText;
}

absl::Status LocalDraftStream::Draft(const DraftLimits& limits) {
  has_drafted_ = true;
  SPECWIRE_ASSIGN_OR_RETURN(DraftRun run,
                            sequence_->Propose(path_.path(), limits));
  SPECWIRE_RETURN_IF_ERROR(CheckRun(run, limits));
  path_.OnDrafted(std::move(run));
  return absl::OkStatus();
}

LocalDrafter::LocalDrafter(std::unique_ptr<Drafter> drafter, int64_t max_tokens)
    : drafter_(std::move(drafter)), max_tokens_(max_tokens) {}

LocalDrafter::~LocalDrafter() = default;

absl::StatusOr<std::unique_ptr<LocalDrafter>> LocalDrafter::Create(
    absl::string_view name) {
  if (name != kLocalDrafterKind) return nullptr;
  SPECWIRE_ASSIGN_OR_RETURN(std::unique_ptr<Drafter> drafter,
                            SuffixDrafter::Create({}));
  return std::make_unique<LocalDrafter>(std::move(drafter), kMaxTokens);
}

absl::StatusOr<std::unique_ptr<LocalDraftStream>> LocalDrafter::Open(
    LocalDraftOpen open) {
  if (num_tokens_ + static_cast<int64_t>(open.tokens.size()) > max_tokens_) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the local drafter has room for ",
                     max_tokens_,
                     " tokens, all sequences together"));
  }
  SPECWIRE_ASSIGN_OR_RETURN(DraftPath path,
                            DraftPath::Open(std::move(open.tokens),
                                            open.prompt_length,
                                            open.run_length,
                                            open.window,
                                            open.params.rule,
                                            open.min_survival));
  return absl::WrapUnique(new LocalDraftStream(
      this, std::move(path), drafter_->NewSequence(open.params)));
}

}  // namespace specwire::coordinator
