// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "common/sampling/params.h"
#include "tests/exactness/toy_engine.h"
#include "tests/exactness/toy_serving.h"

namespace specwire {

// The distribution of the next token after `tokens`, prompt and completion,
// written down plainly from the definition of the pipeline: none of its code is
// used. One probability for each id.
std::vector<double> ExactDistribution(const ToyEngine& target,
                                      const ServingOptions& options,
                                      absl::Span<const int32_t> tokens);

// Total variation distance.
double Distance(const std::vector<double>& p, const std::vector<double>& q);

// Probability that a standard normal variable exceeds z is `level`.
double NormalQuantile(double level);

// Pearson's chi-square over its limit for one of `num_tests` tests that
// together have level .001; above 1 the counts are not from `probabilities`.
// Cells in which fewer than 8 are expected count as one. Infinite if something
// impossible was seen.
double ChiSquareExcess(const std::vector<double>& counts,
                       const std::vector<double>& probabilities,
                       int num_tests);

// What texts look like: for each position the token, for each pair of
// neighbours both, and the first three tokens together.
class TextTest {
 public:
  // Tests that one setting needs.
  static int NumTests(int num_tokens) { return 2 * num_tokens; }

  // `num_tests` in all settings together.
  TextTest(const ToyEngine& target,
           const ServingOptions& options,
           int num_tests);

  void Count(absl::Span<const int32_t> text);
  // The worst of the tests; `where` receives its name.
  double Excess(std::string* where) const;

 private:
  struct Table {
    std::string name;
    size_t first = 0;
    size_t size = 0;
    std::vector<double> probabilities;
    std::vector<double> counts;
  };

  size_t Cell(const Table& table, absl::Span<const int32_t> text) const;
  void Walk(const ToyEngine& target,
            const ServingOptions& options,
            double probability,
            std::vector<int32_t>* tokens);

  const size_t prompt_length_;
  const size_t num_tokens_;
  const size_t vocab_size_;
  const int num_tests_;
  std::vector<Table> tables_;
};

}  // namespace specwire
