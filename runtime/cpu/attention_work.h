// The work list of one attention kernel for one step; all layers with that kernel share it.
//
// Shapes:  an item is some queries of one KV head of one sequence, over all splits of their context
//          or over one.
// Where there are enough queries for all threads, items have all splits and nothing is merged;
// otherwise (few tokens, long contexts) each split is an item and a second list merges them.
#ifndef QUIRE_RUNTIME_CPU_ATTENTION_WORK_H_
#define QUIRE_RUNTIME_CPU_ATTENTION_WORK_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "codegen/cpu/abi.h"
#include "codegen/spec.h"
#include "runtime/cpu/host_memory.h"
#include "runtime/device.h"

namespace quire {

class AttentionWork {
 public:
  explicit AttentionWork(const AttentionSpec& spec) : spec_(spec) {}

  // RESOURCE_EXHAUSTED when partial sums find no memory. Block tables are read until the next call.
  absl::Status Prepare(absl::Span<const SequenceRows> sequences, int64_t page_bytes, int threads);

  absl::Span<const AttentionItem> items() const { return items_; }
  absl::Span<const AttentionItem> merges() const { return merges_; }

 private:
  void Add(const SequenceRows& sequence, int64_t page_bytes, bool by_split);

  const AttentionSpec spec_;
  std::vector<AttentionItem> items_, merges_;
  // Where an item's partial sums lie in partial_, -1 for none.
  std::vector<int64_t> item_places_, merge_places_;
  int64_t partial_bytes_ = 0;
  HostMemory partial_;
};

}  // namespace quire

#endif  // QUIRE_RUNTIME_CPU_ATTENTION_WORK_H_
