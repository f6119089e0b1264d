#include "runtime/cuda/step_block.h"

#include <cstring>

#include "codegen/cuda/kernels/step.cuh"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace quire {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

TEST(StepBlockTest, BucketsHoldTheirRowsAndAreFew) {
  EXPECT_THAT(BucketsUpTo(300),
              ElementsAre(1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 320));
  EXPECT_THAT(BucketsUpTo(1), ElementsAre(1));
  for (int64_t rows = 1; rows < 3000; ++rows) {
    EXPECT_GE(BucketOf(rows), rows);
    EXPECT_LT(BucketOf(rows), 2 * rows);
    EXPECT_EQ(BucketOf(BucketOf(rows)), BucketOf(rows));
    EXPECT_EQ(BucketsUpTo(rows).back(), BucketOf(rows));
  }
}

TEST(StepBlockTest, ArraysFollowEachOtherFromMultiplesOf16) {
  const StepLayout layout(5, 3);
  EXPECT_EQ(layout.header, 0);
  EXPECT_EQ(layout.ids, 16);
  EXPECT_EQ(layout.positions, 48);  // 5 i32 take 20 bytes
  EXPECT_EQ(layout.token_slots, 80);
  EXPECT_EQ(layout.logit_rows, 112);
  EXPECT_EQ(layout.sequences, 128);
  EXPECT_EQ(layout.pages, 208);
}

struct Block {
  explicit Block(int64_t wanted_t, int64_t wanted_r)
      : T(wanted_t), R(wanted_r), layout(T, R), bytes(4096, 0xab) {}
  std::vector<int32_t> Array(int64_t offset, int64_t count) const {
    std::vector<int32_t> values(static_cast<size_t>(count));
    std::memcpy(values.data(), bytes.data() + offset, values.size() * sizeof(int32_t));
    return values;
  }

  const int64_t T, R;
  const StepLayout layout;
  std::vector<uint8_t> bytes;
};

TEST(StepBlockTest, RowsThenPadding) {
  Block block(8, 4);
  const std::vector<int32_t> ids = {7, 8, 9, 5, 6}, positions = {2, 3, 4, 0, 5}, rows = {2, 3, 4};
  // Pages of 3 tokens. The first page of the last sequence has left its window.
  const std::vector<int32_t> first = {4, 1, 0}, second = {6}, third = {-1, 2};
  const std::vector<SequenceRows> sequences = {
      {0, 3, 5, first}, {3, 1, 1, second}, {4, 1, 6, third}};
  const Step step = {ids, positions, rows, sequences};
  EXPECT_EQ(PagesOfStep(step, 3), 5);
  const int64_t bytes = WriteStepBlock(step, block.T, block.R, 3, block.bytes.data());
  EXPECT_EQ(bytes, block.layout.pages + 5 * 4);
  EXPECT_THAT(block.Array(block.layout.header, 4), ElementsAre(5, 3, 5, 3));
  EXPECT_THAT(block.Array(block.layout.ids, 8), ElementsAre(7, 8, 9, 5, 6, 0, 0, 0));
  EXPECT_THAT(block.Array(block.layout.positions, 8), ElementsAre(2, 3, 4, 0, 5, 0, 0, 0));
  // Tokens 2, 3, 4 of the first sequence; 0 of the second; 5 of the third.
  EXPECT_THAT(block.Array(block.layout.token_slots, 8),
              ElementsAre(4 * 3 + 2, 1 * 3 + 0, 1 * 3 + 1, 6 * 3 + 0, 2 * 3 + 2, -1, -1, -1));
  EXPECT_THAT(block.Array(block.layout.logit_rows, 4), ElementsAre(2, 3, 4, 0));
  EXPECT_THAT(block.Array(block.layout.sequences, 12),
              ElementsAre(0, 3, 5, 0, 3, 1, 1, 2, 4, 1, 6, 3));
  EXPECT_THAT(block.Array(block.layout.pages, 5), ElementsAre(4, 1, 6, 0, 2));
  EXPECT_EQ(block.bytes[static_cast<size_t>(bytes)], 0xab);
}

TEST(StepBlockTest, WithoutACacheNoRowHasAPlace) {
  Block block(2, 1);
  const std::vector<int32_t> ids = {7, 8}, positions = {0, 1}, rows = {1};
  const std::vector<SequenceRows> sequences = {{0, 2, 2, {}}};
  const int64_t bytes =
      WriteStepBlock({ids, positions, rows, sequences}, block.T, block.R, 0, block.bytes.data());
  EXPECT_EQ(bytes, block.layout.pages);
  EXPECT_THAT(block.Array(block.layout.header, 4), ElementsAre(2, 1, 0, 1));
  EXPECT_THAT(block.Array(block.layout.token_slots, 2), Each(-1));
}

}  // namespace
}  // namespace quire
