#include "runtime/cuda/step_block.h"

#include <algorithm>
#include <cstring>

#include "codegen/cuda/kernels/step.cuh"

namespace quire {
namespace {

// Few of them, for few graphs; close enough that padding adds half at most.
constexpr int64_t kSmallBuckets[] = {1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128};
constexpr int64_t kBucketRows = 64;
constexpr int64_t kAlignment = 16;

int64_t Align(int64_t offset) { return (offset + kAlignment - 1) / kAlignment * kAlignment; }

int64_t PagesOf(const SequenceRows& sequence, int64_t page_tokens) {
  return (sequence.context_tokens + page_tokens - 1) / page_tokens;
}

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

StepLayout::StepLayout(int64_t T, int64_t R) {
  const auto after = [](int64_t offset, int64_t count, size_t bytes) {
    return Align(offset + count * static_cast<int64_t>(bytes));
  };
  ids = after(header, 1, sizeof(StepHeader));
  positions = after(ids, T, sizeof(int32_t));
  token_slots = after(positions, T, sizeof(int32_t));
  logit_rows = after(token_slots, T, sizeof(int32_t));
  sequences = after(logit_rows, R, sizeof(int32_t));
  pages = after(sequences, T, sizeof(StepSequence));
}

int64_t PagesOfStep(const Step& step, int64_t page_tokens) {
  int64_t pages = 0;
  for (const SequenceRows& sequence : step.sequences) pages += PagesOf(sequence, page_tokens);
  return pages;
}

int64_t WriteStepBlock(const Step& step, int64_t T, int64_t R, int64_t page_tokens,
                       uint8_t* block) {
  const StepLayout layout(T, R);
  const auto copy = [&](int64_t offset, absl::Span<const int32_t> values, int64_t count) {
    auto* to = reinterpret_cast<int32_t*>(block + offset);
    std::fill(std::copy(values.begin(), values.end(), to), to + count, 0);
  };
  copy(layout.ids, step.ids, T);
  copy(layout.positions, step.positions, T);
  copy(layout.logit_rows, step.logit_rows, R);
  auto* slots = reinterpret_cast<int32_t*>(block + layout.token_slots);
  auto* sequences = reinterpret_cast<StepSequence*>(block + layout.sequences);
  auto* pages = reinterpret_cast<int32_t*>(block + layout.pages);
  std::fill(slots, slots + T, -1);
  int32_t pages_end = 0;
  for (const SequenceRows& sequence : step.sequences) {
    *sequences++ = {sequence.first_row, sequence.rows, sequence.context_tokens, pages_end};
    if (page_tokens == 0) continue;
    const int64_t first = sequence.context_tokens - sequence.rows;
    for (int32_t i = 0; i < sequence.rows; ++i) {
      const int64_t token = first + i;
      const int64_t page = sequence.pages[static_cast<size_t>(token / page_tokens)];
      slots[sequence.first_row + i] =
          static_cast<int32_t>(page * page_tokens + token % page_tokens);
    }
    // A page before the window may be gone. Its entry names a page all the same: a tile that begins
    // before the window reads there what it then masks.
    for (const int32_t page :
         sequence.pages.first(static_cast<size_t>(PagesOf(sequence, page_tokens)))) {
      pages[pages_end++] = std::max(page, 0);
    }
  }
  const StepHeader header = {static_cast<int32_t>(step.ids.size()),
                             static_cast<int32_t>(step.sequences.size()), pages_end,
                             static_cast<int32_t>(step.logit_rows.size())};
  std::memcpy(block + layout.header, &header, sizeof header);
  return layout.pages + pages_end * static_cast<int64_t>(sizeof(int32_t));
}

}  // namespace quire
