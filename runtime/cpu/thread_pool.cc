#include "runtime/cpu/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <system_error>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace quire {
namespace {

// About 50 us: the longest that a task of one step keeps the others waiting in the common case.
constexpr int kTaskSpins = 2000;
// About 200 us between jobs: a caller that samples a token comes back sooner.
constexpr int kIdleSpins = 8000;

void Pause() {
#if defined(__x86_64__)
  _mm_pause();
#else
  std::this_thread::yield();
#endif
}

uint64_t Word(uint32_t job, uint32_t count) { return uint64_t{job} << 32 | count; }
uint32_t JobOf(uint64_t word) { return static_cast<uint32_t>(word >> 32); }
uint32_t CountOf(uint64_t word) { return static_cast<uint32_t>(word); }
// Job numbers wrap around.
bool IsLater(uint32_t a, uint32_t b) { return static_cast<int32_t>(a - b) > 0; }

}  // namespace

int AvailableCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

ThreadPool::ThreadPool(int threads) : spins_(threads <= AvailableCores()) {
  workers_.reserve(static_cast<size_t>(std::max(0, threads - 1)));
  try {
    for (int thread = 1; thread < threads; ++thread) {
      workers_.emplace_back([this, thread] { Work(thread); });
    }
  } catch (const std::system_error&) {
    // The system starts no more, and no job needs them.
  }
}

ThreadPool::~ThreadPool() {
  stopping_ = true;
  ++job_;
  job_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::Run(TaskLine& line) {
  if (workers_.empty()) return line.RunAlone();
  const uint32_t job = job_.load() + 1;
  line.Publish(job);
  line_ = &line;
  job_ = job;
  job_.notify_all();
  line.Join(job, 0, spins_);
}

void ThreadPool::Quiesce() {
  // A worker that comes after this finds no line.
  line_ = nullptr;
  while (busy_.load() != 0) std::this_thread::yield();
}

void ThreadPool::WaitForJob(uint32_t seen) {
  for (int spin = 0; spins_ && spin < kIdleSpins; ++spin) {
    if (job_.load(std::memory_order_acquire) != seen) return;
    Pause();
  }
  job_.wait(seen);
}

void ThreadPool::Work(int thread) {
  uint32_t seen = 0;
  while (true) {
    WaitForJob(seen);
    seen = job_.load();
    if (stopping_.load()) return;
    ++busy_;
    // Loaded after busy_ is raised: Quiesce sees this worker, or this worker sees no line.
    TaskLine* line = line_.load();
    if (line != nullptr) line->Join(seen, thread, spins_);
    --busy_;
  }
}

TaskLine::TaskLine(int tasks, RunChunk run)
    : run_(std::move(run)),
      chunks_(static_cast<size_t>(tasks)),
      published_(static_cast<size_t>(tasks)),
      counters_(static_cast<size_t>(tasks)) {}

void TaskLine::Publish(uint32_t job) {
  for (size_t task = 0; task < chunks_.size(); ++task) {
    published_[task].store(Word(job, static_cast<uint32_t>(chunks_[task])),
                           std::memory_order_relaxed);
  }
}

void TaskLine::RunAlone() {
  for (size_t task = 0; task < chunks_.size(); ++task) {
    for (int chunk = 0; chunk < chunks_[task]; ++chunk) {
      run_(static_cast<int>(task), chunk, chunks_[task], 0);
    }
  }
}

bool TaskLine::Take(std::atomic<uint64_t>& word, uint32_t job, uint32_t limit, uint32_t* number) {
  uint64_t now = word.load(std::memory_order_acquire);
  while (true) {
    if (IsLater(JobOf(now), job)) return false;
    *number = JobOf(now) == job ? CountOf(now) : 0;
    if (*number >= limit) return false;
    if (word.compare_exchange_weak(now, Word(job, *number + 1), std::memory_order_acq_rel)) {
      return true;
    }
  }
}

bool TaskLine::WaitUntilDone(size_t task, uint32_t job, uint32_t count, bool spins) {
  for (int spin = 0;; ++spin) {
    const uint64_t now = counters_[task].done.load(std::memory_order_acquire);
    if (IsLater(JobOf(now), job)) return false;
    if (JobOf(now) == job && CountOf(now) == count) return true;
    if (spins && spin < kTaskSpins) {
      Pause();
      continue;
    }
    // The job may be over without this worker, and its later tasks not begun anew.
    if (JobOf(published_[task].load(std::memory_order_acquire)) != job) return false;
    std::this_thread::yield();
  }
}

void TaskLine::Join(uint32_t job, int thread, bool spins) {
  for (size_t task = 0; task < published_.size(); ++task) {
    const uint64_t published = published_[task].load(std::memory_order_acquire);
    if (JobOf(published) != job) return;
    const uint32_t chunks = CountOf(published);
    if (chunks == 0) continue;
    Counters& counters = counters_[task];
    uint32_t chunk, finished;
    while (Take(counters.taken, job, chunks, &chunk)) {
      run_(static_cast<int>(task), static_cast<int>(chunk), static_cast<int>(chunks), thread);
      Take(counters.done, job, chunks, &finished);
    }
    if (!WaitUntilDone(task, job, chunks, spins)) return;
  }
}

}  // namespace quire
