// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "bench/simulate/costs.h"
#include "bench/simulate/node_thread.h"
#include "bench/simulate/trace.h"
#include "bench/simulate/trace_drafter.h"
#include "bench/simulate/virtual_time.h"
#include "common/drafting/draft_path.h"
#include "common/drafting/messages.h"

namespace specwire::simulate {

// A draft node in virtual time: one thread, DraftPath for each stream,
// proposals by trace. As on a real one a pass makes one token of a model for
// every stream that wants one, or a lookup's whole run, and messages are taken
// in between passes.
//
// Thread safety: one thread at a time.
class DraftSide {
 public:
  // `plain`: a plain step of the target, the unit of the costs; passes of a
  // model for several streams cost more by `batch`.
  DraftSide(VirtualTime* time,
            absl::Duration plain,
            const DraftCosts& costs,
            const VerifyCosts& batch)
      : time_(time),
        plain_(plain),
        costs_(costs),
        batch_(batch),
        thread_([this] { Pump(); }) {}

  using Send = std::function<void(const Proposal&)>;
  // A new stream. `trace` outlives it.
  void Open(int64_t stream, DraftPath path, const Trace* trace, Send send);
  void Commit(int64_t stream, int position, std::vector<int32_t> tokens);
  void Rewind(int64_t stream, int position);
  void Tune(int64_t stream,
            std::optional<int> run_length,
            std::optional<int> window,
            std::optional<float> min_survival);
  void Close(int64_t stream);

  // See NodeThread.
  const std::string& failure() const { return thread_.failure(); }

 private:
  struct Stream {
    DraftPath path;
    TraceDrafter drafter;
    Send send;
    bool has_work = true;
    // What is being made, from where on, and behind which token; its first
    // `made` tokens are there.
    std::optional<TraceDrafter::Result> making = std::nullopt;
    size_t base = 0;
    int32_t last = 0;
    int made = 0;
  };

  // Hands out what can be sent; the limits of the next run, if there is to be
  // one.
  std::optional<DraftLimits> SendReady(Stream* stream);
  // Goes on with what the stream was making if that still holds, else begins
  // anew.
  void Continue(const DraftLimits& limits, Stream* stream);
  void Pump();
  void EndPass(const std::vector<int64_t>& streams);

  VirtualTime* const time_;
  const absl::Duration plain_;
  const DraftCosts costs_;
  const VerifyCosts batch_;
  std::map<int64_t, Stream> streams_;
  NodeThread thread_;
};

}  // namespace specwire::simulate
