// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "specwire/v1/draft.grpc.pb.h"
#include "specwire/v1/generation.grpc.pb.h"
#include "specwire/v1/verifier.grpc.pb.h"

namespace specwire::bench {

// What gRPC alone costs where the coordinator stands: for each Generate call a
// stream to a verifier and one to a drafter, commits copied from the first to
// the second and to the client, proposals from the second to the first. Nothing
// is checked, counted or kept, and a node that is lost ends the call. Written
// on gRPC's callback API directly, without the project's stream helpers.
//
// Understands requests with token_ids, max_tokens and speculation in lock-step,
// which is how coordinator_bench measures rounds.
//
// Thread safety: any thread.
class Relay final : public v1::GenerationService::CallbackService {
 public:
  // HOST:PORT of nodes, at least one of each; calls take turns on them.
  Relay(const std::vector<std::string>& verifiers,
        const std::vector<std::string>& drafters);

  grpc::ServerWriteReactor<v1::GenerateResponse>* Generate(
      grpc::CallbackServerContext* context,
      const v1::GenerateRequest* request) override;

 private:
  std::vector<std::unique_ptr<v1::VerifierService::Stub>> verifiers_;
  std::vector<std::unique_ptr<v1::DraftService::Stub>> drafters_;
  std::atomic<size_t> num_calls_{0};
};

}  // namespace specwire::bench
