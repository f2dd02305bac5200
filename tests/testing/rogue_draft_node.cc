// SPDX-License-Identifier: Apache-2.0

// A draft node that joins as any other and then breaks the rules, for tests of
// the coordinator and the verifier. Its first line on standard output is
// "listening on HOST:PORT"; every sequence that it is given adds a line "open".
//
//   poison     a proposal of one token, over and over, at every position
//   silent     takes everything and never answers
//   flood      sends empty proposals as fast as flow control takes them
//   repeat     the same with one proposal of tokens, over and over
//   far_ahead  proposals a thousand positions beyond the log
//   range      token ids outside the vocabulary
//   negative   negative positions
//   liar       claims to have seen commits that were never made
//   bad_q      distributions that do not hold the tokens

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "common/base/logging.h"
#include "common/base/random_id.h"
#include "common/base/signals.h"
#include "common/rpc/join_client.h"
#include "common/rpc/server.h"
#include "common/rpc/server_stream.h"
#include "specwire/v1/draft.grpc.pb.h"

namespace specwire {
namespace {

constexpr int32_t kPoison = 7;
constexpr int kFarAhead = 1000;

struct Flags {
  std::string mode;
  std::string name;
  std::string coordinator;
  std::string drafter;
};

using Sender = std::shared_ptr<ServerSender<v1::DraftResponse>>;

v1::DraftResponse Run(int64_t position, int64_t based_on, int length) {
  v1::DraftResponse response;
  response.set_position(static_cast<int32_t>(position));
  response.set_based_on(static_cast<int32_t>(based_on));
  for (int i = 0; i < length; ++i) response.add_tokens(kPoison);
  return response;
}

// What is said, given the length of the log so far.
v1::DraftResponse Answer(const std::string& mode, int64_t length, int run) {
  if (mode == "far_ahead") return Run(length + kFarAhead, length, run);
  if (mode == "negative") return Run(-length, length, run);
  if (mode == "liar") return Run(length + kFarAhead, length + kFarAhead, run);
  v1::DraftResponse response = Run(length, length, run);
  if (mode == "range") response.set_tokens(0, 1 << 30);
  for (int i = 0; mode == "bad_q" && i < run; ++i) {
    v1::SparseDistribution* const q = response.add_q();
    q->add_token_ids(kPoison + 1);
    q->add_probabilities(1);
  }
  return response;
}

// Answers on the thread that brings the message; only a flood has its own.
class RogueStream final : public StreamHandler<v1::DraftRequest> {
 public:
  RogueStream(std::string mode, Sender sender)
      : mode_(std::move(mode)),
        floods_(mode_ == "flood" || mode_ == "repeat"),
        sender_(std::move(sender)) {}

  void OnMessage(v1::DraftRequest request) override {
    if (request.has_open()) {
      length_ = request.open().tokens_size();
      run_length_ = request.open().run_length();
      if (floods_) flood_ = std::thread([this] { Flood(); });
    } else if (request.has_commit()) {
      length_ = request.commit().position() + request.commit().tokens_size();
    }
    if (mode_ == "silent" || floods_) return;
    sender_->Send(Answer(mode_, length_, run_length_));
  }

  void OnClosed(absl::Status /*status*/) override {
    closed_ = true;
    if (flood_.joinable()) flood_.join();
  }

 private:
  void Flood() {
    while (!closed_) {
      // The queue's limit would end the stream.
      if (sender_->num_queued() > 512) continue;
      sender_->Send(Run(length_, length_, mode_ == "repeat" ? 1 : 0));
    }
  }

  const std::string mode_;
  const bool floods_;
  const Sender sender_;
  std::atomic<int64_t> length_ = 0;
  int run_length_ = 1;
  std::atomic<bool> closed_ = false;
  std::thread flood_;
};

class RogueService final : public v1::DraftService::CallbackService {
 public:
  explicit RogueService(Flags flags) : flags_(std::move(flags)) {}

  grpc::ServerUnaryReactor* GetDrafter(
      grpc::CallbackServerContext* context,
      const v1::GetDrafterRequest* /*request*/,
      v1::GetDrafterResponse* response) override {
    response->set_drafter(flags_.drafter);
    response->set_max_num_sequences(64);
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

  grpc::ServerBidiReactor<v1::DraftRequest, v1::DraftResponse>* Draft(
      grpc::CallbackServerContext* context) override {
    std::cout << "open" << std::endl;
    return StartServerStream<v1::DraftRequest, v1::DraftResponse>(
        context, StreamLimits(), [this](Sender sender) {
          return std::make_shared<RogueStream>(flags_.mode, std::move(sender));
        });
  }

 private:
  const Flags flags_;
};

int Main(int argc, char** argv) {
  CLI::App app("A draft node that breaks the rules.");
  Flags flags;
  app.add_option("--mode", flags.mode)
      ->required()
      ->check(CLI::IsMember({"poison",
                             "silent",
                             "flood",
                             "repeat",
                             "far_ahead",
                             "range",
                             "negative",
                             "liar",
                             "bad_q"}));
  app.add_option("--name", flags.name)->required();
  app.add_option("--coordinator", flags.coordinator)->required();
  app.add_option("--drafter", flags.drafter, "what it says it is")->required();
  CLI11_PARSE(app, argc, argv);

  // Standard output is for the lines that tests read.
  InitLogging("rogue_draft_node", LogLevel::kWarning);
  RogueService service(flags);
  const auto server = RpcServer::Start(RpcServerOptions(), {&service});
  if (!server.ok()) {
    LogLine(LogLevel::kError, server.status().ToString());
    return 1;
  }
  std::cout << "listening on " << (*server)->address() << std::endl;
  JoinClientOptions options;
  options.coordinators = {flags.coordinator};
  options.registration.set_name(flags.name);
  options.registration.set_role(v1::NODE_ROLE_DRAFT);
  options.registration.set_address((*server)->address());
  options.registration.set_incarnation_id(RandomHexId());
  options.registration.set_pid(getpid());
  JoinClient join(
      options, [] { return v1::NodeLoad(); }, nullptr);
  WaitForShutdownSignal();
  join.Stop();
  (*server)->Shutdown(absl::ZeroDuration()).IgnoreError();
  return 0;
}

}  // namespace
}  // namespace specwire

int main(int argc, char** argv) {
  specwire::BlockShutdownSignals();
  return specwire::Main(argc, argv);
}
