// SPDX-License-Identifier: Apache-2.0
#include "cli/up_plan.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "cli/model_files.h"
#include "cli/vocabulary.h"
#include "common/base/host_port.h"
#include "common/base/processors.h"
#include "common/base/status_macros.h"
#include "common/drafting/synthetic.h"
#include "common/rpc/server_security.h"

namespace specwire::cli {
namespace {

// Layers of the target that draft if no other model is given.
constexpr int kDefaultDraftLayers = 4;

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

void AddTls(const TlsFiles& tls, std::vector<std::string>* arguments) {
  if (!tls.enabled()) return;
  arguments->insert(
      arguments->end(),
      {"--tls_cert", tls.cert, "--tls_key", tls.key, "--tls_ca", tls.ca});
}

// INVALID_ARGUMENT unless the one certificate serves all roles, and others are
// let in without one only on purpose.
absl::Status CheckSecurity(const UpOptions& options) {
  ServerSecurity security;
  security.tls = options.tls;
  security.allow_insecure = options.allow_insecure;
  for (const char* name :
       {kCoordinatorCertificate, kNodeCertificate, kOperatorCertificate}) {
    SPECWIRE_RETURN_IF_ERROR(
        CheckServerSecurity(security, options.listen, name));
  }
  return absl::OkStatus();
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
  if (options.metrics_vllm_aliases) {
    spec.arguments.emplace_back("--metrics_vllm_aliases");
  }
  AddTls(options.tls, &spec.arguments);
  spec.arguments.insert(spec.arguments.end(), specific.begin(), specific.end());
  plan->nodes.push_back(std::move(spec));
  return absl::OkStatus();
}

// What a draft node is told of its drafter; it judges what does not fit.
std::vector<std::string> DraftArguments(const UpOptions& options,
                                        const std::string& model) {
  std::vector<std::string> arguments = {"--drafter", options.drafter};
  std::string file = options.draft_model;
  const DrafterKind* kind = FindDrafterKind(options.drafter);
  if (kind != nullptr && kind->has_model) {
    if (file.empty()) file = model;
    arguments.insert(arguments.end(),
                     {"--engine",
                      options.engine,
                      "--threads",
                      absl::StrCat(ShareThreads(options).draft_node)});
  }
  if (!file.empty()) {
    arguments.insert(arguments.end(), {"--draft_model", file});
  }
  return arguments;
}

bool IsSynthetic(const UpOptions& options) {
  return options.engine == kSynthetic;
}

// INVALID_ARGUMENT if synthetic nodes are asked for by mistake, or with others
// that they cannot serve.
absl::Status CheckSynthetic(const UpOptions& options) {
  const bool drafts = options.drafter == kSyntheticDrafter;
  if (options.synthetic_acceptance.has_value() && !drafts) {
    return absl::InvalidArgumentError(
        absl::StrCat("--synthetic_acceptance: belongs to --drafter ",
                     kSyntheticDrafter,
                     ", not to ",
                     options.drafter));
  }
  if (IsSynthetic(options)) {
    SPECWIRE_RETURN_IF_ERROR(
        CheckSyntheticAllowed(options.allow_synthetic, "--engine synthetic"));
    const DrafterKind* kind = FindDrafterKind(options.drafter);
    if (kind != nullptr && kind->has_model) {
      return absl::InvalidArgumentError(
          absl::StrCat("--drafter: ",
                       options.drafter,
                       " needs a model, and --engine synthetic has none"));
    }
    if (!options.model.empty()) {
      return absl::InvalidArgumentError(
          "--model: the engine synthetic has no model");
    }
  } else if (drafts) {
    SPECWIRE_RETURN_IF_ERROR(
        CheckSyntheticAllowed(options.allow_synthetic, "--drafter synthetic"));
    return absl::InvalidArgumentError(
        "--drafter: synthetic drafts for --engine synthetic only");
  }
  return absl::OkStatus();
}

// Appends "--name VALUE" if there is a value.
template <class Value>
void AddOption(const std::string& name,
               const std::optional<Value>& value,
               std::vector<std::string>* arguments) {
  if (!value.has_value()) return;
  arguments->insert(arguments->end(), {name, absl::StrCat(*value)});
}

std::vector<std::string> VerifierArguments(const UpOptions& options,
                                           const std::string& model) {
  std::vector<std::string> arguments = {
      "--engine",
      options.engine,
      "--threads",
      absl::StrCat(ShareThreads(options).verifier)};
  if (IsSynthetic(options)) {
    arguments.emplace_back("--allow_synthetic");
    AddOption("--synthetic_step_us", options.synthetic_step_us, &arguments);
    AddOption("--synthetic_row_us", options.synthetic_row_us, &arguments);
    AddOption("--synthetic_vocab", options.synthetic_vocab, &arguments);
  } else {
    arguments.insert(arguments.end(), {"--model", model});
    if (options.drafter == kNoDrafter) {
      // Plain decoding was asked for.
      arguments.insert(arguments.end(), {"--local_drafter", "none"});
    } else if (!options.local_draft_model.empty()) {
      arguments.insert(arguments.end(),
                       {"--local_drafter",
                        kHybridDrafter,
                        "--local_draft_model",
                        options.local_draft_model});
    }
  }
  if (options.inspect) arguments.emplace_back("--inspect");
  if (!options.served_model_name.empty()) {
    arguments.insert(arguments.end(),
                     {"--served_model_name", options.served_model_name});
  }
  AddOption("--max_model_len", options.max_model_len, &arguments);
  AddOption("--kv_cache_mib", options.kv_cache_mib, &arguments);
  AddOption("--max_num_sequences", options.max_num_sequences, &arguments);
  AddOption("--max_queued_sequences", options.max_queued_sequences, &arguments);
  return arguments;
}

absl::Status AddNodes(const UpOptions& options,
                      const std::string& folder,
                      const std::string& model,
                      UpPlan* plan) {
  const std::vector<std::string> verifier = VerifierArguments(options, model);
  std::vector<std::string> draft = DraftArguments(options, model);
  AddOption("--draft_layers", options.draft_layers, &draft);
  AddOption("--kv_cache_mib", options.kv_cache_mib, &draft);
  AddOption("--max_num_sequences", options.max_num_sequences, &draft);
  if (options.drafter == kSyntheticDrafter) {
    draft.emplace_back("--allow_synthetic");
    AddOption("--synthetic_acceptance", options.synthetic_acceptance, &draft);
    AddOption("--synthetic_delay_us", options.synthetic_delay_us, &draft);
    AddOption("--synthetic_vocab", options.synthetic_vocab, &draft);
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

// What drafts where neither a draft model nor layers were named: the project's
// draft model, if it was made for the target; with `hybrid`, inside verifiers
// too. Else the lookups of `hybrid` are all that is of use, and `model` has
// layers of the target.
void ChooseDrafter(const std::string& folder, UpOptions* options) {
  const DrafterKind* kind = FindDrafterKind(options->drafter);
  if (kind == nullptr || !kind->takes_layers || !options->draft_model.empty() ||
      options->draft_layers.has_value()) {
    return;
  }
  std::optional<std::string> file;
  if (!IsSynthetic(*options)) file = FindDraftModel(folder, options->model);
  if (file.has_value()) {
    options->draft_model = *std::move(file);
    if (options->drafter == kHybridDrafter) {
      options->local_draft_model = options->draft_model;
    }
  } else if (options->drafter == kHybridDrafter) {
    options->drafter = kSuffixDrafter;
  } else {
    options->draft_layers = kDefaultDraftLayers;
  }
}

// FAILED_PRECONDITION if the model that was named for drafting speaks of other
// tokens than the target. The nodes will say what is wrong with a model that
// cannot be read.
absl::Status CheckDraftModel(const UpOptions& options) {
  const DrafterKind* kind = FindDrafterKind(options.drafter);
  if (kind == nullptr || !kind->has_model || options.draft_model.empty() ||
      IsSynthetic(options)) {
    return absl::OkStatus();
  }
  const absl::Status fits =
      CheckPairOfFiles(options.draft_model, options.model);
  if (!absl::IsFailedPrecondition(fits)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("--draft_model: ", fits.message()));
}

}  // namespace

ThreadShares ShareThreads(const UpOptions& options) {
  ThreadShares shares;
  const DrafterKind* kind = FindDrafterKind(options.drafter);
  if (kind != nullptr && kind->has_model) shares.draft_node = 1;
  shares.verifier = std::clamp(
      options.num_processors / options.num_verifiers, 1, kMaxThreads);
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

absl::StatusOr<UpPlan> MakeUpPlan(const UpOptions& asked,
                                  const std::string& folder) {
  UpOptions options = asked;
  if (options.model.empty() && !IsSynthetic(options)) {
    SPECWIRE_ASSIGN_OR_RETURN(options.model, FindDefaultModel(folder));
  }
  SPECWIRE_RETURN_IF_ERROR(CheckDraftModel(options));
  ChooseDrafter(folder, &options);
  SPECWIRE_RETURN_IF_ERROR(CheckSynthetic(options));
  UpPlan plan;
  plan.drafter = options.drafter;
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
  if (options.metrics_vllm_aliases) {
    plan.coordinator.arguments.emplace_back("--metrics_vllm_aliases");
  }
  SPECWIRE_RETURN_IF_ERROR(CheckSecurity(options));
  plan.tls = options.tls;
  AddTls(options.tls, &plan.coordinator.arguments);
  if (!options.api_keys.empty()) {
    plan.coordinator.arguments.insert(plan.coordinator.arguments.end(),
                                      {"--api_keys", options.api_keys});
  }
  if (!options.operator_keys.empty()) {
    plan.coordinator.arguments.insert(
        plan.coordinator.arguments.end(),
        {"--operator_keys", options.operator_keys});
  }
  AddOption("--per_request_spec_decode_metrics",
            options.per_request_spec_decode_metrics,
            &plan.coordinator.arguments);
  if (options.http_tls) plan.coordinator.arguments.emplace_back("--http_tls");
  plan.http_tls = options.http_tls;
  if (options.allow_insecure) {
    plan.coordinator.arguments.emplace_back("--allow_insecure");
  }
  SPECWIRE_RETURN_IF_ERROR(AddNodes(options, folder, options.model, &plan));
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

}  // namespace specwire::cli
