// SPDX-License-Identifier: Apache-2.0

// SpeculationControl against the best settings in hindsight, in virtual time: a
// verifier, a drafter with a given law of acceptance, and the time that
// messages take between them.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "coordinator/speculation_control.h"

namespace specwire::coordinator {
namespace {

// Times are in plain passes, of which one is so many seconds.
constexpr double kPlain = 0.0025;
constexpr double kRow = 0.075;
constexpr int kTokens = 10000;
// From the verifier to the coordinator and back.
constexpr double kRoundTrip = 0.12;

// What a drafter that is asked at some place of a text has to propose: nothing,
// or a path that is right for so many tokens and goes on beyond them for ever.
struct Ask {
  bool proposes = false;
  int right = 0;
  // Its own estimate for each token; 0: it makes none.
  double estimate = 0;
};
using Text = std::vector<Ask>;

struct Drafter {
  // From the end of a pass until its draft is there, beside `token` for each
  // draft token; infinite: it is dead.
  double answer = 0.15;
  double token = 0;
};

// Spells begin with some chance at a token outside and have some number of
// tokens on average; inside, a draft token is right with some chance, up to the
// end of the spell. Outside, a drafter proposes with some chance what is right
// with another.
struct Law {
  double spell_begins = 0;
  double spell_tokens = 1;
  double spell_right = 1;
  double proposes = 1;
  double right = 0;
  bool estimates = false;
};

Text Draw(const Law& law, int num_tokens, uint32_t seed) {
  std::mt19937 engine(seed);
  std::mt19937* const random = &engine;
  std::uniform_real_distribution<double> uniform(0, 1);
  Text text;
  int left = 0;
  while (static_cast<int>(text.size()) < num_tokens) {
    if (left == 0 && uniform(*random) < law.spell_begins) {
      while (uniform(*random) > 1 / law.spell_tokens) ++left;
    }
    Ask ask;
    if (left > 0) {
      ask = {true, 0, law.spell_right * (1 - 1 / law.spell_tokens)};
      while (ask.right < left && uniform(*random) < law.spell_right) {
        ++ask.right;
      }
      --left;
    } else if (uniform(*random) < law.proposes) {
      ask = {true, 0, law.right};
      while (uniform(*random) < law.right) ++ask.right;
    }
    if (!law.estimates) ask.estimate = 0;
    text.push_back(ask);
  }
  return text;
}

// One request. A control decides, or else the settings are fixed.
class Play {
 public:
  Play(const Text& text, const Drafter& drafter, SpeculationControl* control)
      : text_(text), drafter_(drafter), control_(control) {}
  Play(const Text& text, const Drafter& drafter, const ChosenSettings& fixed)
      : text_(text), drafter_(drafter), fixed_(fixed) {}

  // Time for all but the last few tokens of the text, against plain decoding.
  double Speedup() {
    while (at_ + 200 < text_.size()) Round();
    return static_cast<double>(at_) / time_;
  }
  // From there on.
  double SpeedupFrom(size_t from) {
    while (at_ < from) Round();
    const double before = time_;
    const size_t began = at_;
    while (at_ + 200 < text_.size()) Round();
    return static_cast<double>(at_ - began) / (time_ - before);
  }
  void RunTo(size_t to) {
    while (at_ < to) Round();
  }
  size_t at() const { return at_; }
  double time() const { return time_; }
  // What control expected, averaged over passes.
  double predicted() const { return predicted_ / num_passes_; }
  // Patiences that a verifier was told.
  int num_tunes() const { return num_tunes_; }
  double longest_patience() const { return longest_patience_; }

 private:
  ChosenSettings Settings() const {
    return control_ == nullptr ? fixed_ : control_->settings();
  }
  bool Drafting() const {
    return control_ == nullptr ? fixed_.run_length > 0 : control_->drafting();
  }

  // How many tokens of a path the drafter proposes in one run.
  static int Size(const Ask& ask, const ChosenSettings& settings) {
    if (!ask.proposes) return 0;
    if (ask.estimate <= 0) return settings.run_length;
    int size = 0;
    double survival = ask.estimate;
    while (size < settings.run_length && survival >= settings.min_survival) {
      ++size;
      survival *= ask.estimate;
    }
    return size;
  }

  // A pass, then its commit: `rows` draft tokens of which `right` are right.
  void Pass(int rows,
            double wait,
            double patience,
            bool answered,
            int right,
            int compared,
            bool more) {
    const double verify = 1 + kRow * rows;
    time_ += verify;
    const int tokens = std::min(right, rows) + 1;
    at_ += static_cast<size_t>(tokens);
    if (control_ == nullptr) return;
    predicted_ += control_->predicted_speedup();
    ++num_passes_;
    control_->OnPass({.num_proposed = rows,
                      .verify = absl::Seconds(verify * kPlain),
                      .wait = absl::Seconds(wait * kPlain),
                      .patience = absl::Seconds(patience * kPlain),
                      .answered = answered});
    if (compared > 0) {
      control_->OnCompared(std::min(right, compared), compared, more);
    }
    control_->OnCommitted(tokens);
  }

  void Answer(int size, double estimate, int lag) {
    if (control_ == nullptr) return;
    control_->OnAnswer(
        size, static_cast<float>(size > 0 ? std::pow(estimate, size) : 0), lag);
  }

  // How long the verifier waits: what it was told before it committed, unless
  // it is told less while it waits.
  double Patience() {
    const double wanted =
        Drafting() ? absl::ToDoubleSeconds(Settings().patience) / kPlain : 0;
    const double patience = std::min(patience_, std::max(wanted, kRoundTrip));
    if (wanted != patience_) ++num_tunes_;
    patience_ = wanted;
    longest_patience_ = std::max(longest_patience_, patience);
    return patience;
  }

  // From a commit that leaves nothing to verify to the next such.
  void Round() {
    const double patience = Patience();
    if (!Drafting()) {
      Pass(0, 0, 0, false, 0, 0, false);
      return;
    }
    const size_t began = at_;
    const Ask ask = text_[at_];
    const ChosenSettings settings = Settings();
    const int size = Size(ask, settings);
    const double answer =
        (drafter_.answer + drafter_.token * size) * jitter_(random_);
    if (answer <= patience) {
      time_ += answer;
      Answer(size, ask.estimate, 0);
      if (size == 0) {
        Pass(0, answer, patience, true, 0, 0, false);
        return;
      }
      // The next run is there when this one has been verified, unless the
      // drafter has cut this one: then it goes on when it hears of the commit.
      const bool more = ask.right > size && ask.estimate <= 0;
      Pass(size,
           answer,
           patience,
           true,
           ask.right,
           std::min(size + 1, more ? size + 1 : size),
           more);
      if (ask.right > size && more) Follow(ask, began);
      return;
    }
    time_ += patience;
    double late = answer - patience;
    int lag = 0;
    for (; late > 1 && lag < 20 && Drafting(); late -= 1, ++lag) {
      Pass(0,
           lag == 0 ? patience : 0,
           lag == 0 ? patience : 0,
           false,
           0,
           0,
           false);
    }
    if (late > 1) return;
    Answer(size, ask.estimate, lag);
    const int known = std::min(size, lag);
    if (control_ != nullptr && known > 0) {
      const bool wrong = ask.right < known;
      control_->OnCompared(std::min(known, ask.right),
                           wrong ? ask.right + 1 : known,
                           size > known);
    }
    const bool holds = size > known && ask.right >= known;
    // The pass during which it came finds one of its tokens.
    Pass(
        0, lag == 0 ? patience : 0, lag == 0 ? patience : 0, true, 0, 0, false);
    if (!holds) return;
    if (control_ != nullptr) {
      control_->OnCompared(ask.right > known ? 1 : 0, 1, size > known + 1);
    }
    // What Pass() counted as the target's own is that token. Having heard that
    // the path holds, the drafter goes on with it.
    Follow(ask, began);
  }

  // Verifies a path that has held so far and goes on.
  void Follow(const Ask& ask, size_t began) {
    for (;;) {
      const int right = ask.right - static_cast<int>(at_ - began);
      if (right < 0) return;
      const int rows = Size(ask, Settings());
      if (rows < 1) return;
      Pass(rows, 0, 0, false, right, rows + 1, right > rows);
      if (right <= rows) return;
    }
  }

  const Text& text_;
  const Drafter drafter_;
  SpeculationControl* const control_ = nullptr;
  const ChosenSettings fixed_;
  size_t at_ = 0;
  double time_ = 0;
  double patience_ = 0;
  std::mt19937 random_{7};
  std::uniform_real_distribution<double> jitter_{0.8, 1.2};
  double predicted_ = 0;
  int num_passes_ = 0;
  int num_tunes_ = 0;
  double longest_patience_ = 0;
};

double Adaptive(const Text& text, const Drafter& drafter) {
  SpeculationControl control({}, {});
  return Play(text, drafter, &control).Speedup();
}

// The best of plain decoding and all run lengths with and without waiting.
double BestFixed(const Text& text, const Drafter& drafter, std::string* which) {
  double best = 1;
  *which = "plain";
  for (const int run_length : {1, 2, 3, 4, 6, 8, 12, 16, 24, 32}) {
    for (const bool waits : {false, true}) {
      ChosenSettings fixed;
      fixed.run_length = run_length;
      fixed.patience = absl::Seconds(waits ? 10 * kPlain : 0);
      const double speedup = Play(text, drafter, fixed).Speedup();
      if (speedup <= best) continue;
      best = speedup;
      *which = absl::StrCat(run_length, waits ? " waiting" : "");
    }
  }
  return best;
}

struct Case {
  std::string name;
  Law law;
  Drafter drafter;
};

std::vector<Case> Cases() {
  const Law lookup = {
      .spell_begins = 0.03, .spell_tokens = 20, .proposes = 0.3, .right = 0.1};
  Law rare = lookup;
  rare.spell_begins = 0.005;
  Law dense = lookup;
  dense.spell_begins = 0.15;
  dense.spell_tokens = 8;
  Law ragged = lookup;
  ragged.spell_begins = 0.02;
  ragged.spell_tokens = 60;
  ragged.spell_right = 0.85;
  Law knowing = lookup;
  knowing.estimates = true;
  const Law model = {.right = 0.6};
  const Law weak = {.right = 0.25};
  Law knowing_model = model;
  knowing_model.estimates = true;
  const Drafter local = {.answer = 0.13};
  const Drafter node = {.answer = 0.28};
  const Drafter computes = {.answer = 0.28, .token = 0.13};
  return {{"lookup, local", lookup, local},
          {"lookup, node", lookup, node},
          {"rare spells, local", rare, local},
          {"dense spells, local", dense, local},
          {"dense spells, node", dense, node},
          {"ragged spells, local", ragged, local},
          {"ragged spells, node", ragged, node},
          {"knowing lookup, local", knowing, local},
          {"knowing lookup, node", knowing, node},
          {"model", model, computes},
          {"weak model", weak, computes},
          {"knowing model", knowing_model, computes},
          {"distant model", model, {.answer = 1.5, .token = 0.13}},
          {"distant lookup", lookup, {.answer = 1.5}}};
}

TEST(SpeculationControlSimTest, NearTheBestSettingsInHindsight) {
  for (const Case& c : Cases()) {
    SCOPED_TRACE(c.name);
    const Text text = Draw(c.law, kTokens, 1);
    std::string which;
    const double best = BestFixed(text, c.drafter, &which);
    const double adaptive = Adaptive(text, c.drafter);
    EXPECT_GE(adaptive, 0.97 * best)
        << adaptive << " of " << best << ", " << which;
  }
}

TEST(SpeculationControlSimTest, SpellsAreWaitedForAndTheRestIsNot) {
  const Law law = {.spell_begins = 0.02,
                   .spell_tokens = 60,
                   .spell_right = 0.85,
                   .proposes = 0.3,
                   .right = 0.1};
  const Text text = Draw(law, kTokens, 1);
  SpeculationControl control({}, {});
  Play play(text, {.answer = 0.15}, &control);
  const double adaptive = play.Speedup();
  for (const bool waits : {false, true}) {
    double best = 1;
    for (const int run_length : {1, 2, 4, 6, 8, 12, 16}) {
      ChosenSettings fixed;
      fixed.run_length = run_length;
      fixed.patience = absl::Seconds(waits ? 10 * kPlain : 0);
      best = std::max(best, Play(text, {.answer = 0.15}, fixed).Speedup());
    }
    EXPECT_GT(adaptive, 1.01 * best) << (waits ? "waiting" : "taking");
  }
}

// Drafters that are of no use, for short requests and for long ones.
TEST(SpeculationControlSimTest, NeverMuchBelowPlain) {
  const Law useless = {.right = 0};
  const Law silent = {.proposes = 0};
  const Law slow = {.right = 0.5};
  const std::vector<Case> cases = {
      {"useless", useless, {.answer = 0.3, .token = 0.13}},
      {"nearly useless", {.right = 0.05}, {.answer = 0.15}},
      {"silent", silent, {.answer = 0.3}},
      {"slow", slow, {.answer = 9}},
      {"dead", slow, {.answer = std::numeric_limits<double>::infinity()}}};
  for (const Case& c : cases) {
    for (const int num_tokens : {128, kTokens}) {
      SCOPED_TRACE(absl::StrCat(c.name, ", ", num_tokens, " tokens"));
      EXPECT_GE(Adaptive(Draw(c.law, num_tokens + 200, 2), c.drafter), 0.97);
    }
  }
}

TEST(SpeculationControlSimTest, ADeadDrafterCostsOneWait) {
  const Text text = Draw({.right = 0.9}, 1000, 3);
  SpeculationControl control({}, {});
  Play(text, {.answer = 0.15}, &control).RunTo(400);
  ASSERT_GT(control.settings().patience, absl::ZeroDuration());
  Play dead(
      text, {.answer = std::numeric_limits<double>::infinity()}, &control);
  dead.RunTo(300);
  // Of which the first, at most a pass and a half long, is one too many.
  EXPECT_LT(dead.time(), 302);
}

TEST(SpeculationControlSimTest, AChangeOfQualityIsFollowedDownAndUpAgain) {
  const Drafter drafter = {.answer = 0.2, .token = 0.05};
  const Text good = Draw({.right = 0.8}, 1200, 4);
  const Text bad = Draw({.right = 0.02}, 1200, 5);
  SpeculationControl control({}, {});
  Play first(good, drafter, &control);
  const double before = first.SpeedupFrom(200);
  Play second(bad, drafter, &control);
  // It loses little even while it learns.
  second.RunTo(100);
  EXPECT_LT(second.time(), 100 / 0.93);
  EXPECT_GT(second.SpeedupFrom(100), 0.98);
  Play third(good, drafter, &control);
  third.RunTo(400);
  EXPECT_GT(third.SpeedupFrom(400), 0.95 * before);
  EXPECT_GT(before, 1.5);
}

TEST(SpeculationControlSimTest, MessagesAreFew) {
  for (const Case& c : Cases()) {
    SCOPED_TRACE(c.name);
    const Text text = Draw(c.law, kTokens, 1);
    SpeculationControl control({}, {});
    Play play(text, c.drafter, &control);
    play.Speedup();
    EXPECT_LT(play.num_tunes(), kTokens / 8);
  }
}

TEST(SpeculationControlSimTest, PredictsWhatComesOfIt) {
  for (const Case& c : Cases()) {
    SCOPED_TRACE(c.name);
    const Text text = Draw(c.law, kTokens, 1);
    SpeculationControl control({}, {});
    Play play(text, c.drafter, &control);
    const double speedup = play.Speedup();
    EXPECT_NEAR(play.predicted(), speedup, 0.15 * speedup);
  }
}

}  // namespace
}  // namespace specwire::coordinator
