// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/process_cluster.h"

#include <signal.h>

#include <cstdlib>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "common/base/logging.h"
#include "common/rpc/channel.h"
#include "httplib.h"

namespace specwire {
namespace {

constexpr char kCoordinator[] = "coordinator";

// A cluster that does not start is no test: ends the program.
[[noreturn]] void Fail(const std::string& what) {
  LogLine(LogLevel::kError, what);
  std::abort();
}

std::string After(const std::string& prefix, ChildProcess* program) {
  const std::string line = program->ReadLine();
  absl::string_view rest = line;
  if (!absl::ConsumePrefix(&rest, prefix)) {
    program->Signal(SIGKILL);
    program->Wait();
    Fail(absl::StrCat(
        "no \"", prefix, "\" but \"", line, "\": ", program->errors()));
  }
  return std::string(rest);
}

}  // namespace

ProcessCluster::ProcessCluster(std::string bin, std::string local_drafter)
    : bin_(std::move(bin)), local_drafter_(std::move(local_drafter)) {
  auto program = std::make_unique<ChildProcess>(
      std::vector<std::string>{absl::StrCat(bin_, "/coordinator"),
                               "--listen=127.0.0.1:0",
                               "--http=127.0.0.1:0",
                               "--log_level=warning"});
  address_ = After("listening on ", program.get());
  http_ = After("http on ", program.get());
  programs_[kCoordinator] = std::move(program);
  const auto channel = MakeChannel(address_);
  generation_ = v1::GenerationService::NewStub(channel);
  cluster_ = v1::ClusterService::NewStub(channel);
}

void ProcessCluster::AddNode(const std::string& name,
                             std::vector<std::string> command) {
  command.insert(command.end(),
                 {absl::StrCat("--name=", name),
                  absl::StrCat("--coordinator=", address_)});
  programs_[name] = std::make_unique<ChildProcess>(command);
}

void ProcessCluster::AddVerifier(const std::string& name,
                                 const std::string& model,
                                 const std::vector<std::string>& flags) {
  std::vector<std::string> command = {
      absl::StrCat(bin_, "/verifier_node"),
      absl::StrCat("--model=", model),
      absl::StrCat("--local_drafter=", local_drafter_),
      "--threads=1",
      "--log_level=warning"};
  command.insert(command.end(), flags.begin(), flags.end());
  AddNode(name, std::move(command));
}

void ProcessCluster::AddDraftNode(const std::string& name,
                                  const std::string& drafter,
                                  const std::vector<std::string>& flags) {
  std::vector<std::string> command = {absl::StrCat(bin_, "/draft_node"),
                                      absl::StrCat("--drafter=", drafter),
                                      "--threads=1",
                                      "--log_level=warning"};
  command.insert(command.end(), flags.begin(), flags.end());
  AddNode(name, std::move(command));
}

void ProcessCluster::Signal(const std::string& name, int signal) {
  ChildProcess& program = *programs_.at(name);
  program.Signal(signal);
  if (signal != SIGKILL && signal != SIGTERM) return;
  const int code = program.Wait();
  if (signal == SIGTERM && code != 0) {
    Fail(absl::StrCat(name, " ended with ", code, ": ", program.errors()));
  }
  programs_.erase(name);
}

std::string ProcessCluster::ReadLine(const std::string& name) {
  return programs_.at(name)->ReadLine();
}

bool ProcessCluster::WaitServing(const std::set<std::string>& names) {
  return Eventually(
      [&] {
        std::set<std::string> serving;
        for (const v1::Node& node : Nodes()) {
          if (node.state() == v1::NODE_STATE_SERVING) {
            serving.insert(node.registration().name());
          }
        }
        return serving == names;
      },
      absl::Seconds(60));
}

std::vector<v1::Node> ProcessCluster::Nodes() {
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(20)));
  v1::ListNodesResponse response;
  const grpc::Status status =
      cluster_->ListNodes(&context, v1::ListNodesRequest(), &response);
  if (!status.ok()) Fail(absl::StrCat("ListNodes: ", status.error_message()));
  return {response.nodes().begin(), response.nodes().end()};
}

v1::Node ProcessCluster::Node(const std::string& name) {
  for (const v1::Node& node : Nodes()) {
    if (node.registration().name() == name &&
        node.state() != v1::NODE_STATE_GONE) {
      return node;
    }
  }
  return v1::Node();
}

GenerateResult ProcessCluster::Generate(
    const v1::GenerateRequest& request,
    const std::function<bool(const v1::GenerateDelta&)>& on_delta,
    absl::Duration timeout) {
  return CallGenerate(generation_.get(), request, on_delta, timeout);
}

double ProcessCluster::Metric(const std::string& name,
                              const std::string& label) const {
  httplib::Client client("http://" + http_);
  const httplib::Result page = client.Get("/metrics");
  if (!page) Fail("no answer from /metrics");
  return SumSeries(page->body, name, label);
}

double ProcessCluster::ResidentMib(const std::string& name) {
  std::ifstream status(
      absl::StrCat("/proc/", programs_.at(name)->pid(), "/status"));
  std::string word;
  while (status >> word) {
    double kib = 0;
    if (word == "VmRSS:" && status >> kib) return kib / 1024;
  }
  Fail(absl::StrCat("cannot read the memory of ", name));
}

int ProcessCluster::NumThreads(const std::string& name) {
  std::ifstream status(
      absl::StrCat("/proc/", programs_.at(name)->pid(), "/status"));
  std::string word;
  while (status >> word) {
    int count = 0;
    if (word == "Threads:" && status >> count) return count;
  }
  Fail(absl::StrCat("cannot count the threads of ", name));
}

void MakeTinyModel(const std::string& data,
                   const std::string& output,
                   const std::vector<std::string>& flags) {
  std::vector<std::string> command = {
      "/usr/bin/env",
      "python3",
      absl::StrCat(data, "/../testing/make_tiny_model.py"),
      "--output",
      output};
  command.insert(command.end(), flags.begin(), flags.end());
  ChildProcess program(command);
  if (program.Wait() != 0) Fail(program.errors());
}

}  // namespace specwire
