// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>

namespace specwire::verifier {

// How likely one sequence's draft tokens are to be right: a running estimate,
// for each place in a run, of the chance that a draft token is accepted given
// that all before it were. Pure code.
//
// It learns from verified rows and, free of charge, from draft tokens that were
// compared with tokens committed without them. The latter make probing
// needless: where draft tokens are no longer worth a row, the next one is still
// compared with what plain decoding yields, so a drafter that becomes good is
// noticed. A fresh sequence counts as promising, a few wrong tokens correct
// that, and what was seen long ago fades.
//
// Thread safety: one thread at a time.
class Survival {
 public:
  // Of `num_proposed` draft tokens in a pass the first `num_accepted` were
  // right; the one behind them, if any, was wrong, and the rest tells nothing.
  void OnVerified(int num_proposed, int num_accepted);
  // A draft token at `place` of its run, all before it being right, was found
  // equal to the committed one or not.
  void OnCompared(int place, bool equal);

  // The chance that a draft token at `place`, >= 0, is accepted if all before
  // it are.
  double Acceptance(int place) const;

 private:
  // Places from the last one on share an estimate.
  static constexpr int kPlaces = 8;
  struct Counts {
    double seen = 0;
    double right = 0;
    void Fade(double factor) {
      seen *= factor;
      right *= factor;
    }
    void Add(bool is_right) {
      seen += 1;
      right += is_right ? 1 : 0;
    }
  };

  // Whatever the place.
  double Overall() const;

  std::array<Counts, kPlaces> places_ = {};
  Counts all_;
};

}  // namespace specwire::verifier
