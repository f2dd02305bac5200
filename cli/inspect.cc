// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cli/command.h"
#include "cli/completion.h"
#include "cli/inspect_view.h"
#include "cli/model_card.h"
#include "cli/vocabulary.h"
#include "common/base/status_macros.h"
#include "common/text/printable.h"

namespace specwire::cli {
namespace {

struct InspectFlags {
  std::string model;
  std::string other;
  int max_model_len = 0;
  bool json = false;
};

absl::StatusOr<ModelCard> ReadCard(const std::string& path, bool digests) {
  SPECWIRE_ASSIGN_OR_RETURN(const std::unique_ptr<ModelFiles> files,
                            ModelFiles::Open(path));
  SPECWIRE_ASSIGN_OR_RETURN(ModelCard card, ReadModelCard(*files));
  if (digests) {
    SPECWIRE_RETURN_IF_ERROR(AddModelDigests(*files, &card));
  }
  return card;
}

int Print(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  return FinishOutput();
}

int PrintCard(const InspectFlags& flags, const ModelCard& card) {
  const int limit = card.config.max_position_embeddings;
  if (flags.max_model_len > limit) {
    return FailUsage(absl::InvalidArgumentError(
        absl::StrCat("--max_model_len: ",
                     flags.max_model_len,
                     " is above the model's context length ",
                     limit)));
  }
  const std::vector<int> lengths =
      ShownLengths(card.config, flags.max_model_len);
  return Print(flags.json ? DumpJson(InspectJson(card, lengths)) + '\n'
                          : InspectText(card, lengths));
}

// Which of the two drafts: a draft model, or else the smaller one.
bool FirstDrafts(const ModelCard& first, const ModelCard& second) {
  const bool first_only = first.vocabulary.draft.has_value();
  const bool second_only = second.vocabulary.draft.has_value();
  if (first_only != second_only) return first_only;
  return first.num_parameters <= second.num_parameters;
}

int PrintPair(const InspectFlags& flags,
              const ModelCard& first,
              const ModelCard& second) {
  const bool first_drafts = FirstDrafts(first, second);
  const ModelCard& draft = first_drafts ? first : second;
  const ModelCard& target = first_drafts ? second : first;
  const absl::Status fits = CheckPair(draft.vocabulary, target.vocabulary);
  std::string text;
  if (flags.json) {
    text = DumpJson({{"draft_model", draft.path},
                     {"target", target.path},
                     {"fits", fits.ok()},
                     {"reason", fits.message()}});
  } else if (fits.ok()) {
    text = Printable(absl::StrCat(draft.path,
                                  " can draft for ",
                                  target.path,
                                  ": they have the same vocabulary"));
  } else {
    text = ErrorLine(fits.message());
  }
  const int printed = Print(text + '\n');
  return fits.ok() ? printed : kExitFailed;
}

int RunInspect(const InspectFlags& flags) {
  // Whether two can pair does not depend on weights, which take time to read.
  const bool digests = flags.other.empty();
  const absl::StatusOr<ModelCard> card = ReadCard(flags.model, digests);
  if (!card.ok()) {
    PrintError(card.status().message());
    return kExitFailed;
  }
  if (flags.other.empty()) return PrintCard(flags, *card);
  const absl::StatusOr<ModelCard> other = ReadCard(flags.other, false);
  if (!other.ok()) {
    PrintError(other.status().message());
    return kExitFailed;
  }
  return PrintPair(flags, *card, *other);
}

}  // namespace

void AddInspectCommand(CLI::App* app, Runner* runner) {
  CLI::App* command = app->add_subcommand(
      "inspect",
      "Tells what a model file is, the memory that it needs and its digests, "
      "without loading it; of two, whether the one can draft for the other "
      "(exit code "
      "0 if it can, 1 if not)");
  auto flags = std::make_shared<InspectFlags>();
  command
      ->add_option("MODEL",
                   flags->model,
                   "GGUF file or Hugging Face folder; a draft model too")
      ->required();
  command->add_option("OTHER",
                      flags->other,
                      "Another one. A draft model, or else the smaller of the "
                      "two, is to draft for the other");
  command
      ->add_option("--max_model_len",
                   flags->max_model_len,
                   "Of one model, the KV cache of a sequence of so many tokens "
                   "(default: of the model's context, and of usual ones)")
      ->check(CLI::Range(1, ModelLimits::kMaxContext));
  command->add_flag("--json", flags->json, "A JSON object instead of text");
  AddEnvironmentNames(command);
  command->callback(
      [flags, runner] { *runner = [flags] { return RunInspect(*flags); }; });
}

}  // namespace specwire::cli
