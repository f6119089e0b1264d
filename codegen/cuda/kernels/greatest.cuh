// The greatest logit of each row: what a greedy choice needs, so that the logits can stay.
//
// Constants expected: kColumns.
//
// Work:      block b takes row b; a thread takes every kThreads-th group of four columns, or column.
// Order:     none that matters: of equal logits the lowest id, wherever it is.
// Shared memory: [kWarps] Greatest.
#ifndef QUIRE_GREATEST_CUH_
#define QUIRE_GREATEST_CUH_

#include "prelude.cuh"

struct Greatest {
  int id;
  float logit;
  int is_sound;  // neither NaN nor +infinity
};

template <int kThreads>
struct GreatestOfRows {
  static constexpr int kWarps = kThreads / kWarpThreads;
  static constexpr int kSharedBytes = kWarps * static_cast<int>(sizeof(Greatest));
  static_assert(kWarps >= 1 && kWarps <= kWarpThreads && kThreads % kWarpThreads == 0);

  static DEVICE Greatest Nothing() { return {0x7fffffff, FromBits(0xff800000u), 1}; }

  static DEVICE void Take(Greatest& best, const Greatest& other) {
    const bool is_greater = other.logit > best.logit;
    if (is_greater || (other.logit == best.logit && other.id < best.id)) {
      best.id = other.id;
      best.logit = other.logit;
    }
    best.is_sound &= other.is_sound;
  }

  static DEVICE void TakeOne(Greatest& best, int id, float logit) {
    constexpr float kMost = 3.402823466e38f;
    Take(best, {id, logit, logit <= kMost ? 1 : 0});
  }

  static DEVICE void OfWarp(Greatest& best, int lane) {
    for (int mask = kWarpThreads / 2; mask > 0; mask /= 2) {
      const int from = lane ^ mask;
      Greatest other;
      other.id = static_cast<int>(Shuffle(static_cast<uint32_t>(best.id), from));
      other.logit = FromBits(Shuffle(Bits(best.logit), from));
      other.is_sound = static_cast<int>(Shuffle(static_cast<uint32_t>(best.is_sound), from));
      Take(best, other);
    }
  }

  static DEVICE void Run(const float* logits, Greatest* greatest) {
    WaitForPriorGrid();
    const int thread = static_cast<int>(threadIdx.x);
    const int lane = thread % kWarpThreads, warp = thread / kWarpThreads;
    const int row = static_cast<int>(blockIdx.x);
    const float* columns = logits + static_cast<int64_t>(row) * kColumns;
    Greatest best = Nothing();
    if constexpr (kColumns % 4 == 0) {
      for (int i = thread; i < kColumns / 4; i += kThreads) {
        float four[4];
        LoadFromL2(four, columns + 4 * i);
        for (int j = 0; j < 4; ++j) TakeOne(best, 4 * i + j, four[j]);
      }
    } else {
      for (int i = thread; i < kColumns; i += kThreads) TakeOne(best, i, columns[i]);
    }
    OfWarp(best, lane);
    auto* of_warps = reinterpret_cast<Greatest*>(SharedMemory());
    if (lane == 0) of_warps[warp] = best;
    SyncBlock();
    if (warp != 0) return;
    best = lane < kWarps ? of_warps[lane] : Nothing();
    OfWarp(best, lane);
    if (lane == 0) greatest[row] = best;
  }
};

#endif  // QUIRE_GREATEST_CUH_
