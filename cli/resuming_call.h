// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "cli/client.h"
#include "cli/generate_call.h"
#include "grpcpp/support/status.h"
#include "specwire/v1/generation.pb.h"

namespace specwire::cli {

// The request that goes on with a reply behind `token_ids`, its completion
// tokens so far.
v1::GenerateRequest MakeResumeRequest(const v1::GenerateRequest& original,
                                      const v1::GenerateStarted& started,
                                      const std::vector<int32_t>& token_ids);

// A Generate call that outlives its coordinator: when the connection is lost,
// it goes on at the next address that answers (the same one, restarted, if
// there is no other), behind the tokens that have arrived. A coordinator that
// is alive and reports an error has the last word, as does one of another
// model. A request for several completions is not resumed.
//
// Thread safety: one thread.
class ResumingCall {
 public:
  using OnResponse = std::function<bool(const v1::GenerateResponse&)>;

  // `client` is connected to one of `addresses`.
  ResumingCall(std::vector<std::string> addresses,
               std::unique_ptr<Client> client,
               v1::GenerateRequest request);

  // Hands over each message as CallGenerate does, as if all came from one
  // coordinator: one `started`, deltas without gap, one `finished`.
  // REQUIRES: called once.
  GenerateOutcome Run(const OnResponse& on_response);

  // How often another call went on with the text.
  int num_resumes() const { return num_resumes_; }

 private:
  GenerateOutcome Attempt(const OnResponse& on_response);
  bool Take(const v1::GenerateResponse& response,
            const OnResponse& on_response);
  // A message about the prompt: hands over what has not been.
  bool TakePrompt(v1::GenerateResponse response, const OnResponse& on_response);
  // The call failed so that it may go on elsewhere.
  bool MayGoOn(const GenerateOutcome& outcome);
  // Connects to the next address that answers. False if there is no time left,
  // or the user interrupts.
  bool Reconnect(bool* interrupted);
  GenerateOutcome GiveUp() const;

  const std::vector<std::string> addresses_;
  // Of the first connection, for the next ones.
  const RpcChannelOptions channel_options_;
  const v1::GenerateRequest original_;
  std::unique_ptr<Client> client_;
  // Index of the address to try next.
  size_t next_ = 0;

  std::optional<v1::GenerateStarted> started_;
  std::vector<int32_t> token_ids_;
  // The prompt's text has come, and log-probabilities of so many positions.
  bool echoed_ = false;
  int num_prompt_logprobs_ = 0;
  // What a coordinator said that does not fit.
  grpc::Status fault_;
  int num_attempts_ = 0;
  int num_resumes_ = 0;
  // The present attempt was begun by the coordinator.
  bool begun_ = false;

  // Since the latest token: the first failure, connections lost, pauses made,
  // and until when to try.
  grpc::Status loss_;
  int num_losses_ = 0;
  int num_pauses_ = 0;
  absl::Time deadline_ = absl::InfiniteFuture();
};

}  // namespace specwire::cli
