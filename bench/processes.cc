// SPDX-License-Identifier: Apache-2.0
#include "bench/processes.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "common/base/status_macros.h"
#include "common/rpc/channel.h"

namespace specwire::bench {
namespace {

constexpr absl::Duration kReadyTimeout = absl::Seconds(60);

// Reads up to the end of a line; empty at the end of the output.
std::string ReadLine(int fd) {
  std::string line;
  char byte = 0;
  while (read(fd, &byte, 1) == 1 && byte != '\n') line.push_back(byte);
  return line;
}

int CountServing(v1::ClusterService::Stub* stub) {
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(5)));
  v1::ListNodesResponse response;
  if (!stub->ListNodes(&context, {}, &response).ok()) return 0;
  int count = 0;
  for (const v1::Node& node : response.nodes()) {
    if (node.state() == v1::NODE_STATE_SERVING) ++count;
  }
  return count;
}

}  // namespace

absl::StatusOr<ProcessFigures> ReadProcess(pid_t pid) {
  ProcessFigures figures;
  std::ifstream stat(absl::StrCat("/proc/", pid, "/stat"));
  std::stringstream text;
  text << stat.rdbuf();
  // The name, in parentheses, may hold anything; fields 3 and on follow it.
  const std::string all = text.str();
  const size_t behind = all.rfind(')');
  if (behind == std::string::npos) {
    return absl::InternalError(absl::StrCat("process ", pid, " has ended"));
  }
  std::istringstream fields(all.substr(behind + 1));
  std::string skipped;
  for (int field = 3; field < 14; ++field) fields >> skipped;
  int64_t user = 0;
  int64_t system = 0;
  fields >> user >> system;
  figures.cpu = absl::Seconds(static_cast<double>(user + system) /
                              static_cast<double>(sysconf(_SC_CLK_TCK)));
  std::ifstream status(absl::StrCat("/proc/", pid, "/status"));
  for (std::string word; status >> word;) {
    double kib = 0;
    if (word == "VmRSS:" && status >> kib) figures.resident_mib = kib / 1024;
    if (word == "Threads:") status >> figures.num_threads;
  }
  return figures;
}

absl::StatusOr<std::unique_ptr<Server>> Server::Start(
    const std::string& name,
    const std::string& program,
    const std::vector<std::string>& arguments) {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) {
    return absl::InternalError("cannot make a pipe");
  }
  absl::StatusOr<cli::ChildProcess> child =
      cli::ChildProcess::Start({name, program, arguments, fds[1]});
  close(fds[1]);
  std::string line = child.ok() ? ReadLine(fds[0]) : "";
  close(fds[0]);
  SPECWIRE_RETURN_IF_ERROR(child.status());
  absl::string_view address = line;
  if (!absl::ConsumePrefix(&address, "listening on ")) {
    return absl::InternalError(
        absl::StrCat(name, " does not tell where it serves"));
  }
  // The constructor is private.
  return std::unique_ptr<Server>(
      new Server(*std::move(child), std::string(address)));
}

Server::~Server() {
  child_.Signal(SIGTERM);
  while (child_.running()) {
    child_.Reap();
    absl::SleepFor(absl::Milliseconds(5));
  }
}

Cluster::~Cluster() {
  // Nodes end faster while nobody keeps streams on them open.
  coordinator.reset();
}

absl::StatusOr<std::unique_ptr<Cluster>> StartCluster(
    const ClusterOptions& options) {
  auto cluster = std::make_unique<Cluster>();
  std::vector<std::string> flags = {
      "--listen", "127.0.0.1:0", "--log_level", "error"};
  flags.insert(flags.end(),
               options.coordinator_flags.begin(),
               options.coordinator_flags.end());
  SPECWIRE_ASSIGN_OR_RETURN(
      cluster->coordinator,
      Server::Start("coordinator", options.folder + "/coordinator", flags));
  const auto start = [&](const std::string& role,
                         int count,
                         const std::vector<std::string>& specific,
                         std::vector<std::unique_ptr<Server>>* nodes) {
    for (int i = 0; i < count; ++i) {
      std::vector<std::string> arguments = {"--coordinator",
                                            cluster->coordinator->address(),
                                            "--listen",
                                            "127.0.0.1:0",
                                            "--log_level",
                                            "error",
                                            "--allow_synthetic",
                                            "--name",
                                            absl::StrCat(role, "-", i)};
      arguments.insert(arguments.end(), specific.begin(), specific.end());
      absl::StatusOr<std::unique_ptr<Server>> node = Server::Start(
          role, absl::StrCat(options.folder, "/", role, "_node"), arguments);
      if (!node.ok()) return node.status();
      nodes->push_back(*std::move(node));
    }
    return absl::OkStatus();
  };
  SPECWIRE_RETURN_IF_ERROR(start("verifier",
                                 options.num_verifiers,
                                 options.verifier_flags,
                                 &cluster->verifiers));
  SPECWIRE_RETURN_IF_ERROR(start("draft",
                                 options.num_drafters,
                                 options.drafter_flags,
                                 &cluster->drafters));
  const auto stub =
      v1::ClusterService::NewStub(MakeChannel(cluster->coordinator->address()));
  const int wanted = options.num_verifiers + options.num_drafters;
  const absl::Time deadline = absl::Now() + kReadyTimeout;
  while (CountServing(stub.get()) < wanted) {
    if (absl::Now() > deadline) {
      return absl::DeadlineExceededError("not all nodes serve in time");
    }
    absl::SleepFor(absl::Milliseconds(50));
  }
  return cluster;
}

}  // namespace specwire::bench
