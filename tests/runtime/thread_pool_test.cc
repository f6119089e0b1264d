#include "runtime/cpu/thread_pool.h"

#include <chrono>
#include <numeric>

#include "gtest/gtest.h"

namespace quire {
namespace {

class ThreadPoolTest : public testing::TestWithParam<int> {};

// Each task sums what the chunks of the task before wrote. Chunks, also zero of them, change from
// run to run.
TEST_P(ThreadPoolTest, TasksRunInOrderAndChunksOnce) {
  ThreadPool pool(GetParam());
  constexpr int kTasks = 12, kMost = 7;
  std::vector<int64_t> cells(kTasks * kMost);
  std::vector<int> calls(kTasks * kMost);
  std::vector<int32_t> counts(kTasks);
  TaskLine line(kTasks, [&](int task, int chunk, int chunks, int thread) {
    EXPECT_EQ(chunks, counts[static_cast<size_t>(task)]);
    EXPECT_LT(thread, GetParam());
    int64_t sum = chunk + 1;
    for (int cell = 0; cell < task * kMost; ++cell) sum += cells[static_cast<size_t>(cell)];
    cells[static_cast<size_t>(task * kMost + chunk)] = sum % 1000003;
    ++calls[static_cast<size_t>(task * kMost + chunk)];
  });
  for (int run = 0; run < 2000; ++run) {
    std::fill(cells.begin(), cells.end(), 0);
    std::fill(calls.begin(), calls.end(), 0);
    for (int task = 0; task < kTasks; ++task) {
      counts[static_cast<size_t>(task)] = (run * 5 + task * 3) % (kMost + 1);
    }
    std::copy(counts.begin(), counts.end(), line.chunks().begin());
    pool.Run(line);
    std::vector<int64_t> expected(cells.size());
    for (int task = 0; task < kTasks; ++task) {
      const int64_t before =
          std::accumulate(expected.begin(), expected.begin() + task * kMost, int64_t{0});
      for (int chunk = 0; chunk < kMost; ++chunk) {
        const bool runs = chunk < counts[static_cast<size_t>(task)];
        ASSERT_EQ(calls[static_cast<size_t>(task * kMost + chunk)], runs ? 1 : 0);
        if (runs) {
          expected[static_cast<size_t>(task * kMost + chunk)] = (before + chunk + 1) % 1000003;
        }
      }
    }
    ASSERT_EQ(cells, expected) << "run " << run;
  }
  pool.Quiesce();
}

// A thread that is late finds nothing to do, and breaks nothing in later runs.
TEST_P(ThreadPoolTest, LateThreadsAreNotWaitedFor) {
  ThreadPool pool(GetParam());
  std::atomic<int64_t> sum{0};
  TaskLine line(3, [&](int, int chunk, int, int thread) {
    // Every thread but the caller falls asleep now and then, so that it comes late to what follows.
    if (thread != 0 && chunk == 0) std::this_thread::sleep_for(std::chrono::microseconds(300));
    sum += chunk;
  });
  std::fill(line.chunks().begin(), line.chunks().end(), 4);
  for (int run = 0; run < 200; ++run) pool.Run(line);
  EXPECT_EQ(sum, 200 * 3 * 6);
  pool.Quiesce();
}

TEST_P(ThreadPoolTest, LinesMayComeAndGo) {
  ThreadPool pool(GetParam());
  for (int run = 0; run < 300; ++run) {
    std::atomic<int> calls{0};
    {
      TaskLine line(2, [&](int, int, int, int) { ++calls; });
      line.chunks()[0] = 3, line.chunks()[1] = run % 5;
      pool.Run(line);
      pool.Quiesce();
    }
    EXPECT_EQ(calls, 3 + run % 5);
  }
}

// More threads than this machine has cores included.
INSTANTIATE_TEST_SUITE_P(Counts, ThreadPoolTest, testing::Values(1, 2, 3, 8));

}  // namespace
}  // namespace quire
