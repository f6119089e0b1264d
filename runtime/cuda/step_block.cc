#include "runtime/cuda/step_block.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "codegen/cuda/kernels/step.cuh"

namespace quire {
namespace {

// Few of them, for few graphs; close enough that padding adds half at most.
constexpr int64_t kSmallBuckets[] = {1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128};
constexpr int64_t kBucketRows = 64;
constexpr int64_t kAlignment = 16;

int64_t Align(int64_t offset) { return (offset + kAlignment - 1) / kAlignment * kAlignment; }

int64_t PagesFor(int64_t tokens, int64_t page_tokens) {
  return (tokens + page_tokens - 1) / page_tokens;
}

// Block tables, one after another, and rows' places in them.
class Tables {
 public:
  Tables(int64_t page_tokens, int32_t* pages) : page_tokens_(page_tokens), pages_(pages) {}

  // Of a sequence's `tokens`.
  StepSequence Add(const SequenceRows& sequence, int64_t tokens, absl::Span<const int32_t> pages) {
    const auto count = static_cast<size_t>(PagesFor(tokens, page_tokens_));
    int32_t* const to = Begin(count);
    // A page before the window may be gone. Its entry names a page all the same: a tile that
    // begins before the window reads there what it then masks.
    std::transform(pages.begin(), pages.begin() + count, to,
                   [](int32_t page) { return std::max(page, 0); });
    return Of(sequence, tokens, to);
  }
  // Of pages that are numbered through, from `first` on.
  StepSequence AddRun(const SequenceRows& sequence, int64_t tokens, int32_t* first) {
    const auto count = static_cast<size_t>(PagesFor(tokens, page_tokens_));
    int32_t* const to = Begin(count);
    std::iota(to, to + count, *first);
    *first += static_cast<int32_t>(count);
    return Of(sequence, tokens, to);
  }
  void Place(const StepSequence& sequence, int32_t* slots) const {
    for (int32_t i = 0; i < sequence.rows; ++i) {
      const int64_t token = sequence.context - sequence.rows + i;
      const int64_t page = pages_[sequence.pages_begin + token / page_tokens_];
      slots[sequence.first_row + i] =
          static_cast<int32_t>(page * page_tokens_ + token % page_tokens_);
    }
  }
  int32_t end() const { return end_; }

 private:
  int32_t* Begin(size_t count) {
    int32_t* const begin = pages_ + end_;
    end_ += static_cast<int32_t>(count);
    return begin;
  }
  StepSequence Of(const SequenceRows& sequence, int64_t tokens, const int32_t* pages) const {
    return {sequence.first_row, sequence.rows, static_cast<int32_t>(tokens),
            static_cast<int32_t>(pages - pages_)};
  }

  const int64_t page_tokens_;
  int32_t* const pages_;
  int32_t end_ = 0;
};

}  // namespace

int64_t BucketOf(int64_t rows) {
  for (const int64_t bucket : kSmallBuckets) {
    if (rows <= bucket) return bucket;
  }
  return (rows + kBucketRows - 1) / kBucketRows * kBucketRows;
}

std::vector<int64_t> BucketsUpTo(int64_t rows) {
  std::vector<int64_t> buckets;
  for (int64_t bucket = 1;; bucket = BucketOf(bucket + 1)) {
    buckets.push_back(bucket);
    if (bucket >= rows) return buckets;
  }
}

StepLayout::StepLayout(int64_t T, int64_t R, StepCaches caches) {
  const auto after = [](int64_t offset, int64_t count, size_t bytes) {
    return Align(offset + count * static_cast<int64_t>(bytes));
  };
  const bool has_other = caches > StepCaches::kOwn;
  ids = after(header, 1, sizeof(StepHeader));
  positions = after(ids, T, sizeof(int32_t));
  own.token_slots = after(positions, T, sizeof(int32_t));
  logit_rows = after(own.token_slots, T, sizeof(int32_t));
  own.sequences = after(logit_rows, R, sizeof(int32_t));
  other.sequences = after(own.sequences, T, sizeof(StepSequence));
  other.token_slots = after(other.sequences, has_other ? T : 0, sizeof(StepSequence));
  pages = after(other.token_slots, caches == StepCaches::kOwnAndRun ? T : 0, sizeof(int32_t));
}

int64_t PagesOfStep(const Step& step, int64_t page_tokens, StepCaches caches) {
  int64_t pages = 0;
  if (caches == StepCaches::kNone) return pages;
  for (const SequenceRows& sequence : step.sequences) {
    const int64_t own = PagesFor(sequence.context_tokens, page_tokens);
    pages += own;
    if (caches == StepCaches::kOwnAndRun) pages += own;
    if (caches == StepCaches::kOwnAndEncoder) {
      pages += PagesFor(sequence.encoder_tokens, page_tokens);
    }
  }
  return pages;
}

int64_t WriteStepBlock(const Step& step, int64_t T, int64_t R, int64_t page_tokens,
                       StepCaches caches, uint8_t* block) {
  const StepLayout layout(T, R, caches);
  const auto copy = [&](int64_t offset, absl::Span<const int32_t> values, int64_t count) {
    auto* to = reinterpret_cast<int32_t*>(block + offset);
    std::fill(std::copy(values.begin(), values.end(), to), to + count, 0);
  };
  copy(layout.ids, step.ids, T);
  copy(layout.positions, step.positions, T);
  copy(layout.logit_rows, step.logit_rows, R);
  const auto sequences_at = [&](const StepLayout::Cache& cache) {
    return reinterpret_cast<StepSequence*>(block + cache.sequences);
  };
  const auto slots_at = [&](const StepLayout::Cache& cache) {
    return reinterpret_cast<int32_t*>(block + cache.token_slots);
  };
  const bool has_run = caches == StepCaches::kOwnAndRun;
  int32_t* const slots = slots_at(layout.own);
  int32_t* const run_slots = has_run ? slots_at(layout.other) : nullptr;
  std::fill(slots, slots + T, -1);
  if (has_run) std::fill(run_slots, run_slots + T, -1);
  StepSequence* own = sequences_at(layout.own);
  StepSequence* other = sequences_at(layout.other);
  Tables tables(page_tokens, reinterpret_cast<int32_t*>(block + layout.pages));
  int32_t run_pages = 0;
  for (const SequenceRows& sequence : step.sequences) {
    if (caches == StepCaches::kNone) {
      *own++ = {sequence.first_row, sequence.rows, sequence.context_tokens, 0};
      continue;
    }
    *own = tables.Add(sequence, sequence.context_tokens, sequence.pages);
    tables.Place(*own++, slots);
    if (caches == StepCaches::kOwnAndEncoder) {
      *other++ = tables.Add(sequence, sequence.encoder_tokens, sequence.encoder_pages);
    }
    if (has_run) {
      *other = tables.AddRun(sequence, sequence.context_tokens, &run_pages);
      tables.Place(*other++, run_slots);
    }
  }
  const StepHeader header = {static_cast<int32_t>(step.ids.size()),
                             static_cast<int32_t>(step.sequences.size()), tables.end(),
                             static_cast<int32_t>(step.logit_rows.size())};
  std::memcpy(block + layout.header, &header, sizeof header);
  return layout.pages + tables.end() * static_cast<int64_t>(sizeof(int32_t));
}

}  // namespace quire
