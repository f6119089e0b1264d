#include "runtime/cpu/attention_work.h"

#include <algorithm>

#include "ir/status.h"

namespace quire {
namespace {

// Queries of an item at most: some tiles, so that keys come from the cache for all but the first.
constexpr int64_t kItemQueries = 64;
// Items that each thread should find, for the threads to end together.
constexpr int64_t kItemsPerThread = 4;

int64_t PiecesOf(int64_t count, int64_t piece) { return (count + piece - 1) / piece; }

}  // namespace

absl::Status AttentionWork::Prepare(absl::Span<const SequenceRows> sequences, int64_t page_bytes,
                                    int threads) {
  items_.clear(), item_places_.clear();
  merges_.clear(), merge_places_.clear();
  partial_bytes_ = 0;
  const int64_t group = spec_.hq / spec_.hkv;
  int64_t whole_items = 0;
  for (const SequenceRows& sequence : sequences) {
    whole_items += spec_.hkv * PiecesOf(sequence.rows * group, kItemQueries);
  }
  const bool too_few = threads > 1 && whole_items < kItemsPerThread * threads;
  for (const SequenceRows& sequence : sequences) {
    Add(sequence, page_bytes, too_few && sequence.context_tokens > kSplitTokens);
  }
  QUIRE_RETURN_IF_ERROR(partial_.Reserve(partial_bytes_));
  const auto place = [&](std::vector<AttentionItem>& items, const std::vector<int64_t>& places) {
    for (size_t i = 0; i < items.size(); ++i) {
      if (places[i] >= 0) items[i].partial = reinterpret_cast<float*>(partial_.data() + places[i]);
    }
  };
  place(items_, item_places_);
  place(merges_, merge_places_);
  return absl::OkStatus();
}

void AttentionWork::Add(const SequenceRows& sequence, int64_t page_bytes, bool by_split) {
  const int64_t group = spec_.hq / spec_.hkv, queries = sequence.rows * group;
  const int64_t pieces = PiecesOf(queries, kItemQueries);
  for (int64_t head = 0; head < spec_.hkv; ++head) {
    // The last queries see most: they come first, so that threads end together.
    for (int64_t piece = pieces; piece-- > 0;) {
      AttentionItem item{};
      item.pages = sequence.pages.data();
      item.page_bytes = page_bytes;
      item.first_row = sequence.first_row;
      item.rows = sequence.rows;
      item.context_tokens = sequence.context_tokens;
      item.kv_head = head;
      item.query_begin = piece * kItemQueries;
      item.query_end = std::min(queries, item.query_begin + kItemQueries);
      const int64_t before = sequence.context_tokens - sequence.rows;
      if (spec_.window != 0) {
        const int64_t first = before + item.query_begin / group + 1 - spec_.window;
        item.split_begin = std::max<int64_t>(0, first) / kSplitTokens;
      }
      const int64_t seen = spec_.causal ? before + (item.query_end - 1) / group + 1
                                        : int64_t{sequence.context_tokens};
      item.split_end = PiecesOf(seen, kSplitTokens);
      if (!by_split || item.split_end - item.split_begin == 1) {
        items_.push_back(item);
        item_places_.push_back(-1);
        continue;
      }
      merges_.push_back(item);
      merge_places_.push_back(partial_bytes_);
      const int64_t bytes = 4 * (spec_.dv + 2) * (item.query_end - item.query_begin);
      for (int64_t split = merges_.back().split_begin; split < merges_.back().split_end; ++split) {
        item.split_begin = split, item.split_end = split + 1;
        items_.push_back(item);
        item_places_.push_back(partial_bytes_);
        partial_bytes_ += bytes;
      }
    }
  }
}

}  // namespace quire
