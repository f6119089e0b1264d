// Pages of keys and values for every live sequence.
//
// A sequence is a block table over the pages of one pool; a page holds page_tokens tokens of every
// layer. Sequences that were forked, or that start alike, share pages. A full page stays findable
// after its last sequence is released, until its page is needed for something else.
//
// Units:   lengths in tokens; page numbers are the pool's.
// Invariants (Verify() checks them):
//   (1) a page is free, or kept, or in at least one block table: exactly one of the three;
//   (2) refs(page) is the number of block tables that hold it;
//   (3) a sequence of n tokens holds ceil(n / page_tokens) pages;
//   (4) a page that Extend() hands out for writing is in one block table only and not findable;
//   (5) a findable page is full, and its tokens and those before it are the prefix it is found by;
//   (6) a kept page is findable.
// Errors:  RESOURCE_EXHAUSTED when no page is free, and nothing has changed; INVALID_ARGUMENT on an
//          unknown sequence.
// Owner:   owns the pages; sequences are ids, freed by Release().
// Source:  paging follows Kwon et al. 2023 (arXiv 2309.06180), sections 4.1-4.3.
#ifndef QUIRE_RUNTIME_KV_CACHE_H_
#define QUIRE_RUNTIME_KV_CACHE_H_

#include <cstdint>
#include <list>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/device.h"
#include "runtime/prefix_index.h"
#include "runtime/slot_map.h"

namespace quire {

class KvCache {
 public:
  using SequenceId = int64_t;

  // `pool` must outlive the cache.
  KvCache(PagePool* pool, int32_t page_tokens);
  KvCache(const KvCache&) = delete;
  KvCache& operator=(const KvCache&) = delete;

  // `root` is where prefixes begin: sequences that start from different ones share no pages,
  // however alike their tokens are. Those over different encoder inputs are such. A sequence
  // without tokens.
  SequenceId Create(PrefixIndex::Node root = PrefixIndex::kRoot);
  // A sequence whose first tokens are the longest run of findable pages that `ids` starts with, but
  // not all of `ids`: the last one is left to compute, since its logits are wanted.
  SequenceId CreateWithPrefix(absl::Span<const int32_t> ids,
                              PrefixIndex::Node root = PrefixIndex::kRoot);
  // What CreateWithPrefix would find.
  struct Prefix {
    int32_t tokens = 0;
    int32_t kept_pages = 0;  // of its pages, those that count as available until then
  };
  Prefix FindPrefix(absl::Span<const int32_t> ids,
                    PrefixIndex::Node root = PrefixIndex::kRoot) const;
  // A sequence with the same tokens. Pages are shared until one of both writes to them.
  absl::StatusOr<SequenceId> Fork(SequenceId sequence);
  absl::Status Release(SequenceId sequence);

  // Makes room for `tokens` more; copies the last page first when it is shared and not full.
  absl::Status Extend(SequenceId sequence, int32_t tokens);
  // Pages that Extend would take.
  int32_t PagesToExtend(SequenceId sequence, int32_t tokens) const;
  // Says what the step wrote into that room, in order; full pages become findable.
  absl::Status Commit(SequenceId sequence, absl::Span<const int32_t> ids);

  // 0 and empty for an unknown sequence. The block table is valid until the sequence changes.
  int32_t tokens(SequenceId sequence) const;
  absl::Span<const int32_t> pages(SequenceId sequence) const;

  int32_t page_tokens() const { return page_tokens_; }
  int32_t total_pages() const { return static_cast<int32_t>(refs_.size()); }
  // Pages that a sequence can get, free or kept.
  int32_t available_pages() const { return static_cast<int32_t>(free_.size() + kept_.size()); }
  int32_t kept_pages() const { return static_cast<int32_t>(kept_.size()); }
  int64_t copied_pages() const { return copied_pages_; }    // by copy-on-write, since the start
  int64_t reused_tokens() const { return reused_tokens_; }  // found by prefix, since the start
  int32_t PagesFor(int64_t tokens) const {
    return static_cast<int32_t>((tokens + page_tokens_ - 1) / page_tokens_);
  }

  // INTERNAL naming the invariant that does not hold. For tests.
  absl::Status Verify() const;

 private:
  struct Sequence {
    std::vector<int32_t> pages;
    int32_t tokens = 0;                           // with the room that Extend made
    int32_t committed = 0;                        // of these, known by id
    PrefixIndex::Node node = PrefixIndex::kRoot;  // of the last full page
    std::vector<int32_t> tail;                    // ids behind it
  };

  absl::StatusOr<Sequence*> Find(SequenceId sequence);
  std::vector<PrefixIndex::Entry> Match(absl::Span<const int32_t> ids,
                                        PrefixIndex::Node root) const;
  bool CopiesLastPage(const Sequence& sequence, int32_t tokens) const;
  int32_t TakePage();  // REQUIRES: available_pages() > 0
  void Hold(int32_t page);
  void Drop(int32_t page);

  PagePool* const pool_;
  const int32_t page_tokens_;
  std::vector<int32_t> refs_;
  std::vector<int32_t> free_;
  std::list<int32_t> kept_;  // findable pages of no sequence, the next to be reused first
  absl::flat_hash_map<int32_t, std::list<int32_t>::iterator> kept_at_;
  PrefixIndex index_;
  SlotMap<Sequence> sequences_;
  int64_t copied_pages_ = 0, reused_tokens_ = 0;
};

}  // namespace quire

#endif  // QUIRE_RUNTIME_KV_CACHE_H_
