// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "specwire/v1/generation.pb.h"
#include "tests/faults/cell.h"
#include "tests/faults/client.h"
#include "tests/faults/pause_watch.h"

namespace specwire::faults {

// Where the programs are.
struct Programs {
  // Folder of the programs under test.
  std::string bin;
  // This program, which is a client too.
  std::string self;
  // Must outlive what uses it.
  const PauseWatch* pauses = nullptr;
};

// What an episode has shown.
struct Verdict {
  // Tokens that differ from plain decoding, are missing, or came twice.
  int wrong = 0;
  int lost = 0;
  int doubled = 0;
  // Calls that did not end in time.
  int hung = 0;
  // What nodes still held when all calls had ended.
  int64_t sequences = 0;
  int64_t blocks = 0;
  // Everything that should not be, the above included.
  std::vector<std::string> problems;
  absl::Duration took;

  bool ok() const { return problems.empty(); }
};

// Runs a cell: clients stream, the fault strikes in its phase, everything is
// healed, and then every client's log is compared with plain decoding, and the
// cluster must be whole, idle and in service. A try that tells nothing, because
// the fault came too late or the machine stood still, is followed by another.
Verdict RunCell(const Cell& cell, uint64_t seed, const Programs& programs);

// A request of the given length and number, and what a client must get.
v1::GenerateRequest MakeRequest(uint64_t number,
                                int prompt_length,
                                int max_tokens);
std::vector<int32_t> PlainTokens(const v1::GenerateRequest& request);

// Compares a log with the request's plain text; `whole` unless the client was
// struck itself.
void CheckLog(const v1::GenerateRequest& request,
              const ClientLog& log,
              bool whole,
              const std::string& name,
              Verdict* verdict);

}  // namespace specwire::faults
