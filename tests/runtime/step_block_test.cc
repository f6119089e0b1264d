#include "runtime/cuda/step_block.h"

#include <cstring>

#include "codegen/cuda/kernels/step.cuh"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace quire {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

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
  EXPECT_EQ(layout.own.token_slots, 80);
  EXPECT_EQ(layout.logit_rows, 112);
  EXPECT_EQ(layout.own.sequences, 128);
  EXPECT_EQ(layout.pages, 208);
  const StepLayout step(5, 3, StepCaches::kOwnAndEncoder);
  EXPECT_EQ(step.other.sequences, 208);
  EXPECT_EQ(step.pages, 288);
  const StepLayout encode(5, 3, StepCaches::kOwnAndRun);
  EXPECT_EQ(encode.other.token_slots, 288);
  EXPECT_EQ(encode.pages, 320);
}

struct Block {
  Block(int64_t wanted_t, int64_t wanted_r, StepCaches wanted_caches = StepCaches::kOwn)
      : T(wanted_t), R(wanted_r), caches(wanted_caches), layout(T, R, caches), bytes(4096, 0xab) {}
  int64_t Write(const Step& step, int64_t page_tokens) {
    return WriteStepBlock(step, T, R, page_tokens, caches, bytes.data());
  }
  std::vector<int32_t> Array(int64_t offset, int64_t count) const {
    std::vector<int32_t> values(static_cast<size_t>(count));
    std::memcpy(values.data(), bytes.data() + offset, values.size() * sizeof(int32_t));
    return values;
  }

  const int64_t T, R;
  const StepCaches caches;
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
  EXPECT_EQ(PagesOfStep(step, 3, StepCaches::kOwn), 5);
  const int64_t bytes = block.Write(step, 3);
  EXPECT_EQ(bytes, block.layout.pages + 5 * 4);
  EXPECT_THAT(block.Array(block.layout.header, 4), ElementsAre(5, 3, 5, 3));
  EXPECT_THAT(block.Array(block.layout.ids, 8), ElementsAre(7, 8, 9, 5, 6, 0, 0, 0));
  EXPECT_THAT(block.Array(block.layout.positions, 8), ElementsAre(2, 3, 4, 0, 5, 0, 0, 0));
  // Tokens 2, 3, 4 of the first sequence; 0 of the second; 5 of the third.
  EXPECT_THAT(block.Array(block.layout.own.token_slots, 8),
              ElementsAre(4 * 3 + 2, 1 * 3 + 0, 1 * 3 + 1, 6 * 3 + 0, 2 * 3 + 2, -1, -1, -1));
  EXPECT_THAT(block.Array(block.layout.logit_rows, 4), ElementsAre(2, 3, 4, 0));
  EXPECT_THAT(block.Array(block.layout.own.sequences, 12),
              ElementsAre(0, 3, 5, 0, 3, 1, 1, 2, 4, 1, 6, 3));
  EXPECT_THAT(block.Array(block.layout.pages, 5), ElementsAre(4, 1, 6, 0, 2));
  EXPECT_EQ(block.bytes[static_cast<size_t>(bytes)], 0xab);
}

TEST(StepBlockTest, WithoutACacheNoRowHasAPlace) {
  Block block(2, 1, StepCaches::kNone);
  const std::vector<int32_t> ids = {7, 8}, positions = {0, 1}, rows = {1};
  const std::vector<SequenceRows> sequences = {{0, 2, 2, {}}};
  const int64_t bytes = block.Write({ids, positions, rows, sequences}, 0);
  EXPECT_EQ(bytes, block.layout.pages);
  EXPECT_THAT(block.Array(block.layout.header, 4), ElementsAre(2, 1, 0, 1));
  EXPECT_THAT(block.Array(block.layout.own.token_slots, 2), Each(-1));
}

TEST(StepBlockTest, WhatAnEncoderLeftIsOfASecondList) {
  Block block(4, 1, StepCaches::kOwnAndEncoder);
  const std::vector<int32_t> ids = {7, 8, 9}, positions = {0, 1, 4}, rows = {2};
  const std::vector<int32_t> first = {5}, second = {1, 0}, source = {3, 6, 2}, none;
  const std::vector<SequenceRows> sequences = {{0, 2, 2, first, 7, source},
                                               {2, 1, 5, second, 0, none}};
  const Step step = {ids, positions, rows, sequences};
  EXPECT_EQ(PagesOfStep(step, 3, block.caches), 6);
  EXPECT_EQ(block.Write(step, 3), block.layout.pages + 6 * 4);
  EXPECT_THAT(block.Array(block.layout.own.token_slots, 4),
              ElementsAre(5 * 3, 5 * 3 + 1, 0 * 3 + 1, -1));
  EXPECT_THAT(block.Array(block.layout.own.sequences, 8), ElementsAre(0, 2, 2, 0, 2, 1, 5, 4));
  EXPECT_THAT(block.Array(block.layout.other.sequences, 8), ElementsAre(0, 2, 7, 1, 2, 1, 0, 6));
  EXPECT_THAT(block.Array(block.layout.pages, 6), ElementsAre(5, 3, 6, 2, 1, 0));
}

TEST(StepBlockTest, PagesOfARunAreNumberedFromZero) {
  Block block(8, 1, StepCaches::kOwnAndRun);
  const std::vector<int32_t> ids = {1, 2, 3, 4, 5, 6}, positions = {0, 1, 2, 3, 0, 1};
  const std::vector<int32_t> first = {9, 4}, second = {7};
  const std::vector<SequenceRows> sequences = {{0, 4, 4, first}, {4, 2, 2, second}};
  const Step step = {ids, positions, {}, sequences};
  EXPECT_EQ(PagesOfStep(step, 3, block.caches), 6);
  EXPECT_EQ(block.Write(step, 3), block.layout.pages + 6 * 4);
  EXPECT_THAT(block.Array(block.layout.own.token_slots, 8),
              ElementsAre(27, 28, 29, 12, 21, 22, -1, -1));
  EXPECT_THAT(block.Array(block.layout.other.token_slots, 8),
              ElementsAre(0, 1, 2, 3, 6, 7, -1, -1));
  EXPECT_THAT(block.Array(block.layout.own.sequences, 8), ElementsAre(0, 4, 4, 0, 4, 2, 2, 4));
  EXPECT_THAT(block.Array(block.layout.other.sequences, 8), ElementsAre(0, 4, 4, 2, 4, 2, 2, 5));
  EXPECT_THAT(block.Array(block.layout.pages, 6), ElementsAre(9, 4, 0, 1, 7, 2));
}

}  // namespace
}  // namespace quire
