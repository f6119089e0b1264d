// Decides what a step computes: which sequences, and how many tokens of each.
//
// A step takes, within its token budget: one token of every sequence that only lacks one, in order
// of arrival; then chunks of those that lack more, up to the next image that a row would see; then
// sequences that wait, while their whole prompt fits into free pages beside what the running ones
// are known to need. When a running sequence finds no page, the latest arrival is preempted: its
// pages are released, it waits again, at the front, and is computed anew; the tokens it has chosen
// stay, and so does its encoder input.
//
// Invariants:
//   (1) a sequence waits, or runs, or is unknown; it holds pages exactly when it runs, and its
//       encoder input from when it first ran;
//   (2) the earliest arrival is never preempted, so every step makes progress while each sequence
//       alone fits into the cache (runtime/request_check.h sees to that);
//   (3) running and due sequences together are at most max_sequences.
// Errors:  those of the cache other than RESOURCE_EXHAUSTED.
// Owner:   sequences belong to the caller, and must be removed before they are destroyed.
#ifndef QUIRE_RUNTIME_SCHEDULER_H_
#define QUIRE_RUNTIME_SCHEDULER_H_

#include <cstdint>
#include <deque>
#include <vector>

#include "absl/status/status.h"
#include "runtime/encoder_cache.h"
#include "runtime/kv_cache.h"
#include "runtime/sequence.h"

namespace quire {

struct SchedulerOptions {
  int32_t max_sequences = 64;
  int32_t step_tokens = 512;   // of all sequences in a step
  int32_t chunk_tokens = 0;    // of one sequence in a step; 0: no limit of its own
  bool reuse_prefixes = true;  // begin with pages that hold the same tokens already
};

struct ScheduledRows {
  Sequence* sequence = nullptr;
  int32_t rows = 0;
};

class Scheduler {
 public:
  // `encoder`: of a model with one, otherwise null. Both must outlive the scheduler.
  Scheduler(KvCache* cache, EncoderCache* encoder, const SchedulerOptions& options)
      : cache_(cache), encoder_(encoder), options_(options) {}

  // The sequence waits, behind all others.
  void Add(Sequence* sequence);
  // `fork`, a copy of the running `sequence` but for its pages, runs right behind it.
  absl::Status Fork(Sequence* sequence, Sequence* fork);
  // Releases its pages, and its encoder input.
  absl::Status Remove(Sequence* sequence);

  // The rows of the next step; room for them is made in the cache. Empty when nothing is left to
  // do.
  absl::StatusOr<std::vector<ScheduledRows>> Next();

  size_t waiting() const { return waiting_.size(); }
  size_t running() const { return running_.size(); }
  int64_t preemptions() const { return preemptions_; }

 private:
  // It has an encoder input, and does not hold it yet.
  bool LacksInput(const Sequence& sequence) const;
  // What running sequences are known to need.
  struct Due {
    int64_t sequences = 0;
    // Beside those that are due, one for each sequence: the next that its output will take.
    int64_t pages = 0;
    void Add(const KvCache& cache, const Sequence& sequence);
  };
  Due DueOfRunning() const;
  bool CanAdmit(const Sequence& sequence, const Due& due) const;
  absl::Status Admit();
  // Takes it off both queues and releases its pages; its encoder input stays.
  absl::Status TakeOff(Sequence* sequence);
  // Makes room for `rows` of `sequence`, preempting later arrivals; false if it was preempted
  // itself.
  absl::StatusOr<bool> MakeRoom(Sequence* sequence, int32_t rows);
  absl::Status Preempt(Sequence* sequence);

  KvCache* const cache_;
  EncoderCache* const encoder_;
  const SchedulerOptions options_;
  std::deque<Sequence*> waiting_;
  std::vector<Sequence*> running_;  // in order of arrival
  std::vector<ScheduledRows> step_;
  int64_t preemptions_ = 0;
};

}  // namespace quire

#endif  // QUIRE_RUNTIME_SCHEDULER_H_
