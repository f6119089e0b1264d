// Copies of arrays in huge pages, made by a thread of its own while others read the arrays where
// they lie: in pages of 4 KB of the page cache, say. Finding free huge pages may take the system
// longer than everything else before a first token.
//
// Threads: all functions are called by one thread.
#ifndef QUIRE_RUNTIME_CPU_BACKGROUND_COPY_H_
#define QUIRE_RUNTIME_CPU_BACKGROUND_COPY_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <thread>
#include <vector>

#include "runtime/cpu/host_memory.h"

namespace quire {

class BackgroundCopy {
 public:
  BackgroundCopy() = default;
  BackgroundCopy(const BackgroundCopy&) = delete;
  BackgroundCopy& operator=(const BackgroundCopy&) = delete;
  // Gives up a copy that is under way.
  ~BackgroundCopy();

  // The array must outlive this. Copies lie in the order in which arrays were added, each aligned
  // to 64 bytes. REQUIRES: not started.
  void Add(const void* from, int64_t bytes);
  // Does nothing when it was called before, or when the copies would take more than half of the
  // memory that the system has left.
  void Start();
  // False for ever when there is no memory for the copies.
  bool IsDone() const { return is_done_.load(std::memory_order_acquire); }
  // The copy of an array that was added; of other pointers, themselves. REQUIRES: IsDone().
  const void* Find(const void* from) const;

 private:
  struct Array {
    const uint8_t* from;
    int64_t bytes, begin;  // of the copy in memory_
  };
  void Copy();

  std::vector<Array> arrays_;
  std::map<const void*, const uint8_t*> copies_;
  int64_t bytes_ = 0;
  bool is_started_ = false;
  HostMemory memory_;
  std::thread thread_;
  std::atomic<bool> is_stopping_{false}, is_done_{false};
};

}  // namespace quire

#endif  // QUIRE_RUNTIME_CPU_BACKGROUND_COPY_H_
