// SPDX-License-Identifier: Apache-2.0
#include "draft_node/draft_time.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "common/drafting/ngram.h"
#include "common/drafting/suffix.h"
#include "common/drafting/synthetic.h"
#include "common/model_drafting/model_drafter.h"
#include "tests/testing/fake_engine.h"

namespace specwire::draft {
namespace {

TEST(DraftTimeTest, IsMeasuredForLookupsToo) {
  const auto ngram = NgramDrafter::Create({});
  const auto suffix = SuffixDrafter::Create({});
  ASSERT_TRUE(ngram.ok() && suffix.ok());
  EXPECT_GT(MeasureDraftTokenNs(ngram->get()).value_or(0), 0);
  EXPECT_GT(MeasureDraftTokenNs(suffix->get()).value_or(0), 0);
  // The made-up path leaves nothing behind.
  EXPECT_EQ((*suffix)->num_store_tokens(), 0);
}

TEST(DraftTimeTest, AModelIsRunAFewTimes) {
  auto engine = std::make_unique<FakeEngine>();
  const FakeEngine* const passes = engine.get();
  const auto model = ModelDrafter::Create(std::move(engine), {});
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_GT(MeasureDraftTokenNs(model->get()).value_or(0), 0);
  // Two runs of four tokens at least, nine at most.
  EXPECT_GE(passes->num_passes(), 2 * 4);
  EXPECT_LE(passes->num_passes(), 9 * 4);
  // And nothing is left.
  EXPECT_EQ((*model)->kv_blocks_used(), 0);
}

// A drafter that cannot draft.
class BrokenDrafter final : public Drafter {
 public:
  const std::string& name() const override { return name_; }
  const std::string& vocabulary_fingerprint() const override { return name_; }
  const std::string& model_digest() const override { return name_; }
  int max_model_len() const override { return 0; }
  std::unique_ptr<DraftSequence> NewSequence(
      const DraftSequenceParams& /*params*/) override {
    struct Sequence final : public DraftSequence {
      absl::StatusOr<DraftRun> Propose(absl::Span<const int32_t> /*path*/,
                                       const DraftLimits& /*limits*/) override {
        return absl::InternalError("broken");
      }
    };
    return std::make_unique<Sequence>();
  }

 private:
  const std::string name_ = "broken";
};

TEST(DraftTimeTest, AnErrorIsHandedOn) {
  BrokenDrafter drafter;
  EXPECT_EQ(MeasureDraftTokenNs(&drafter).status().message(), "broken");
}

TEST(DraftTimeTest, IsNotMeasuredWhereItIsMadeUp) {
  SyntheticDrafterOptions options;
  options.delay = absl::Seconds(1);
  SyntheticDrafter drafter(options);
  EXPECT_EQ(MeasureDraftTokenNs(&drafter).value_or(-1), 0);
}

}  // namespace
}  // namespace specwire::draft
