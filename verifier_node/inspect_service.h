// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "common/model/engine.h"
#include "common/text/tokenizer.h"
#include "specwire/v1/inspect.grpc.pb.h"
#include "verifier_node/engine_thread.h"

namespace specwire::verifier {

// InspectService of a verifier: checks requests, and has the engine thread find
// out what they ask for.
//
// Thread safety: any thread.
// Lifetime: the engine thread must outlive it, and it the server. Calls end
// when the engine thread has stopped.
class InspectServiceImpl final : public v1::InspectService::CallbackService {
 public:
  // INVALID_ARGUMENT if the engine's tokenizer is not one that we implement.
  static absl::StatusOr<std::unique_ptr<InspectServiceImpl>> Create(
      const Engine& engine, EngineThread* thread);

  grpc::ServerUnaryReactor* InspectAttention(
      grpc::CallbackServerContext* context,
      const v1::InspectAttentionRequest* request,
      v1::InspectAttentionResponse* response) override;
  grpc::ServerUnaryReactor* InspectNextToken(
      grpc::CallbackServerContext* context,
      const v1::InspectNextTokenRequest* request,
      v1::InspectNextTokenResponse* response) override;
  grpc::ServerUnaryReactor* InspectCache(
      grpc::CallbackServerContext* context,
      const v1::InspectCacheRequest* request,
      v1::InspectCacheResponse* response) override;

 private:
  InspectServiceImpl(const ModelInfo& model,
                     std::unique_ptr<Tokenizer> tokenizer,
                     EngineThread* thread);

  const ModelInfo model_;
  const std::unique_ptr<const Tokenizer> tokenizer_;
  EngineThread* const thread_;
};

}  // namespace specwire::verifier
