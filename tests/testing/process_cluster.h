// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "specwire/v1/cluster.grpc.pb.h"
#include "specwire/v1/generation.grpc.pb.h"
#include "tests/testing/child_process.h"
#include "tests/testing/generate_call.h"

namespace specwire {

// Specwire's programs as real processes, for tests in C++ that make hundreds of
// calls. Nodes are known by their names.
//
// Thread safety: Generate, Nodes and Metric from any thread, the rest from one.
// Lifetime: the destructor kills all processes.
class ProcessCluster {
 public:
  // `bin` is the folder of the programs; a coordinator is started at once.
  // Its verifiers keep a local drafter, or "none".
  explicit ProcessCluster(std::string bin, std::string local_drafter = "none");

  void AddVerifier(const std::string& name,
                   const std::string& model,
                   const std::vector<std::string>& flags = {});
  void AddDraftNode(const std::string& name,
                    const std::string& drafter,
                    const std::vector<std::string>& flags = {});
  // Any program that joins as a node does.
  void AddNode(const std::string& name, std::vector<std::string> command);
  // Sends the signal; SIGKILL and SIGTERM also wait for the end.
  void Signal(const std::string& name, int signal);
  // The node's next line on standard output.
  std::string ReadLine(const std::string& name);

  // False if other than these serve after a while.
  bool WaitServing(const std::set<std::string>& names);
  std::vector<v1::Node> Nodes();
  // The node by this name that has not left; empty if there is none.
  v1::Node Node(const std::string& name);

  // Calls and reads to the end.
  GenerateResult Generate(
      const v1::GenerateRequest& request,
      const std::function<bool(const v1::GenerateDelta&)>& on_delta = nullptr,
      absl::Duration timeout = absl::Seconds(60));
  // Of the coordinator's /metrics; see SumSeries.
  double Metric(const std::string& name, const std::string& label = "") const;
  // Resident memory of a node, or of "coordinator", in MiB.
  double ResidentMib(const std::string& name);
  int NumThreads(const std::string& name);

  const std::string& address() const { return address_; }
  v1::GenerationService::Stub* generation() { return generation_.get(); }

 private:
  const std::string bin_;
  const std::string local_drafter_;
  std::map<std::string, std::unique_ptr<ChildProcess>> programs_;
  std::string address_;
  std::string http_;
  std::unique_ptr<v1::GenerationService::Stub> generation_;
  std::unique_ptr<v1::ClusterService::Stub> cluster_;
};

// Makes a tiny model with tests/testing/make_tiny_model.py; `data` is
// tests/data of the source tree.
void MakeTinyModel(const std::string& data,
                   const std::string& output,
                   const std::vector<std::string>& flags);

}  // namespace specwire
