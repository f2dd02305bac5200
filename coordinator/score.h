// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/sampling/perplexity.h"
#include "coordinator/choice.h"
#include "coordinator/model_catalog.h"
#include "grpcpp/server_context.h"
#include "specwire/v1/generation.pb.h"

namespace specwire::coordinator {

// Bounds of one Score call: tokens, log-probabilities (candidates of all
// positions and the tokens' own), tokens that all windows compute together, and
// bytes of tokens that are reported.
inline constexpr int kMaxScoreTokens = 1 << 18;
inline constexpr int64_t kMaxScoreLogprobs = 1 << 19;
inline constexpr int64_t kMaxScoreWork = 1 << 22;
inline constexpr size_t kMaxScoreTokenBytes = size_t{1} << 20;

// A Score request that has been checked.
struct CheckedScore {
  std::shared_ptr<const CatalogModel> model;
  std::vector<int32_t> tokens;
  // Not empty.
  std::vector<ScoreWindow> windows;
  int top = 0;
  bool token_bytes = false;
  // See CheckedRequest.
  std::string user;
};

// INVALID_ARGUMENT naming the field and the limit. Tokenizes, which may take
// seconds.
absl::StatusOr<CheckedScore> BuildScore(
    const v1::ScoreRequest& request, std::shared_ptr<const CatalogModel> model);

// Has a verifier score all windows, one after the other, and fills in
// `response`. Blocks until that is done, the caller has gone or its deadline
// has passed. A verifier that is lost is replaced, at most twice.
absl::Status RunScore(const CheckedScore& score,
                      const SessionEnvironment& environment,
                      const grpc::CallbackServerContext& context,
                      v1::ScoreResponse* response);

}  // namespace specwire::coordinator
