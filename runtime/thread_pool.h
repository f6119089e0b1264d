// Threads that run one function together, in phases.
//
// A thread that waits spins for some microseconds, since the next phase is usually that close, and
// then sleeps; it sleeps at once when there are more threads than cores to run them.
//
// Threads: Run is for one caller at a time; the caller is thread 0.
#ifndef QUIRE_RUNTIME_THREAD_POOL_H_
#define QUIRE_RUNTIME_THREAD_POOL_H_

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"

namespace quire {

// Cores that this process may use, at least 1.
int UsableCores();

class ThreadPool {
 public:
  // REQUIRES: threads >= 1.
  explicit ThreadPool(int threads);
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  ~ThreadPool();

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls work(thread) once on every thread and returns when all have returned.
  void Run(absl::FunctionRef<void(int thread)> work);
  // Called by every thread inside Run: returns when all have called it. What they wrote before is
  // seen by all after.
  void Barrier();
  // Calls item(i) once for each i in [0, count), on whichever thread is free. Not inside Run.
  void ForEach(int64_t count, absl::FunctionRef<void(int64_t i)> item);

 private:
  void Work(int thread);
  // Waits until `word` is not `old`; returns what it is.
  uint32_t AwaitChange(const std::atomic<uint32_t>& word, uint32_t old) const;

  const int spins_;
  const absl::FunctionRef<void(int)>* work_ = nullptr;  // of the current Run
  bool stop_ = false;
  alignas(64) std::atomic<uint32_t> run_{0};      // counts calls of Run
  alignas(64) std::atomic<uint32_t> arrived_{0};  // threads in the current barrier
  alignas(64) std::atomic<uint32_t> phase_{0};    // counts barriers that were passed
  std::vector<std::thread> workers_;
};

}  // namespace quire

#endif  // QUIRE_RUNTIME_THREAD_POOL_H_
