// Attention launches. With enough queries, an item is some queries of one KV head over their whole
// context; otherwise, as for one long sequence that generates, contexts are cut at their splits and
// merged after a barrier.
#include <algorithm>

#include "runtime/cpu_launch.h"

namespace quire {
namespace {

constexpr int64_t kItemQueries = 64;
constexpr int64_t kItemsPerThread = 4;

class AttentionLaunch : public CpuLaunch {
 public:
  AttentionLaunch(const plan::LaunchT& launch, const CpuKernel& kernel)
      : launch_(launch),
        spec_(std::get<AttentionSpec>(kernel.spec)),
        entry_(reinterpret_cast<AttentionEntry>(kernel.main)),
        merge_(reinterpret_cast<MergeEntry>(kernel.merge)) {
    scratch_bytes = kernel.scratch_bytes;
  }

  void Prepare(const CpuStep& step) override {
    items_.clear();
    merges_.clear();
    counter_.next = 0;
    merge_counter_.next = 0;
    for (const SequenceRows& sequence : step.step->sequences) AddItems(sequence, step);
    if (static_cast<int64_t>(items_.size()) < kItemsPerThread * step.threads && step.threads > 1)
      Split();
    // The longest first, so that the last items to be taken are short.
    std::stable_sort(
        items_.begin(), items_.end(),
        [](const AttentionItem& a, const AttentionItem& b) { return Cost(a) > Cost(b); });
  }

  void Run(const CpuStep& step, ThreadPool& pool, ThreadScratch& scratch) override {
    const auto* q = static_cast<const float*>(PlaceOf(launch_.inputs[0], step));
    const void* layer = step.pages + step.layout->layers[launch_.inputs[1].index()].k;
    auto* y = static_cast<float*>(PlaceOf(launch_.outputs[0], step));
    void* memory = scratch.Get(scratch_bytes);
    while (true) {
      const auto i = static_cast<size_t>(counter_.next.fetch_add(1, std::memory_order_relaxed));
      if (i >= items_.size()) break;
      entry_(q, layer, y, &items_[i], memory);
    }
    if (merges_.empty()) return;
    pool.Barrier();
    while (true) {
      const auto i =
          static_cast<size_t>(merge_counter_.next.fetch_add(1, std::memory_order_relaxed));
      if (i >= merges_.size()) return;
      merge_(y, &merges_[i], memory);
    }
  }

 private:
  static int64_t Cost(const AttentionItem& item) {
    return (item.query_end - item.query_begin) * (item.split_end - item.split_begin);
  }

  void AddItems(const SequenceRows& sequence, const CpuStep& step) {
    const int64_t group = spec_.hq / spec_.hkv;
    const int64_t queries = sequence.rows * group;
    for (int64_t begin = 0; begin < queries; begin += kItemQueries) {
      const int64_t end = std::min(queries, begin + kItemQueries);
      // One past the last token that the item's last query sees.
      const int64_t last_row = (end - 1) / group;
      const int64_t seen = spec_.causal ? sequence.context_tokens - (sequence.rows - 1 - last_row)
                                        : sequence.context_tokens;
      for (int64_t head = 0; head < spec_.hkv; ++head) {
        AttentionItem item = {};
        item.pages = sequence.pages.data();
        item.page_bytes = step.layout->page_bytes;
        item.first_row = sequence.first_row;
        item.rows = sequence.rows;
        item.context_tokens = sequence.context_tokens;
        item.kv_head = head;
        item.query_begin = begin;
        item.query_end = end;
        item.split_begin = 0;
        item.split_end = (seen + kSplitTokens - 1) / kSplitTokens;
        items_.push_back(item);
      }
    }
  }

  // Cuts every item of more than one split into items of one, whose partial results are merged.
  void Split() {
    std::vector<AttentionItem> whole;
    std::swap(whole, items_);
    size_t floats = 0;
    const auto partial_floats = [this](const AttentionItem& item) {
      return static_cast<size_t>((item.query_end - item.query_begin) * (spec_.dv + 2));
    };
    for (const AttentionItem& item : whole) {
      floats += partial_floats(item) * static_cast<size_t>(item.split_end - item.split_begin);
    }
    partials_.resize(floats);
    float* next = partials_.data();
    for (const AttentionItem& item : whole) {
      if (item.split_end - item.split_begin <= 1) {
        items_.push_back(item);
        continue;
      }
      merges_.push_back(item);
      merges_.back().partial = next;
      for (int64_t split = item.split_begin; split < item.split_end; ++split) {
        items_.push_back(item);
        items_.back().split_begin = split;
        items_.back().split_end = split + 1;
        items_.back().partial = next;
        next += partial_floats(item);
      }
    }
  }

  const plan::LaunchT& launch_;
  const AttentionSpec spec_;
  const AttentionEntry entry_;
  const MergeEntry merge_;
  std::vector<AttentionItem> items_, merges_;
  std::vector<float> partials_;
  PieceCounter counter_, merge_counter_;
};

}  // namespace

std::unique_ptr<CpuLaunch> MakeAttentionLaunch(const plan::LaunchT& launch,
                                               const CpuKernel& kernel) {
  return std::make_unique<AttentionLaunch>(launch, kernel);
}

}  // namespace quire
