// The attention kernels' source, run on the CPU: against the reference interpreter on awkward
// sizes, and against itself, to the bit, under every division of the same work.
#include "tests/codegen/cuda_attention_emulated.h"

#include <vector>

#include "gtest/gtest.h"

namespace quire::emulated {
namespace {

const std::vector<Part> kMixed = {{1, 1, 300}, {2, 1, 1},    {3, 5, 70}, {4, 90, 90},
                                  {5, 1, 513}, {6, 30, 290}, {7, 1, 64}, {8, 4, 257}};

TEST(CudaAttentionEmulatedTest, MixedStep) {
  const Rows rows = RunStep<plain_kernel>(kMixed, 2);
  ExpectClose<plain_kernel>(kMixed, rows);
  ExpectSame(RunStep<plain_kernel>(kMixed, 7, 3), rows, "other blocks");
  ExpectSame(RunStep<paged_kernel>(kMixed, 1), rows, "other pages");
  for (const Part& part : {kMixed[0], kMixed[4], kMixed[5], kMixed[7]}) {
    ExpectSame(RunStep<plain_kernel>({part}, 3), rows, "alone");
  }
}

TEST(CudaAttentionEmulatedTest, APromptInChunksOfAnySize) {
  const Rows whole = RunStep<plain_kernel>({{1, 330, 330}}, 3);
  // One token a step, so few that their rows are tiles of few rows, and so many that they are not.
  for (int context : {1, 64, 65, 256, 257, 330}) {
    ExpectSame(RunStep<plain_kernel>({{1, 1, context}}, 2), whole, "one token");
  }
  for (const Part& part : {Part{1, 7, 260}, Part{1, 10, 322}, Part{1, 11, 330}, Part{1, 64, 300}}) {
    ExpectSame(RunStep<plain_kernel>({part}, 2), whole, "chunk");
  }
}

// More partials of a pair than there is room for at once, and more chunks than their folding has.
TEST(CudaAttentionEmulatedTest, ALongContextOverManyBlocks) {
  const std::vector<Part> parts = {{1, 1, 2000}, {2, 5, 4000}};
  const Rows rows = RunStep<paged_kernel>(parts, 40);
  ExpectClose<paged_kernel>(parts, rows);
  ExpectSame(RunStep<paged_kernel>(parts, 1), rows, "fewer blocks");
}

TEST(CudaAttentionEmulatedTest, WindowCapAlibiBiasAndSinks) {
  const std::vector<Part> parts = {{1, 1, 300}, {2, 20, 150}, {3, 1, 99}, {4, 3, 257}, {5, 2, 2}};
  const Rows rows = RunStep<windowed_kernel>(parts, 2);
  ExpectClose<windowed_kernel>(parts, rows);
  ExpectSame(RunStep<windowed_kernel>({{2, 4, 150}}, 1), rows, "fewer rows");
}

TEST(CudaAttentionEmulatedTest, FullAttention) {
  // Over an encoder's output there may be more rows than tokens.
  const std::vector<Part> parts = {{1, 1, 70},  {2, 40, 40}, {3, 10, 300}, {4, 3, 0},
                                   {5, 40, 11}, {6, 2, 1},   {7, 33, 0}};
  const Rows rows = RunStep<full_kernel>(parts, 2);
  ExpectClose<full_kernel>(parts, rows);
  ExpectSame(RunStep<full_kernel>({parts[1]}, 1), rows, "alone");
}

// Contexts of one step have an entry of their own, with the bits of the others: of a prompt that is
// read as a whole, and of rows that see more.
TEST(CudaAttentionEmulatedTest, ShortContextsHaveTheBitsOfOthers) {
  const std::vector<Part> one_by_one = {{1, 1, 1},  {1, 1, 2},  {1, 1, 15}, {1, 1, 16}, {1, 1, 17},
                                        {1, 2, 32}, {1, 1, 33}, {1, 4, 48}, {1, 7, 63}, {1, 1, 64}};
  const auto expect = [&]<typename Kernel>(const Kernel&) {
    const Rows whole = RunStep<Kernel>({{1, 90, 90}}, 2);
    const Rows rows = RunStep<Kernel>(one_by_one, 3);
    ExpectClose<Kernel>(one_by_one, rows);
    ExpectSame(rows, whole, "read as a whole");
  };
  expect(plain_kernel());
  expect(paged_kernel());
  expect(group_kernel());
  expect(wide_kernel());
  expect(warpgroup_padded_kernel());
  const std::vector<Part> seen = {{1, 1, 20}, {2, 2, 64}, {3, 3, 41}, {4, 1, 1}};
  ExpectClose<grouped_kernel>(seen, RunStep<grouped_kernel>(seen, 2));
  ExpectClose<windowed_kernel>(seen, RunStep<windowed_kernel>(seen, 2));
  ExpectClose<wide_windowed_kernel>(seen, RunStep<wide_windowed_kernel>(seen, 2));
  ExpectClose<tree_kernel>(seen, RunStep<tree_kernel>(seen, 2));
}

TEST(CudaAttentionEmulatedTest, TreeOfTheStepsOwnTokens) {
  const std::vector<Part> parts = {{1, 9, 75}, {2, 70, 80}, {3, 1, 20}};
  const Rows rows = RunStep<tree_kernel>(parts, 2);
  ExpectClose<tree_kernel>(parts, rows);
}

TEST(CudaAttentionEmulatedTest, WarpgroupsHaveTheBitsOfWarps) {
  const Rows rows = RunStep<group_kernel>(kMixed, 2);
  ExpectClose<group_kernel>(kMixed, rows);
  ExpectSame(RunStep<warpgroup_kernel>(kMixed, 3), rows, "many blocks");
  ExpectSame(RunStep<warpgroup_kernel>(kMixed, 1, 3), rows, "one block, other pages");
  for (const Part& part : {kMixed[3], kMixed[5], Part{4, 30, 80}}) {
    ExpectSame(RunStep<warpgroup_kernel>({part}, 2), rows, "alone");
  }
}

TEST(CudaAttentionEmulatedTest, WarpgroupsWithPanelsMasksAndTerms) {
  const std::vector<Part> parts = {{1, 1, 300}, {2, 20, 150}, {3, 140, 290}, {4, 50, 51}};
  ExpectClose<warpgroup_wide_kernel>(parts, RunStep<warpgroup_wide_kernel>(parts, 2));
  ExpectClose<warpgroup_windowed_kernel>(parts, RunStep<warpgroup_windowed_kernel>(parts, 2));
  ExpectClose<warpgroup_tree_kernel>(parts, RunStep<warpgroup_tree_kernel>(parts, 2));
  const std::vector<Part> full = {{1, 1, 70}, {2, 40, 40}, {3, 50, 300}, {4, 33, 0}};
  ExpectClose<warpgroup_full_kernel>(full, RunStep<warpgroup_full_kernel>(full, 2));
}

TEST(CudaAttentionEmulatedTest, WarpgroupsWhosePanelsRowsDoNotFill) {
  const std::vector<Part> parts = {{1, 90, 90}, {2, 11, 300}};
  const Rows rows = RunStep<warpgroup_padded_kernel>(parts, 2);
  ExpectClose<warpgroup_padded_kernel>(parts, rows);
  for (const Part& few : {Part{1, 10, 90}, Part{1, 3, 64}, Part{2, 2, 300}}) {
    ExpectSame(RunStep<warpgroup_padded_kernel>({few}, 2), rows, "few rows");
  }
}

TEST(CudaAttentionEmulatedTest, WarpgroupsThatHaveHalfOfTheColumns) {
  const std::vector<Part> parts = {{1, 90, 90}, {2, 11, 300}, {3, 25, 330}, {4, 1, 70}},
                          more = {{1, 20, 150}, {2, 7, 300}};
  const Rows rows = RunStep<wide_kernel>(parts, 2);
  ExpectClose<wide_kernel>(parts, rows);
  ExpectSame(RunStep<wide_kernel>(parts, 9, 3), rows, "other blocks and pages");
  for (const Part& few : {Part{1, 10, 90}, Part{1, 3, 64}, Part{2, 2, 300}, Part{3, 9, 320}}) {
    ExpectSame(RunStep<wide_kernel>({few}, 2), rows, "few rows");
  }
  ExpectClose<wide_windowed_kernel>(more, RunStep<wide_windowed_kernel>(more, 2));
}

// What the plan deals of a step to `blocks` blocks, one a multiprocessor: how many of them have
// tiles of many rows, and the steps that each has of few, which are all of one context.
struct Dealt {
  int many_blocks;
  std::vector<int> few_steps;
};
Dealt Deal(const std::vector<Part>& parts, int blocks) {
  using namespace group_few;
  const int few_tiles = static_cast<int>(parts.size()), many_tiles = 1000;
  StepHeader header = {};
  header.sequences = few_tiles;
  std::vector<StepSequence> sequences;
  for (const Part& part : parts) {
    sequences.push_back({header.rows, part.rows, part.context, 0});
    header.rows += part.rows;
  }
  std::vector<Words4> plan(100000);
  auto* bytes = reinterpret_cast<uint8_t*>(plan.data());
  RunGrid({1, kThreads, kThreads * sizeof(AttentionPlan::Counts), nullptr, 0, 1}, [&] {
    AttentionPlan::Run(&header, sequences.data(), bytes, {few_tiles, many_tiles, blocks, blocks});
  });
  const auto& planned = *reinterpret_cast<const PlanHeader*>(bytes);
  const auto* starts = reinterpret_cast<const BlockStart*>(bytes + sizeof(PlanHeader));
  Dealt dealt{planned.many_blocks, {}};
  int unit = 0;
  for (int block = 0; block < blocks; ++block) {
    EXPECT_EQ(starts[block].unit, unit) << block;
    unit = starts[block].unit_end;
    dealt.few_steps.push_back((unit - starts[block].unit) * kChunkSteps);
  }
  EXPECT_EQ(unit, planned.units);
  return dealt;
}

TEST(CudaAttentionEmulatedTest, ABlockHasAboutAsMuchAsOthers) {
  const auto most = [](const std::vector<int>& x) { return *std::max_element(x.begin(), x.end()); };
  // Pairs of 32 steps, 1.8 for each block, are cut.
  const Dealt decode = Deal(std::vector<Part>(240, {1, 1, 2048}), 264);
  EXPECT_EQ(decode.many_blocks, 0);
  const int share = 240 * group_few::kHkv * 32 / 264;
  EXPECT_LE(most(decode.few_steps), share + share / 8);
  // Those about as long as a share are not.
  const Dealt whole = Deal(std::vector<Part>(124, {1, 1, 2048}), 264);
  EXPECT_EQ(most(whole.few_steps), 32);
}

// Tiles of many rows and of few have multiprocessors of their own.
TEST(CudaAttentionEmulatedTest, BlocksOfAMixedStep) {
  std::vector<Part> parts(60, {1, 1, 2048});
  EXPECT_EQ(Deal({{1, 4000, 4000}}, 132).many_blocks, 132);
  EXPECT_EQ(Deal({{1, 30, 30}}, 132).many_blocks, 132);
  int before = 0;
  for (int prompt : {20, 100, 500, 2000, 8000}) {
    parts.push_back({2, prompt, prompt});
    const Dealt dealt = Deal(parts, 132);
    EXPECT_GE(dealt.many_blocks, std::max(1, before));
    EXPECT_LT(dealt.many_blocks, 132);
    const int few_blocks = 132 - dealt.many_blocks;
    for (int block = few_blocks; block < 132; ++block) {
      EXPECT_EQ(dealt.few_steps[static_cast<size_t>(block)], 0) << block;
    }
    before = dealt.many_blocks;
  }
  EXPECT_GT(before, 66);
  // What is next to nothing goes to all blocks, behind the others.
  parts.assign({{1, 1, 300}, {2, 8000, 60000}});
  const Dealt behind = Deal(parts, 132);
  EXPECT_EQ(behind.many_blocks, 132);
  EXPECT_GT(behind.few_steps[0], 0);
}

TEST(CudaAttentionEmulatedTest, GroupsOfManyHeads) {
  const std::vector<Part> parts = {{1, 1, 1100}, {2, 5, 300}, {3, 1, 40}, {4, 1, 513}};
  const Rows rows = RunStep<grouped_kernel>(parts, 1);
  ExpectClose<grouped_kernel>(parts, rows);
  ExpectSame(RunStep<grouped_kernel>(parts, 9), rows, "a chunk a block");
  for (const Part& part : {parts[0], parts[2], Part{2, 1, 297}}) {
    ExpectSame(RunStep<grouped_kernel>({part}, 4), rows, "alone");
  }
}

}  // namespace
}  // namespace quire::emulated
