// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "bench/simulate/costs.h"
#include "bench/simulate/node_thread.h"
#include "bench/simulate/trace.h"
#include "bench/simulate/trace_drafter.h"
#include "bench/simulate/virtual_time.h"
#include "common/drafting/messages.h"
#include "coordinator/request_machine.h"
#include "verifier_node/batch_planner.h"
#include "verifier_node/pass_cost.h"
#include "verifier_node/verify_sequence.h"

namespace specwire::simulate {

// A verifier node in virtual time: VerifySequence for each stream, the real
// planner over them, and passes whose time their rows decide. It computes no
// model: the target's text is RightToken everywhere. A prompt takes no time,
// and memory is without end.
//
// Thread safety: one thread at a time.
class VerifySide {
 public:
  // `plain`: a pass of one row, the unit of the costs.
  VerifySide(VirtualTime* time, absl::Duration plain, const VerifyCosts& costs);

  using Send =
      std::function<void(const Commit&, const coordinator::PassTimes&)>;
  // `local`: what it looks up by itself, if the parameters want that; null:
  // nothing. Outlives the stream.
  void Open(int64_t stream,
            verifier::VerifyParams params,
            const Trace* local,
            Send send);
  void Propose(int64_t stream, Proposal proposal);
  void Tune(int64_t stream, verifier::VerifyTune tune);
  void Close(int64_t stream);

  // See NodeThread.
  const std::string& failure() const { return thread_.failure(); }

 private:
  struct Stream {
    verifier::VerifySequence sequence;
    Send send;
    std::optional<TraceDrafter> local;
    // The end of its latest step.
    absl::Time last_end;
    int64_t last_pass = 0;
    // Of the pass under way.
    int draft_rows = 0;
  };

  // Looks up the local draft for the next step.
  static void LookUp(Stream* stream);
  // The streams of the next pass, with their rows set; if there is none yet,
  // `wake` is when there may be.
  std::vector<int64_t> Plan(absl::Time* wake);
  void Pump();
  void EndPass(const std::vector<int64_t>& members,
               absl::Time start,
               int num_rows);

  VirtualTime* const time_;
  const absl::Duration plain_;
  const VerifyCosts costs_;
  verifier::PassCost pass_cost_;
  std::map<int64_t, Stream> streams_;
  int64_t num_passes_ = 0;
  // A timer that was set for an earlier time is void.
  int64_t timer_ = 0;
  NodeThread thread_;
};

}  // namespace specwire::simulate
