// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/bench/dataset.h"
#include "cli/bench/figures.h"
#include "cli/bench/load.h"
#include "cli/bench/options.h"
#include "specwire/v1/generation.pb.h"

namespace specwire::cli::bench {

// Makes the requests of a run: the first turn of a question as a conversation,
// with a seed of its own, and with a cache salt that no other request has. So
// no request finds its prompt in a verifier's prefix cache, and the mode that
// runs second has no advantage; under share_prefixes the requests of one mode
// share a salt.
//
// Thread safety: one thread. Lifetime: `questions` must outlive it.
class RequestMaker {
 public:
  // INVALID_ARGUMENT if a flag is malformed.
  static absl::StatusOr<RequestMaker> Create(
      const Options& options, const std::vector<Question>* questions);

  v1::GenerateRequest Make(const Record& record);

 private:
  RequestMaker() = default;

  v1::GenerateRequest pattern_;
  const std::vector<Question>* questions_ = nullptr;
  int64_t seed_ = 0;
  bool share_prefixes_ = false;
  // Of this run alone.
  std::string salt_;
  int64_t num_made_ = 0;
};

// Runs all blocks. REQUIRES: CheckOptions() is OK; SIGINT and SIGTERM are
// blocked and nobody else takes them: they end the run, a second one the
// program.
RunResult RunBlocks(const Options& options,
                    const std::vector<Question>& questions,
                    const std::vector<LoadGenerator::Stub*>& stubs,
                    RequestMaker maker);

}  // namespace specwire::cli::bench
