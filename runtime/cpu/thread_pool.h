// Threads that run one job together, and the line of tasks that they walk in it.
//
// A job is a fixed line of tasks; a task is cut into chunks that any thread may take, and begins
// when all chunks of the task before are done. No thread is waited for that holds no chunk: where a
// core is taken away, the others finish the job without it, and it catches up in a later one.
// Therefore a worker may touch what belongs to a job only while it holds a chunk of it.
//
// Threads spin for a short time for the next task, then yield; between jobs they sleep. When
// threads outnumber the cores of the process they do not spin.
#ifndef QUIRE_RUNTIME_CPU_THREAD_POOL_H_
#define QUIRE_RUNTIME_CPU_THREAD_POOL_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "absl/types/span.h"

namespace quire {

// Cores that this process may run on.
int AvailableCores();

class TaskLine;

class ThreadPool {
 public:
  // `threads`: with the caller of Run; fewer where the system does not start so many.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Runs every chunk of every task of `line`, on the caller's thread too; returns when all are
  // done. One Run at a time. Workers may still look at `line` afterwards: see Quiesce.
  void Run(TaskLine& line);
  // Returns when no worker looks at a line any more; before a TaskLine goes away.
  void Quiesce();

 private:
  void Work(int thread);
  void WaitForJob(uint32_t seen);

  const bool spins_;
  std::vector<std::thread> workers_;
  std::atomic<uint32_t> job_{0};  // number of the job; the last one ends the workers
  std::atomic<TaskLine*> line_{nullptr};
  std::atomic<bool> stopping_{false};
  std::atomic<int> busy_{0};  // workers that may look at line_
};

// The tasks of one kind of job, used again and again.
class TaskLine {
 public:
  // Called for each chunk, on any thread.
  using RunChunk = std::function<void(int task, int chunk, int chunks, int thread)>;

  TaskLine(int tasks, RunChunk run);

  // Chunks of each task of the next Run; 0 for a task that is left out.
  absl::Span<int32_t> chunks() { return absl::MakeSpan(chunks_); }

 private:
  friend class ThreadPool;

  // Both words: number of the job in the high half, a count in the low half. A word of an older
  // job counts as zero, so nothing is reset between jobs.
  struct alignas(64) Counters {
    std::atomic<uint64_t> taken{0}, done{0};
  };

  void Publish(uint32_t job);
  void RunAlone();
  // Takes part in job `job` until it is over.
  void Join(uint32_t job, int thread, bool spins);
  static bool Take(std::atomic<uint64_t>& word, uint32_t job, uint32_t limit, uint32_t* number);
  bool WaitUntilDone(size_t task, uint32_t job, uint32_t count, bool spins);

  const RunChunk run_;
  std::vector<int32_t> chunks_;
  std::vector<std::atomic<uint64_t>> published_;  // chunks_ with the number of the job
  std::vector<Counters> counters_;
};

}  // namespace quire

#endif  // QUIRE_RUNTIME_CPU_THREAD_POOL_H_
