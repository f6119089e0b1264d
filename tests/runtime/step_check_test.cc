#include "runtime/step_check.h"

#include <functional>
#include <vector>

#include "gtest/gtest.h"

namespace quire {
namespace {

// A step of two sequences that is right, for tests to spoil.
struct Parts {
  std::vector<int32_t> ids = {1, 2, 3}, positions = {4, 5, 0}, logit_rows = {1, 2};
  std::vector<int32_t> first_pages = {7, 0, 3}, second_pages = {1};
  std::vector<SequenceRows> sequences = {{0, 2, 6, {}}, {2, 1, 1, {}}};
  StepLimits limits;
  size_t logits = 20;

  Parts() {
    limits.vocabulary = limits.ids = 10;
    limits.page_tokens = 2;
    limits.reads_pages = true;
  }
  absl::Status Check() {
    sequences[0].pages = first_pages;
    if (sequences.size() > 1) sequences[1].pages = second_pages;
    return CheckStep({ids, positions, logit_rows, sequences}, limits, 8, logits);
  }
};

TEST(StepCheckTest, AcceptsAStepThatAgrees) { EXPECT_TRUE(Parts().Check().ok()); }

TEST(StepCheckTest, RefusesWhatDisagrees) {
  const std::vector<std::function<void(Parts&)>> spoilers = {
      [](Parts& p) { p.ids.clear(); },
      [](Parts& p) { p.ids[1] = -1; },
      [](Parts& p) { p.ids[1] = 10; },
      [](Parts& p) { p.limits.ids = 3; },
      [](Parts& p) { p.positions.pop_back(); },
      [](Parts& p) { p.positions[2] = -1; },
      [](Parts& p) { p.limits.positions = 5; },
      [](Parts& p) { p.logit_rows[0] = 3; },
      [](Parts& p) { p.logit_rows[0] = -1; },
      [](Parts& p) { p.logit_rows = {0, 1, 2, 2}, p.logits = 40; },
      [](Parts& p) { p.logits = 10; },
      [](Parts& p) { p.sequences.pop_back(); },
      [](Parts& p) { p.sequences[1].first_row = 1; },
      [](Parts& p) { p.sequences[0].rows = 3; },
      [](Parts& p) { p.sequences[1].rows = 0; },
      [](Parts& p) { p.sequences[0].context_tokens = 1; },
      [](Parts& p) { p.sequences[0].context_tokens = 7; },
      [](Parts& p) { p.first_pages[0] = 8; },
      [](Parts& p) { p.first_pages[2] = -1; },
  };
  for (size_t i = 0; i < spoilers.size(); ++i) {
    Parts parts;
    spoilers[i](parts);
    EXPECT_EQ(parts.Check().code(), absl::StatusCode::kInvalidArgument) << i;
  }
}

// Never zeros: a typed error.
TEST(StepCheckTest, ASequenceWithoutEncoderOutputIsRefused) {
  Parts parts;
  parts.limits.reads_encoder = parts.limits.needs_encoder = true;
  const absl::Status status = parts.Check();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(
      status.message(),
      "step: the sequence at row 0 has no encoder output\n  fix: run encode on its source first");
  parts.limits.needs_encoder = false;  // of states, which a row may do without
  EXPECT_TRUE(parts.Check().ok());
}

TEST(StepCheckTest, PagesBeforeEveryWindowMayBeGone) {
  Parts parts;
  parts.first_pages[0] = -1;
  // The first row stands at 4: with a window of 3 it reads from 2, the second page.
  parts.limits.window = 3;
  EXPECT_TRUE(parts.Check().ok());
  parts.limits.window = 4;
  EXPECT_FALSE(parts.Check().ok());
  parts.limits.reads_pages = false;
  EXPECT_TRUE(parts.Check().ok());
}

TEST(StepCheckTest, LimitsAreThoseOfThePlan) {
  plan::TargetT target;
  target.page_tokens = 3;
  plan::ProgramT program;
  EXPECT_FALSE(LimitsOf(target, program).ok());
  program.buffers.push_back(std::make_unique<plan::ValueT>());
  program.buffers[0]->extents = {"R", "77"};
  program.results.emplace_back(plan::OperandKind::Buffer, 0);
  auto limits = LimitsOf(target, program);
  ASSERT_TRUE(limits.ok()) << limits.status();
  EXPECT_EQ(limits->vocabulary, 77);
  EXPECT_EQ(limits->more_ids(), 0);  // as long as no look-up limits them
  EXPECT_EQ(limits->page_tokens, 3);
  EXPECT_FALSE(limits->reads_pages);
  for (int64_t window : {5, 9, 7}) {
    target.kv_layers.push_back(std::make_unique<plan::KvLayerT>());
    target.kv_layers.back()->window = window;
  }
  limits = LimitsOf(target, program);
  EXPECT_TRUE(limits->reads_pages);
  EXPECT_EQ(limits->window, 9);
  target.kv_layers[1]->window = 0;
  EXPECT_EQ(LimitsOf(target, program)->window, 0);
}

}  // namespace
}  // namespace quire
