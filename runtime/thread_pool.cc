#include "runtime/thread_pool.h"

#include <sched.h>

#include <algorithm>

namespace quire {
namespace {

// About 20 us on current cores: longer than the gaps inside a step, shorter than a scheduler's
// slice.
constexpr int kSpins = 2000;

void Relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

}  // namespace

int UsableCores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (sched_getaffinity(0, sizeof(cores), &cores) == 0) return std::max(1, CPU_COUNT(&cores));
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

ThreadPool::ThreadPool(int threads) : spins_(threads <= UsableCores() ? kSpins : 0) {
  for (int thread = 1; thread < threads; ++thread) {
    workers_.emplace_back([this, thread] { Work(thread); });
  }
}

ThreadPool::~ThreadPool() {
  stop_ = true;
  run_.fetch_add(1, std::memory_order_release);
  run_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

uint32_t ThreadPool::AwaitChange(const std::atomic<uint32_t>& word, uint32_t old) const {
  for (int spin = 0; spin < spins_; ++spin) {
    const uint32_t now = word.load(std::memory_order_acquire);
    if (now != old) return now;
    Relax();
  }
  word.wait(old, std::memory_order_acquire);
  return word.load(std::memory_order_acquire);
}

void ThreadPool::Work(int thread) {
  uint32_t seen = 0;
  while (true) {
    seen = AwaitChange(run_, seen);
    if (stop_) return;
    (*work_)(thread);
    Barrier();
  }
}

void ThreadPool::Run(absl::FunctionRef<void(int)> work) {
  if (workers_.empty()) return work(0);
  work_ = &work;
  run_.fetch_add(1, std::memory_order_release);
  run_.notify_all();
  work(0);
  Barrier();
}

void ThreadPool::Barrier() {
  if (workers_.empty()) return;
  const uint32_t phase = phase_.load(std::memory_order_relaxed);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == static_cast<uint32_t>(threads())) {
    arrived_.store(0, std::memory_order_relaxed);
    phase_.store(phase + 1, std::memory_order_release);
    phase_.notify_all();
  } else {
    AwaitChange(phase_, phase);
  }
}

void ThreadPool::ForEach(int64_t count, absl::FunctionRef<void(int64_t)> item) {
  std::atomic<int64_t> next{0};
  Run([&](int) {
    for (int64_t i = next.fetch_add(1); i < count; i = next.fetch_add(1)) item(i);
  });
}

}  // namespace quire
