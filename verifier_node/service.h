// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/metrics/metrics.h"
#include "common/model/engine.h"
#include "common/rpc/stream_watch.h"
#include "specwire/v1/verifier.grpc.pb.h"
#include "verifier_node/engine_thread.h"
#include "verifier_node/step_costs.h"

namespace specwire::verifier {

// VerifierService: moves data between the wire and the engine thread.
//
// Thread safety: any thread.
// Lifetime: the engine thread must outlive it, and it the server.
class VerifierServiceImpl final : public v1::VerifierService::CallbackService {
 public:
  // INVALID_ARGUMENT if the engine's tokenizer is not one that we implement.
  // `sent_bytes` counts Decode's messages.
  static absl::StatusOr<std::unique_ptr<VerifierServiceImpl>> Create(
      const Engine& engine,
      absl::Span<const StepCost> step_costs,
      EngineThread* thread,
      Counter* sent_bytes = nullptr);

  grpc::ServerWriteReactor<v1::GetModelResponse>* GetModel(
      grpc::CallbackServerContext* context,
      const v1::GetModelRequest* request) override;
  grpc::ServerBidiReactor<v1::DecodeRequest, v1::DecodeResponse>* Decode(
      grpc::CallbackServerContext* context) override;
  grpc::ServerWriteReactor<v1::ScoreTokensResponse>* ScoreTokens(
      grpc::CallbackServerContext* context,
      const v1::ScoreTokensRequest* request) override;

  const std::string& vocabulary_fingerprint() const {
    return model_messages_.front().model().vocabulary_fingerprint();
  }

 private:
  VerifierServiceImpl(const ModelInfo& model,
                      std::vector<v1::GetModelResponse> model_messages,
                      EngineThread* thread,
                      Counter* sent_bytes);

  const ModelInfo model_;
  // GetModel's answer.
  const std::vector<v1::GetModelResponse> model_messages_;
  EngineThread* const thread_;
  Counter* const sent_bytes_;
  // Of Decode streams.
  StreamWatch watch_;
};

}  // namespace specwire::verifier
