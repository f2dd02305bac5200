// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "common/drafting/drafter.h"
#include "common/metrics/metrics.h"
#include "common/rpc/stream_watch.h"
#include "draft_node/drafter_thread.h"
#include "specwire/v1/draft.grpc.pb.h"

namespace specwire::draft {

// DraftService: moves data between the wire and the drafter thread.
//
// Thread safety: any thread.
// Lifetime: the drafter thread must outlive it, and it the server.
class DraftServiceImpl final : public v1::DraftService::CallbackService {
 public:
  // `draft_token_ns`: as GetDrafterResponse says. `sent_bytes` counts Draft's
  // messages.
  DraftServiceImpl(const Drafter& drafter,
                   DrafterThread* thread,
                   int64_t draft_token_ns = 0,
                   Counter* sent_bytes = nullptr);

  grpc::ServerUnaryReactor* GetDrafter(
      grpc::CallbackServerContext* context,
      const v1::GetDrafterRequest* request,
      v1::GetDrafterResponse* response) override;
  grpc::ServerBidiReactor<v1::DraftRequest, v1::DraftResponse>* Draft(
      grpc::CallbackServerContext* context) override;

 private:
  // GetDrafter's answer.
  v1::GetDrafterResponse drafter_;
  DrafterThread* const thread_;
  Counter* const sent_bytes_;
  StreamWatch watch_;
};

}  // namespace specwire::draft
