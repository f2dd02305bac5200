// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/bench/dataset.h"
#include "cli/bench/figures.h"
#include "cli/bench/options.h"
#include "cli/bench/record.h"
#include "cli/bench/statistics.h"
#include "nlohmann/json.hpp"

namespace specwire::cli::bench {

// A ratio with its interval; null if there is none.
nlohmann::ordered_json PooledJson(const std::optional<PooledRatio>& ratio);
// "1.30 (1.21 to 1.40)"; "-" if there is none.
std::string PooledText(const std::optional<PooledRatio>& ratio);

// What `bench --json` prints.
nlohmann::ordered_json ReportJson(const Report& report,
                                  const RunResult& run,
                                  const Options& options,
                                  const std::vector<Question>& questions);

// The same in tables for people.
std::string ReportText(const Report& report,
                       const RunResult& run,
                       const Options& options,
                       const std::vector<Question>& questions);

// One line of the file of --raw: everything about one request.
nlohmann::ordered_json RecordJson(const Record& record,
                                  const Question& question);

}  // namespace specwire::cli::bench
