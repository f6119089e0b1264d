#include "compiler/memory_plan.h"

#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace quire {
namespace {

using ::testing::HasSubstr;

LinearBytes Bytes(int64_t constant, int64_t t, int64_t r) { return {constant, t, r}; }

std::string Text(const LinearBytes& x) {
  return std::to_string(x.constant) + "+" + std::to_string(x.t) + "T+" + std::to_string(x.r) + "R";
}

std::vector<std::string> Offsets(const MemoryPlan& plan) {
  std::vector<std::string> texts;
  for (const LinearBytes& offset : plan.offsets) texts.push_back(Text(offset));
  return texts;
}

TEST(MemoryPlanTest, AChainUsesTwoPlaces) {
  // a -> b -> c -> d, equal sizes: each is live with its neighbours only.
  absl::StatusOr<MemoryPlan> plan = PlanMemory({{"a", Bytes(0, 256, 0), 0, 1},
                                                {"b", Bytes(0, 256, 0), 1, 2},
                                                {"c", Bytes(0, 256, 0), 2, 3},
                                                {"d", Bytes(0, 256, 0), 3, 4}});
  ASSERT_TRUE(plan.ok());
  EXPECT_THAT(Offsets(*plan),
              ::testing::ElementsAre("0+0T+0R", "0+256T+0R", "0+0T+0R", "0+256T+0R"));
  EXPECT_EQ(Text(plan->arena), "0+512T+0R");
}

TEST(MemoryPlanTest, AResidualStaysBesideWhatComesAndGoes) {
  // x is live throughout; the wide hidden value takes the start, the narrow ones sit behind it.
  absl::StatusOr<MemoryPlan> plan = PlanMemory({{"x", Bytes(0, 64, 0), 0, 3},
                                                {"norm", Bytes(0, 64, 0), 1, 2},
                                                {"hidden", Bytes(0, 256, 0), 2, 3},
                                                {"y", Bytes(0, 64, 0), 3, 4}});
  ASSERT_TRUE(plan.ok());
  EXPECT_THAT(Offsets(*plan),
              ::testing::ElementsAre("0+256T+0R", "0+320T+0R", "0+0T+0R", "0+320T+0R"));
  EXPECT_EQ(Text(plan->arena), "0+384T+0R");
}

TEST(MemoryPlanTest, SizesAreRoundedUpToAlignment) {
  absl::StatusOr<MemoryPlan> plan =
      PlanMemory({{"a", Bytes(0, 100, 0), 0, 1}, {"b", Bytes(0, 4, 0), 0, 1}});
  ASSERT_TRUE(plan.ok());
  EXPECT_THAT(Offsets(*plan), ::testing::ElementsAre("0+0T+0R", "0+128T+0R"));
  EXPECT_EQ(Text(plan->arena), "0+192T+0R");
}

TEST(MemoryPlanTest, WantedRowsUseTheMemoryOfAllRows) {
  // R <= T: a value of R rows of the same size fits where one of T rows was.
  absl::StatusOr<MemoryPlan> plan = PlanMemory({{"all", Bytes(0, 256, 0), 0, 1},
                                                {"taken", Bytes(0, 0, 256), 1, 2},
                                                {"wanted", Bytes(0, 0, 256), 2, 3}});
  ASSERT_TRUE(plan.ok());
  EXPECT_THAT(Offsets(*plan), ::testing::ElementsAre("0+0T+0R", "0+256T+0R", "0+0T+0R"));
  EXPECT_EQ(Text(plan->arena), "0+256T+256R");
}

TEST(MemoryPlanTest, LogitsMayOutgrowTheRest) {
  // Neither is larger for every T and R; the arena covers both without adding them up.
  absl::StatusOr<MemoryPlan> plan =
      PlanMemory({{"hidden", Bytes(0, 256, 0), 0, 1}, {"logits", Bytes(0, 0, 4096), 2, 3}});
  ASSERT_TRUE(plan.ok());
  EXPECT_THAT(Offsets(*plan), ::testing::ElementsAre("0+0T+0R", "0+0T+0R"));
  // At T = R = 1: 4096; 256 more for each T alone; 4096 more for each T with R.
  EXPECT_EQ(Text(plan->arena), "0+256T+3840R");
}

TEST(MemoryPlanTest, ComparesOverTheWholeDomain) {
  EXPECT_TRUE(NeverExceeds(Bytes(0, 0, 64), Bytes(0, 64, 0)));
  EXPECT_FALSE(NeverExceeds(Bytes(0, 64, 0), Bytes(0, 0, 64)));
  EXPECT_TRUE(NeverExceeds(Bytes(64, 0, 0), Bytes(0, 64, 0)));
  EXPECT_FALSE(NeverExceeds(Bytes(65, 0, 0), Bytes(0, 64, 0)));
  EXPECT_TRUE(NeverExceeds(Bytes(-64, 64, 0), Bytes(0, 64, 0)));
}

TEST(MemoryPlanTest, RefusesSizesThatOverflow) {
  const int64_t huge = int64_t{1} << 59;
  absl::StatusOr<MemoryPlan> plan =
      PlanMemory({{"a", Bytes(0, huge, 0), 0, 1}, {"b", Bytes(0, huge, 0), 0, 1}});
  EXPECT_EQ(plan.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(plan.status().message()), HasSubstr("%b: "));
}

TEST(MemoryPlanTest, TheCheckSeesOverlapAndOverrun) {
  const std::vector<BufferUse> buffers = {{"a", Bytes(0, 64, 0), 0, 1},
                                          {"b", Bytes(0, 0, 64), 1, 2}};
  MemoryPlan plan{{Bytes(0, 0, 0), Bytes(0, 64, 0)}, Bytes(0, 64, 64)};
  EXPECT_TRUE(CheckMemoryPlan(buffers, plan).ok());
  plan.offsets[1] = Bytes(0, 0, 64);  // apart at T = R only
  EXPECT_THAT(std::string(CheckMemoryPlan(buffers, plan).message()), HasSubstr("overlap"));
  plan = {{Bytes(0, 0, 0), Bytes(0, 64, 0)}, Bytes(0, 128, 0)};
  EXPECT_TRUE(CheckMemoryPlan(buffers, plan).ok());
  plan.arena = Bytes(64, 64, 0);
  EXPECT_THAT(std::string(CheckMemoryPlan(buffers, plan).message()), HasSubstr("outside"));
}

// Random lifetimes and sizes, looked at for many T and R byte by byte of their ends.
TEST(MemoryPlanTest, NoTwoLiveBuffersOverlap) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    auto below = [&random](uint32_t limit) { return static_cast<int>(random() % limit); };
    std::vector<BufferUse> buffers;
    const int count = 1 + below(24);
    for (int i = 0; i < count; ++i) {
      BufferUse buffer;
      buffer.name = std::to_string(i);
      const int kind = below(4);
      buffer.bytes = Bytes(kind == 0 ? below(1000) : 0, kind != 1 ? 4 * below(300) : 0,
                           kind == 1 || kind == 2 ? 4 * below(300) : 0);
      buffer.first_launch = below(20);
      buffer.last_launch = buffer.first_launch + below(8);
      buffers.push_back(buffer);
    }
    absl::StatusOr<MemoryPlan> plan = PlanMemory(buffers);
    ASSERT_TRUE(plan.ok()) << plan.status();
    ASSERT_TRUE(CheckMemoryPlan(buffers, *plan).ok()) << seed;
    for (int64_t t : {1, 2, 3, 17, 512, 100000}) {
      for (int64_t r : {int64_t{1}, int64_t{2}, t / 2, t - 1, t}) {
        if (r < 1 || r > t) continue;
        int64_t sum = 0;
        for (size_t i = 0; i < buffers.size(); ++i) {
          const int64_t begin = plan->offsets[i].At(t, r), bytes = buffers[i].bytes.At(t, r);
          ASSERT_GE(begin, 0);
          ASSERT_EQ(begin % 64, 0);
          ASSERT_LE(begin + bytes, plan->arena.At(t, r));
          for (int64_t part :
               {buffers[i].bytes.constant, buffers[i].bytes.t * t, buffers[i].bytes.r * r}) {
            sum += part + 64 * std::max(t, r);  // at most 63 bytes of rounding for each row
          }
          for (size_t j = 0; j < i; ++j) {
            if (buffers[i].first_launch > buffers[j].last_launch ||
                buffers[j].first_launch > buffers[i].last_launch) {
              continue;
            }
            const int64_t other = plan->offsets[j].At(t, r);
            ASSERT_TRUE(begin + bytes <= other || other + buffers[j].bytes.At(t, r) <= begin)
                << "seed " << seed << " T " << t << " R " << r << " buffers " << i << ", " << j;
          }
        }
        ASSERT_LE(plan->arena.At(t, r), sum);
      }
    }
  }
}

}  // namespace
}  // namespace quire
