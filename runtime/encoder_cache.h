// What encoders left for every live encoder input: pages of keys and values for cross-attention.
//
// Sequences, beams and samples with the same encoder input, whichever request they are of, share
// one entry. It is found by the input itself, compared and not only hashed, and freed with the last
// that holds it. Pages are written once, by the program `encode`; nothing appends to them.
//
// Units:   lengths in encoder tokens; page numbers are the pool's.
// Invariants (Verify() checks them):
//   (1) a page is free, or of one entry: exactly one of the two;
//   (2) an entry of n tokens has ceil(n / page_tokens) pages, and is held at least once.
// Errors:  RESOURCE_EXHAUSTED when pages do not suffice, and nothing has changed.
// Owner:   owns the pages; entries are ids, freed by the last Release().
#ifndef QUIRE_RUNTIME_ENCODER_CACHE_H_
#define QUIRE_RUNTIME_ENCODER_CACHE_H_

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/device.h"
#include "runtime/encoder_input.h"
#include "runtime/slot_map.h"

namespace quire {

class EncoderCache {
 public:
  // Never given twice.
  using EntryId = int64_t;

  // `pool` must outlive the cache.
  EncoderCache(PagePool* pool, int32_t page_tokens);
  EncoderCache(const EncoderCache&) = delete;
  EncoderCache& operator=(const EncoderCache&) = delete;

  // The entry of this input, made if there is none, held once more.
  absl::StatusOr<EntryId> Acquire(const EncoderInput& input);
  // Pages that Acquire would take.
  int32_t PagesToAcquire(const EncoderInput& input) const;
  // REQUIRES: a live entry, here and below.
  void Hold(EntryId entry) { ++entries_.Find(entry)->refs; }
  void Release(EntryId entry);

  // Whether `encode` ran on it.
  bool encoded(EntryId entry) const { return entries_.Find(entry)->encoded; }
  void set_encoded(EntryId entry) { entries_.Find(entry)->encoded = true; }
  // Valid until an entry comes or goes; what it spans, and pages, until this one goes.
  const EncoderInput& input(EntryId entry) const { return entries_.Find(entry)->input; }
  absl::Span<const int32_t> pages(EntryId entry) const { return entries_.Find(entry)->pages; }
  // Those from a run of the input on (runtime/encoder_input.h).
  absl::Span<const int32_t> pages(EntryId entry, size_t run) const;

  PagePool& pool() const { return *pool_; }
  int32_t page_tokens() const { return page_tokens_; }
  int32_t total_pages() const { return pool_->page_count(); }
  int32_t available_pages() const { return static_cast<int32_t>(free_.size()); }
  int32_t PagesFor(int64_t tokens) const {
    return static_cast<int32_t>((tokens + page_tokens_ - 1) / page_tokens_);
  }
  // Each run begins with a page of its own.
  int32_t PagesFor(const EncoderInput& input) const;

  // INTERNAL naming the invariant that does not hold. For tests.
  absl::Status Verify() const;

 private:
  struct Entry {
    EncoderInput input;
    std::vector<int32_t> pages;
    int32_t refs = 0;
    bool encoded = false;
  };

  PagePool* const pool_;
  const int32_t page_tokens_;
  std::vector<int32_t> free_;
  SlotMap<Entry> entries_;
  absl::flat_hash_map<EncoderInput, EntryId> by_input_;
};

}  // namespace quire

#endif  // QUIRE_RUNTIME_ENCODER_CACHE_H_
