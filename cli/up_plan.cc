// SPDX-License-Identifier: Apache-2.0
#include "cli/up_plan.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/host_port.h"
#include "common/base/processors.h"
#include "common/base/status_macros.h"

namespace specwire::cli {
namespace {

namespace fs = std::filesystem;

// Layers of the target that draft if no other model is given.
constexpr int kDefaultDraftLayers = 4;
constexpr char kDefaultModel[] = "models/SmolLM2-135M-Instruct.Q4_1.gguf";

int NumDraftNodes(const UpOptions& options) {
  return options.drafter == kNoDrafter ? 0 : options.num_draft_nodes;
}

// INVALID_ARGUMENT if the address is malformed; UNAVAILABLE if it is taken, so
// that no other coordinator there is mistaken for ours.
absl::Status CheckAddress(const std::string& text, const std::string& flag) {
  SPECWIRE_ASSIGN_OR_RETURN(const HostPort address, ParseHostPort(text, flag));
  if (address.port == 0) {
    return absl::OkStatus();
  }
  const absl::Status free = CheckCanListen(address);
  if (!free.ok()) {
    return absl::UnavailableError(absl::StrCat(
        free.message(), "; stop what uses it, or choose another with ", flag));
  }
  return absl::OkStatus();
}

// The nodes' metrics addresses: consecutive ports, or 0 for all.
absl::StatusOr<std::string> MetricsAddress(const std::string& first,
                                           int index) {
  SPECWIRE_ASSIGN_OR_RETURN(HostPort address,
                            ParseHostPort(first, "--metrics"));
  if (address.port == 0) {
    return address.ToString();
  }
  address.port += index;
  if (address.port > 65535) {
    return absl::InvalidArgumentError(
        "--metrics: too few ports above the first one");
  }
  SPECWIRE_RETURN_IF_ERROR(CheckAddress(address.ToString(), "--metrics"));
  return address.ToString();
}

absl::Status AddNode(const UpOptions& options,
                     const std::string& name,
                     const std::string& program,
                     std::vector<std::string> specific,
                     UpPlan* plan) {
  ChildSpec spec{name, program, {}};
  spec.arguments = {"--name",
                    name,
                    "--listen",
                    "127.0.0.1:0",
                    "--log_level",
                    options.log_level};
  if (options.metrics.has_value()) {
    SPECWIRE_ASSIGN_OR_RETURN(
        const std::string address,
        MetricsAddress(*options.metrics, static_cast<int>(plan->nodes.size())));
    spec.arguments.insert(spec.arguments.end(), {"--metrics", address});
  }
  spec.arguments.insert(spec.arguments.end(), specific.begin(), specific.end());
  plan->nodes.push_back(std::move(spec));
  return absl::OkStatus();
}

// What a draft node is told of its drafter; it judges what does not fit.
std::vector<std::string> DraftArguments(const UpOptions& options,
                                        const std::string& model) {
  std::vector<std::string> arguments = {"--drafter", options.drafter};
  std::string file = options.draft_model;
  std::optional<int> layers = options.draft_layers;
  const DrafterKind* kind = FindDrafterKind(options.drafter);
  if (kind != nullptr && kind->has_model) {
    if (file.empty()) {
      file = model;
      if (kind->takes_layers && !layers.has_value()) {
        layers = kDefaultDraftLayers;
      }
    }
    arguments.insert(arguments.end(),
                     {"--engine",
                      options.engine,
                      "--threads",
                      absl::StrCat(ShareThreads(options).draft_node)});
  }
  if (!file.empty()) {
    arguments.insert(arguments.end(), {"--draft_model", file});
  }
  if (layers.has_value()) {
    arguments.insert(arguments.end(),
                     {"--draft_layers", absl::StrCat(*layers)});
  }
  return arguments;
}

absl::Status AddNodes(const UpOptions& options,
                      const std::string& folder,
                      const std::string& model,
                      UpPlan* plan) {
  std::vector<std::string> verifier = {
      "--model",
      model,
      "--engine",
      options.engine,
      "--threads",
      absl::StrCat(ShareThreads(options).verifier)};
  if (options.max_model_len.has_value()) {
    verifier.insert(verifier.end(),
                    {"--max_model_len", absl::StrCat(*options.max_model_len)});
  }
  std::vector<std::string> draft = DraftArguments(options, model);
  if (options.kv_cache_mib.has_value()) {
    const std::string mib = absl::StrCat(*options.kv_cache_mib);
    verifier.insert(verifier.end(), {"--kv_cache_mib", mib});
    draft.insert(draft.end(), {"--kv_cache_mib", mib});
  }
  for (int i = 0; i < options.num_verifiers; ++i) {
    SPECWIRE_RETURN_IF_ERROR(AddNode(options,
                                     absl::StrCat("verifier-", i),
                                     folder + "/verifier_node",
                                     verifier,
                                     plan));
  }
  for (int i = 0; i < NumDraftNodes(options); ++i) {
    SPECWIRE_RETURN_IF_ERROR(AddNode(options,
                                     absl::StrCat("draft-", i),
                                     folder + "/draft_node",
                                     draft,
                                     plan));
  }
  return absl::OkStatus();
}

}  // namespace

ThreadShares ShareThreads(const UpOptions& options) {
  ThreadShares shares;
  const DrafterKind* kind = FindDrafterKind(options.drafter);
  if (kind != nullptr && kind->has_model) shares.draft_node = 1;
  const int rest =
      options.num_processors - NumDraftNodes(options) * shares.draft_node;
  shares.verifier = std::clamp(rest / options.num_verifiers, 1, kMaxThreads);
  if (options.num_threads.has_value()) shares.verifier = *options.num_threads;
  return shares;
}

std::string DescribeThreads(const UpOptions& options) {
  const ThreadShares shares = ShareThreads(options);
  const auto part = [](absl::string_view role, int count, int threads) {
    return count == 1 ? absl::StrCat(role, " ", threads)
                      : absl::StrCat(count, " ", role, "s ", threads, " each");
  };
  std::string text = absl::StrCat(
      "threads: ", part("verifier", options.num_verifiers, shares.verifier));
  const int num_draft_nodes = NumDraftNodes(options);
  if (num_draft_nodes > 0 && shares.draft_node > 0) {
    absl::StrAppend(
        &text, ", ", part("draft node", num_draft_nodes, shares.draft_node));
  }
  absl::StrAppend(&text,
                  " of ",
                  options.num_processors,
                  options.num_processors == 1 ? " processor" : " processors");
  if (num_draft_nodes > 0 && shares.draft_node == 0) {
    absl::StrAppend(&text, "; the drafter ", options.drafter, " needs none");
  }
  return text;
}

absl::StatusOr<UpPlan> MakeUpPlan(const UpOptions& options,
                                  const std::string& folder) {
  std::string model = options.model;
  if (model.empty()) {
    SPECWIRE_ASSIGN_OR_RETURN(model, FindDefaultModel(folder));
  }
  UpPlan plan;
  plan.threads = DescribeThreads(options);
  SPECWIRE_RETURN_IF_ERROR(CheckAddress(options.listen, "--listen"));
  plan.coordinator = {
      "coordinator",
      folder + "/coordinator",
      {"--listen", options.listen, "--log_level", options.log_level}};
  if (options.http != "none") {
    SPECWIRE_RETURN_IF_ERROR(CheckAddress(options.http, "--http"));
    plan.has_http = true;
    plan.coordinator.arguments.insert(plan.coordinator.arguments.end(),
                                      {"--http", options.http});
  }
  SPECWIRE_RETURN_IF_ERROR(AddNodes(options, folder, model, &plan));
  return plan;
}

CoordinatorAddresses ParseCoordinatorOutput(absl::string_view output) {
  CoordinatorAddresses addresses;
  // The last part is not a whole line yet, or empty.
  std::vector<absl::string_view> lines = absl::StrSplit(output, '\n');
  lines.pop_back();
  for (absl::string_view line : lines) {
    if (absl::ConsumePrefix(&line, "listening on ")) {
      addresses.rpc = std::string(line);
    } else if (absl::ConsumePrefix(&line, "http on ")) {
      addresses.http = std::string(line);
    }
  }
  return addresses;
}

std::string DialAddress(const std::string& text) {
  const absl::StatusOr<HostPort> address = ParseHostPort(text, "address");
  if (address.ok() && address->host == "0.0.0.0") {
    return absl::StrCat("127.0.0.1:", address->port);
  }
  if (address.ok() && address->host == "::") {
    return absl::StrCat("[::1]:", address->port);
  }
  return text;
}

absl::StatusOr<std::string> FindDefaultModel(const std::string& folder) {
  std::error_code error;
  if (fs::exists(kDefaultModel, error)) {
    return std::string(kDefaultModel);
  }
  for (fs::path path = folder;; path = path.parent_path()) {
    if (fs::exists(path / kDefaultModel, error)) {
      return (path / kDefaultModel).string();
    }
    if (path == path.parent_path()) {
      break;
    }
  }
  return absl::NotFoundError(
      absl::StrCat("there is no ",
                   kDefaultModel,
                   " here or above the program; run scripts/setup.sh, or name "
                   "a model file with --model"));
}

}  // namespace specwire::cli
