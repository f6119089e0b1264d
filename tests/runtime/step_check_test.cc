#include "runtime/step_check.h"

#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace quire {
namespace {

using ::testing::HasSubstr;

// A program with logits f32[R,10]; two sequences, of two rows and of one.
class StepCheckTest : public ::testing::Test {
 protected:
  StepCheckTest() {
    target_.page_tokens = 4;
    auto logits = std::make_unique<plan::ValueT>();
    logits->extents = {"R", "10"};
    program_.buffers.push_back(std::move(logits));
    program_.results.emplace_back(plan::OperandKind::Buffer, 0);
  }

  absl::Status Check(const std::vector<int32_t>& logit_rows) {
    const std::vector<int32_t> ids = {1, 2, 3}, positions = {4, 5, 0};
    const std::vector<int32_t> first = {0, 1}, second = {2};
    const std::vector<SequenceRows> sequences = {{0, 2, 6, first}, {2, 1, 1, second}};
    return CheckStep({ids, positions, logit_rows, sequences}, target_, program_, /*pool_pages=*/3,
                     logit_rows.size() * 10);
  }

  plan::TargetT target_;
  plan::ProgramT program_;
};

TEST_F(StepCheckTest, AcceptsAnyRowsOfTheStep) {
  EXPECT_EQ(Check({}), absl::OkStatus());
  EXPECT_EQ(Check({1, 2}), absl::OkStatus());
  EXPECT_EQ(Check({2, 2, 0}), absl::OkStatus());
}

TEST_F(StepCheckTest, RefusesMoreLogitRowsThanRows) {
  const absl::Status status = Check({0, 0, 1, 2});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("step: the number of logit rows is 4\n  allowed: at most 3"));
}

TEST_F(StepCheckTest, RefusesALogitRowThatIsNone) {
  EXPECT_THAT(std::string(Check({3}).message()),
              HasSubstr("step: a logit row is 3\n  allowed: 0 .. 2"));
}

}  // namespace
}  // namespace quire
