#include "runtime/thread_pool.h"

#include <numeric>

#include "gtest/gtest.h"

namespace quire {
namespace {

class ThreadPoolTest : public testing::TestWithParam<int> {};

TEST_P(ThreadPoolTest, EveryThreadRunsEveryTime) {
  ThreadPool pool(GetParam());
  std::vector<int> runs(static_cast<size_t>(pool.threads()), 0);
  for (int i = 0; i < 1000; ++i) {
    pool.Run([&](int thread) { ++runs[static_cast<size_t>(thread)]; });
  }
  for (int count : runs) EXPECT_EQ(count, 1000);
}

// Each phase sums what all threads wrote in the phase before.
TEST_P(ThreadPoolTest, BarriersOrderPhases) {
  ThreadPool pool(GetParam());
  const int threads = pool.threads();
  std::vector<int64_t> cells[2] = {std::vector<int64_t>(static_cast<size_t>(threads), 1),
                                   std::vector<int64_t>(static_cast<size_t>(threads), 0)};
  constexpr int kPhases = 300;
  pool.Run([&](int thread) {
    for (int phase = 0; phase < kPhases; ++phase) {
      const auto& from = cells[phase % 2];
      const int64_t sum = std::accumulate(from.begin(), from.end(), int64_t{0});
      cells[(phase + 1) % 2][static_cast<size_t>(thread)] = sum % 1000003 + thread;
      pool.Barrier();
    }
  });
  // The same, by one thread.
  std::vector<int64_t> expected(static_cast<size_t>(threads), 1);
  for (int phase = 0; phase < kPhases; ++phase) {
    const int64_t sum = std::accumulate(expected.begin(), expected.end(), int64_t{0});
    for (int thread = 0; thread < threads; ++thread) {
      expected[static_cast<size_t>(thread)] = sum % 1000003 + thread;
    }
  }
  EXPECT_EQ(cells[kPhases % 2], expected);
}

TEST_P(ThreadPoolTest, ForEachCallsEachItemOnce) {
  ThreadPool pool(GetParam());
  std::vector<std::atomic<int>> calls(777);
  pool.ForEach(777, [&](int64_t i) { ++calls[static_cast<size_t>(i)]; });
  for (const auto& count : calls) EXPECT_EQ(count, 1);
}

// More threads than this machine has cores included.
INSTANTIATE_TEST_SUITE_P(Counts, ThreadPoolTest, testing::Values(1, 2, 3, 8));

}  // namespace
}  // namespace quire
