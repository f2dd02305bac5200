// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/node_main.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/end_watchdog.h"
#include "common/base/host_port.h"
#include "common/base/processors.h"
#include "common/base/random_id.h"
#include "common/base/signals.h"
#include "common/base/standard_streams.h"
#include "common/base/status_macros.h"
#include "common/http/metrics_routes.h"
#include "common/rpc/credentials.h"
#include "common/rpc/join_client.h"
#include "common/rpc/library_logs.h"
#include "common/rpc/node_drain.h"
#include "common/rpc/node_health.h"
#include "common/rpc/server.h"
#include "common/text/printable.h"

namespace specwire {
namespace {

constexpr int kMaxSequences = 4096;
constexpr size_t kMaxNameBytes = 64;
constexpr int kMetricsConnections = 32;
constexpr absl::Duration kShutdownGrace = absl::Seconds(2);
// Longest pass included.
constexpr absl::Duration kEndLimit = absl::Seconds(10);

// Flags as they were given.
struct NodeFlags {
  std::string coordinator;
  std::string listen = "127.0.0.1:0";
  std::string advertise;
  std::string metrics;
  bool metrics_vllm_aliases = false;
  std::string name;
  ServerSecurity security;
  std::string log_level = "info";
  bool no_reflection = false;
  int num_threads = 0;
};

absl::Status CheckName(absl::string_view name) {
  const bool printable =
      std::all_of(name.begin(), name.end(), [](unsigned char c) {
        return absl::ascii_isgraph(c);
      });
  if (printable && name.size() <= kMaxNameBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--name: must be at most ",
                   kMaxNameBytes,
                   " printable ASCII characters without spaces"));
}

// Whom a node works for: a user's certificate is no coordinator's.
absl::Status CheckIsCoordinator(const Caller& caller) {
  if (caller.HasName(kCoordinatorCertificate)) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat("this node serves only who has a certificate with the name ",
                   kCoordinatorCertificate));
}

// The address that coordinators are told.
absl::Status CheckAdvertise(const HostPort& listen,
                            const std::string& advertise) {
  if (!advertise.empty()) {
    return ParseHostPort(advertise, "--advertise").status();
  }
  if (listen.host != "0.0.0.0" && listen.host != "::") return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--advertise: say under which HOST:PORT coordinators reach "
                   "this node (port 0: the one it listens on); --listen ",
                   listen.ToString(),
                   " is no address to connect to"));
}

HealthReport Health(const NodeParts& parts, const NodeHealth& health) {
  const v1::NodeLoad load = parts.load();
  const absl::string_view status = health.draining()  ? "draining"
                                   : health.healthy() ? "ok"
                                                      : "no progress";
  const bool healthy = health.healthy() && !health.draining();
  return {.healthy = healthy,
          .ready = healthy,
          .json = absl::StrCat("{\"status\":\"",
                               status,
                               "\",\"num_sequences\":",
                               load.num_sequences(),
                               ",\"progress\":",
                               load.progress(),
                               "}")};
}

absl::StatusOr<std::string> AdvertisedAddress(const NodeOptions& options,
                                              const RpcServer& server) {
  if (options.advertise.empty()) return server.address();
  SPECWIRE_ASSIGN_OR_RETURN(HostPort address,
                            ParseHostPort(options.advertise, "--advertise"));
  if (address.port == 0) address.port = server.port();
  return address.ToString();
}

absl::StatusOr<JoinClientOptions> JoinOptions(const NodeOptions& options,
                                              const NodeParts& parts,
                                              const RpcServer& server) {
  JoinClientOptions join;
  join.coordinators = options.coordinators;
  join.channel.credentials = MakeChannelCredentials(options.security.tls);
  join.channel.peer_name = kCoordinatorCertificate;
  SPECWIRE_ASSIGN_OR_RETURN(const std::string address,
                            AdvertisedAddress(options, server));
  v1::NodeRegistration& registration = join.registration;
  registration.set_name(options.name);
  registration.set_role(parts.role);
  registration.set_address(address);
  registration.set_incarnation_id(RandomHexId());
  registration.set_pid(getpid());
  return join;
}

absl::StatusOr<std::unique_ptr<HttpServer>> StartMetrics(
    const NodeOptions& options,
    const NodeParts& parts,
    const NodeHealth& health) {
  if (options.metrics.empty()) return nullptr;
  HttpServerOptions http;
  http.listen = options.metrics;
  http.max_connections = kMetricsConnections;
  auto server = std::make_unique<HttpServer>(http);
  AddMetricsRoutes(server.get(), parts.metrics, [&parts, &health] {
    return Health(parts, health);
  });
  SPECWIRE_RETURN_IF_ERROR(server->Start());
  std::cout << "metrics on " << server->address() << std::endl;
  return server;
}

void AddNodeFlags(CLI::App* app, NodeFlags* flags) {
  app->add_option("--coordinator",
                  flags->coordinator,
                  "HOST:PORT of the coordinator, or several, by commas; "
                  "dns:///HOST:PORT stands for all addresses of a name, which "
                  "is looked up every few seconds")
      ->required();
  app->add_option("--listen",
                  flags->listen,
                  "HOST:PORT to serve on; port 0 takes a free one")
      ->capture_default_str();
  app->add_option("--advertise",
                  flags->advertise,
                  "HOST:PORT that coordinators are told (default: --listen)");
  app->add_option("--metrics",
                  flags->metrics,
                  "HOST:PORT for HTTP /metrics and /health (default: none)");
  AddAliasesFlag(app, &flags->metrics_vllm_aliases);
  app->add_option("--name",
                  flags->name,
                  "name of the node, unique in the cluster (default: made up)");
  app->add_option(
      "--threads",
      flags->num_threads,
      "threads for the model (default: one for each processor that this "
      "process may use)");
  app->add_option("--log_level",
                  flags->log_level,
                  "least severity to log: debug, info, warning or error")
      ->capture_default_str();
  app->add_flag(
      "--no_reflection", flags->no_reflection, "do not serve gRPC reflection");
  AddSecurityFlags(app, &flags->security);
}

absl::StatusOr<NodeOptions> CheckNodeFlags(const NodeFlags& flags,
                                           absl::string_view role) {
  NodeOptions options;
  SPECWIRE_ASSIGN_OR_RETURN(
      options.coordinators,
      ParseTargetList(flags.coordinator, "--coordinator"));
  SPECWIRE_ASSIGN_OR_RETURN(const HostPort listen,
                            ParseHostPort(flags.listen, "--listen"));
  SPECWIRE_RETURN_IF_ERROR(CheckAdvertise(listen, flags.advertise));
  SPECWIRE_RETURN_IF_ERROR(
      CheckServerSecurity(flags.security, flags.listen, kNodeCertificate));
  if (!flags.metrics.empty()) {
    SPECWIRE_RETURN_IF_ERROR(
        ParseHostPort(flags.metrics, "--metrics").status());
  }
  SPECWIRE_RETURN_IF_ERROR(CheckName(flags.name));
  if (!ParseLogLevel(flags.log_level, &options.log_level)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--log_level: \"",
                     flags.log_level,
                     "\" is none of debug, info, warning, error"));
  }
  if (flags.num_threads < 0 || flags.num_threads > kMaxThreads) {
    return absl::InvalidArgumentError(
        absl::StrCat("--threads: ",
                     flags.num_threads,
                     " is not between 1 and ",
                     kMaxThreads,
                     " (0: one for each processor)"));
  }
  options.listen = flags.listen;
  options.advertise = flags.advertise;
  options.metrics = flags.metrics;
  options.metrics_vllm_aliases = flags.metrics_vllm_aliases;
  options.security = flags.security;
  options.name =
      flags.name.empty() ? absl::StrCat(role, "-", RandomHexId(3)) : flags.name;
  options.reflection = !flags.no_reflection;
  options.num_threads = flags.num_threads > 0
                            ? flags.num_threads
                            : std::min(UsableProcessors(), kMaxThreads);
  return options;
}

// Takes no new streams, and lets those that run end while there is time.
void Drain(const NodeParts& parts,
           const std::string& reason,
           NodeDrain* drain,
           NodeHealth* health,
           JoinClient* join) {
  SPECWIRE_LOG(
      Info,
      "draining: ",
      reason,
      "; ",
      parts.load().num_sequences(),
      " sequences run, ",
      absl::ToInt64Seconds(absl::Ceil(drain->left(), absl::Seconds(1))),
      " s for them to end");
  health->SetDraining();
  parts.drain();
  join->TellDraining(reason, drain->left());
  // There is nothing to wait for where the engine hangs.
  const auto idle = [&] {
    return parts.load().num_sequences() == 0 || !health->healthy();
  };
  if (!drain->WaitIdle(idle)) {
    SPECWIRE_LOG(Info,
                 parts.load().num_sequences(),
                 " sequences have not ended: they go on elsewhere");
  }
}

}  // namespace

std::optional<int> ParseFlags(CLI::App* app, int argc, char** argv) {
  app->set_config("--config", "", "file with flags, one NAME=VALUE a line");
  app->allow_config_extras(CLI::config_extras_mode::error);
  for (CLI::Option* option : app->get_options()) {
    const std::string name = option->get_single_name();
    if (name == "help" || name == "config") continue;
    option->envname(absl::StrCat("SPECWIRE_", absl::AsciiStrToUpper(name)));
  }
  // After the loop: it is none of the environment's.
  app->set_version_flag("--version",
                        absl::StrCat(app->get_name(), " ", SPECWIRE_VERSION));
  try {
    app->parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app->exit(error);
    return ExitWithError(app->get_name(),
                         absl::InvalidArgumentError(error.what()),
                         /*usage=*/true);
  }
  return std::nullopt;
}

void AddAliasesFlag(CLI::App* app, bool* aliases) {
  app->add_flag("--metrics_vllm_aliases",
                *aliases,
                "repeat the metrics that vLLM has too under its names");
}

void AddSecurityFlags(CLI::App* app, ServerSecurity* security) {
  app->add_option("--tls_cert",
                  security->tls.cert,
                  "file with this program's certificate (PEM, any that lead to "
                  "a root behind it); with TLS others must have one too");
  app->add_option("--tls_key",
                  security->tls.key,
                  "file with the certificate's private key (PEM)");
  app->add_option("--tls_ca",
                  security->tls.ca,
                  "file with the roots that others' certificates must come "
                  "from (PEM)");
  app->add_flag("--allow_insecure",
                security->allow_insecure,
                "serve without TLS on an address that others can reach");
  app->add_option("--max_connections",
                  security->max_connections,
                  "connections at once; more are closed")
      ->capture_default_str();
}

int ExitWithError(absl::string_view program,
                  const absl::Status& status,
                  bool usage) {
  const bool bad_usage =
      usage && status.code() == absl::StatusCode::kInvalidArgument;
  std::cerr << program << ": " << ErrorLine(status.message())
            << (bad_usage ? " (see --help)" : "") << std::endl;
  return bad_usage ? 2 : 1;
}

int NodeMain(const NodeProgram& program, int argc, char** argv) {
  ReserveStandardStreams();
  BlockShutdownSignals();
  CLI::App app(program.description, program.name);
  NodeFlags flags;
  AddNodeFlags(&app, &flags);
  program.add_flags(&app);
  if (const auto code = ParseFlags(&app, argc, argv)) return *code;
  if (absl::Status status = program.check_flags(); !status.ok()) {
    return ExitWithError(program.name, status, /*usage=*/true);
  }
  const absl::StatusOr<NodeOptions> options =
      CheckNodeFlags(flags, program.role);
  if (!options.ok()) {
    return ExitWithError(program.name, options.status(), /*usage=*/true);
  }
  InitLogging(program.name, options->log_level);
  RouteLibraryLogs();
  if (absl::Status status = program.serve(*options); !status.ok()) {
    return ExitWithError(program.name, status, /*usage=*/false);
  }
  return 0;
}

absl::Status CheckMaxNumSequences(int max_num_sequences) {
  if (max_num_sequences >= 1 && max_num_sequences <= kMaxSequences) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("--max_num_sequences: ",
                                                 max_num_sequences,
                                                 " is not between 1 and ",
                                                 kMaxSequences));
}

absl::Status CheckAddressesFree(const NodeOptions& options) {
  for (const std::string& address : {options.listen, options.metrics}) {
    if (address.empty()) continue;
    SPECWIRE_ASSIGN_OR_RETURN(const HostPort parsed,
                              ParseHostPort(address, "address"));
    SPECWIRE_RETURN_IF_ERROR(CheckCanListen(parsed));
  }
  return absl::OkStatus();
}

absl::Status RunNode(const NodeOptions& options, const NodeParts& parts) {
  RpcServerOptions server_options;
  server_options.listen = options.listen;
  server_options.reflection = options.reflection;
  server_options.max_connections = options.security.max_connections;
  if (options.security.tls.enabled()) {
    server_options.credentials =
        MakeServerCredentials(options.security.tls,
                              ClientCertificates::kRequired,
                              &CheckIsCoordinator);
  }
  SPECWIRE_ASSIGN_OR_RETURN(const std::unique_ptr<RpcServer> server,
                            RpcServer::Start(server_options, parts.services));
  NodeHealth health(server.get(), parts.service_name, parts.load);
  // For whoever started us with port 0.
  std::cout << "listening on " << server->address() << std::endl;
  SPECWIRE_ASSIGN_OR_RETURN(const std::unique_ptr<HttpServer> metrics,
                            StartMetrics(options, parts, health));
  SPECWIRE_ASSIGN_OR_RETURN(JoinClientOptions join_options,
                            JoinOptions(options, parts, *server));
  SPECWIRE_LOG(Info,
               options.name,
               " serves on ",
               server->address(),
               ", reached at ",
               join_options.registration.address(),
               ", ",
               DescribeSecurity(options.security));
  NodeDrain drain(parts.grace.value_or(absl::ZeroDuration()));
  JoinClient join(std::move(join_options),
                  parts.load,
                  [&](std::optional<absl::Duration> grace) {
                    drain.Ask(parts.grace.has_value() ? grace : std::nullopt);
                  });

  const std::string reason = drain.Wait();
  Drain(parts, reason, &drain, &health, &join);
  SPECWIRE_LOG(Info, "shutting down");
  // Signals stay blocked: none of them makes this any quicker.
  const EndWatchdog watchdog(kEndLimit);
  parts.stop();
  join.Stop();
  const absl::Status ended = server->Shutdown(kShutdownGrace);
  if (metrics != nullptr) metrics->Stop();
  if (!ended.ok()) {
    // Handlers still use what the destructors would destroy.
    SPECWIRE_LOG(Error, "shutdown: ", ended.message());
    std::_Exit(1);
  }
  return absl::OkStatus();
}

}  // namespace specwire
