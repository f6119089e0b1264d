// How bodies with tiles of kTokens rows of x by kTileRows rows of the weight share out a linear.
//
// A unit is one of the first `whole_tiles` tiles, or one of kPieces pieces of one of the others,
// parts of K that follow each other, so that the last round of tiles, or the only one, goes round
// all blocks. Blocks take units at the stride of the grid. Tiles run down bands of kBandTiles tiles
// of x, so that the blocks at work share rows of both operands in L2.
//
// Constants expected, beside those of linear.cuh: kStoresEights, whether n is a multiple of 8, so
// that rows of y begin at multiples of 16 bytes; kArrivalBytes.
#ifndef QUIRE_LINEAR_UNITS_CUH_
#define QUIRE_LINEAR_UNITS_CUH_

#include "linear.cuh"

// Whether y_is_f32 may be set.
constexpr bool kMayStoreF32 = sizeof(Output) == 2 && (!kAppends || kMayAppend);

template <int kTokens, int kTileRows, int kPieces = kParts>
struct LinearUnits {
  static_assert(kParts % kPieces == 0);
  static constexpr int kPieceParts = kParts / kPieces;
  static constexpr int kBandTiles = 2048 / kTokens;

  static DEVICE int RowTiles(const LinearOperands& operands) {
    return (operands.n + kTileRows - 1) / kTileRows;
  }

  // Of a box of x: where there are fewer rows than tiles have, no more than there are.
  static DEVICE int BoxBytes(const LinearOperands& operands) {
    const int tokens = operands.rows < kTokens ? (operands.rows + 7) / 8 * 8 : kTokens;
    return tokens * kStageRowBytes;
  }

  // Where a tile begins.
  struct Place {
    int token_begin, row_begin;

    DEVICE Place(const LinearOperands& operands, int tile) {
      const int token_tiles = (operands.rows + kTokens - 1) / kTokens;
      const int row_tiles = RowTiles(operands);
      const int band = tile / (kBandTiles * row_tiles);
      const int in_band = tile - band * (kBandTiles * row_tiles);
      const int left = token_tiles - band * kBandTiles;
      const int width = left < kBandTiles ? left : kBandTiles;
      row_begin = in_band / width * kTileRows;
      token_begin = (band * kBandTiles + in_band % width) * kTokens;
    }
  };

  static DEVICE int Count(const LinearOperands& operands) {
    const int tiles = (operands.rows + kTokens - 1) / kTokens * RowTiles(operands);
    return operands.whole_tiles + (tiles - operands.whole_tiles) * kPieces;
  }

  // What one unit is. Computed where it is asked for, as registers are few.
  struct Unit {
    int number, whole_tiles;

    DEVICE Unit(const LinearOperands& operands, int unit)
        : number(unit), whole_tiles(operands.whole_tiles) {}
    DEVICE bool whole() const { return number < whole_tiles; }
    // Its tile's number among those that are cut.
    DEVICE int cut_tile() const { return (number - whole_tiles) / kPieces; }
    DEVICE int tile() const { return whole() ? number : whole_tiles + cut_tile(); }
    DEVICE int first_part() const {
      return whole() ? 0 : (number - whole_tiles) % kPieces * kPieceParts;
    }
    DEVICE int end_part() const { return whole() ? kParts : first_part() + kPieceParts; }
  };

  // A place in the block's sequence of stages: unit after unit, in each part after part. What finds
  // a unit is long, so that a text is best with few calls of Next, which has all of it.
  struct Cursor {
    int unit, unit_count, part = 0, k = 0, part_end = 0;
    int token_begin = 0, row_begin = 0;  // of the tile

    // Before the block's first stage: as if at the end of a unit before its first.
    DEVICE void Rewind(const LinearOperands& operands) {
      unit_count = Count(operands);
      unit = static_cast<int>(blockIdx.x) - static_cast<int>(gridDim.x);
      part = kParts;
      k = part_end = 0;
    }
    // At the first stage that is not empty.
    DEVICE void Begin(const LinearOperands& operands) {
      Rewind(operands);
      SkipEmptyParts(operands);
    }
    DEVICE bool done() const { return unit >= unit_count; }

    DEVICE void EnterPart(const LinearOperands& operands) {
      k = PartBegin(operands.k, part);
      part_end = PartBegin(operands.k, part + 1);
    }
    DEVICE void EnterUnit(const LinearOperands& operands) {
      const Unit here(operands, unit);
      part = here.first_part();
      EnterPart(operands);
      const Place place(operands, here.tile());
      token_begin = place.token_begin;
      row_begin = place.row_begin;
    }
    DEVICE void SkipEmptyParts(const LinearOperands& operands) {
      while (!done() && k >= part_end) {
        if (part + 1 < Unit(operands, unit).end_part()) {
          ++part;
          EnterPart(operands);
        } else {
          unit += gridDim.x;
          if (!done()) EnterUnit(operands);
        }
      }
    }
    DEVICE void NextStage(const LinearOperands& operands) {
      k += kStageK;
      SkipEmptyParts(operands);
    }
    // To the next stage; whether there is one.
    DEVICE bool Next(const LinearOperands& operands) {
      NextStage(operands);
      return !done();
    }
  };
};

// Lane t of four holds elements 2t, 2t + 1 of each of four tiles of 8 columns; afterwards all 8 of
// tile t, in order.
DEVICE void GatherTile(float (&values)[4][2]) {
  const int t = threadIdx.x % 4;
#pragma unroll
  for (int bit = 1; bit <= 2; bit *= 2) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (j & bit) continue;
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const float sent = t & bit ? values[j][e] : values[j | bit][e];
        const float got = ShuffleXor(sent, bit);
        if (t & bit) {
          values[j][e] = got;
        } else {
          values[j | bit][e] = got;
        }
      }
    }
  }
}

// Finishes and stores eight columns from `n` of one row, as T; nothing outside y and pages.
template <typename T>
DEVICE void StoreEightAs(const LinearOperands& operands, int row, int n,
                         const float (&values)[4][2]) {
  constexpr bool kIsOutput = sizeof(T) == sizeof(Output);  // else there is no residual, nor pages
  const int64_t element = int64_t{row} * operands.n + n;
  const Output* residual = kIsOutput && !kAppends ? operands.residual : nullptr;
  if constexpr (kStoresEights) {
    struct alignas(16) Eight {
      T values[8];
    };
    struct alignas(16) Residuals {
      Output values[8];
    };
    Residuals residuals = {};
    T* to = reinterpret_cast<T*>(operands.y) + element;
    if constexpr (kIsOutput) to = OutputAt(operands, row, n);
    if (kAppends && to == nullptr) return;
    if (residual != nullptr) residuals = *reinterpret_cast<const Residuals*>(residual + element);
    Eight y;
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      y.values[e] = Finish<T>(values[e / 2][e % 2], kHasBias ? operands.bias[n + e] : 0,
                              ToFloat(residuals.values[e]));
    }
    *reinterpret_cast<Eight*>(to) = y;
  } else {
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      if (n + e >= operands.n) continue;
      reinterpret_cast<T*>(operands.y)[element + e] =
          Finish<T>(values[e / 2][e % 2], kHasBias ? operands.bias[n + e] : 0,
                    residual != nullptr ? ToFloat(residual[element + e]) : 0);
    }
  }
}
// The same where heads are turned: all lanes of a warp come here (TurnEight).
template <typename T>
DEVICE void StoreTurned(const LinearOperands& operands, int row, int at,
                        const float (&values)[4][2]) {
  const bool is_there = row < operands.rows && at < operands.n;
  const int n = ColumnAt(operands, at);
  EightOf<T> y;
#pragma unroll
  for (int e = 0; e < 8; ++e) {
    const float bias = kHasBias && is_there ? operands.bias[n + e] : 0;
    y.values[e] = Finish<T>(values[e / 2][e % 2], bias, 0);
  }
  TurnEight<T>(operands, row, at, is_there, y);
  if (!is_there) return;
  T* to = OutputAt(operands, row, n);
  if (to != nullptr) *reinterpret_cast<EightOf<T>*>(to) = y;
}
DEVICE void StoreEight(const LinearOperands& operands, int row, int n,
                       const float (&values)[4][2]) {
  if constexpr (kTurns) return StoreTurned<Output>(operands, row, n, values);
  if (row >= operands.rows || n >= operands.n) return;
  if (kMayStoreF32 && operands.y_is_f32 != 0) {
    StoreEightAs<F32>(operands, row, n, values);
  } else {
    StoreEightAs<Output>(operands, row, n, values);
  }
}

// Sums of one part, or the totals of all, that `kThreads` threads hold together: kWords each.
template <int kThreads, int kWords>
struct PartSums {
  static constexpr int64_t kBytes = int64_t{kParts} * kThreads * kWords * 4;

  // Leaves one part's sums in slot `slot` of the workspace; true in the threads that come last,
  // whose sums are then the total of all parts. Threads meet at barrier `id`; `flag` is theirs.
  static DEVICE bool Merge(const LinearOperands& operands, int slot, int part, int id,
                           uint32_t* flag, float (&sums)[kWords]) {
    constexpr int kFragments = kWords / 4;
    const int thread = threadIdx.x % kThreads;
    auto* arrivals = reinterpret_cast<uint32_t*>(operands.workspace) + slot;
    auto* parts =
        reinterpret_cast<float*>(operands.workspace + kArrivalBytes + slot * kBytes) + thread * 4;
    constexpr int kPartWords = kThreads * kWords;
#pragma unroll
    for (int i = 0; i < kFragments; ++i) {
      float words[4];
#pragma unroll
      for (int e = 0; e < 4; ++e) words[e] = sums[4 * i + e];
      StoreToL2(parts + part * kPartWords + i * kThreads * 4, words);
    }
    SyncThreads(id, kThreads);
    if (thread == 0) *flag = CountArrival(arrivals, 1);
    SyncThreads(id, kThreads);
    if (*flag != kParts - 1) return false;
    if (thread == 0) *arrivals = 0;
    // Four fragments at a time, where there are, so that sixteen loads are in flight; of many, beside
    // what finds pages, there are registers for two.
    constexpr int kBatch = kFragments < 4 ? kFragments : kAppends && kFragments > 8 ? 2 : 4;
    static_assert(kFragments % kBatch == 0);
#pragma unroll
    for (int begin = 0; begin < kFragments; begin += kBatch) {
      float loaded[kParts][kBatch][4];
#pragma unroll
      for (int i = 0; i < kParts * kBatch; ++i) {
        LoadFromL2(loaded[i / kBatch][i % kBatch],
                   parts + i / kBatch * kPartWords + (begin + i % kBatch) * kThreads * 4);
      }
#pragma unroll
      for (int i = 0; i < kBatch * 4; ++i) {
        float sum = loaded[0][i / 4][i % 4];
#pragma unroll
        for (int p = 1; p < kParts; ++p) sum = Add(sum, loaded[p][i / 4][i % 4]);
        sums[4 * begin + i] = sum;
      }
    }
    return true;
  }
};

// How two halves of K come together: sums, kWords each, that `kThreads` threads hold. The one that
// comes last adds what the other has left in the workspace, or is leaving there.
template <int kThreads, int kWords>
struct HalfSums {
  static constexpr int kFragments = kWords / 4, kSumWords = kThreads * kWords;
  static constexpr int kFragmentWords = kThreads * 4;  // from one of a thread's to the next
  // The first half's sum, the third part's and the last's.
  static constexpr int64_t kBytes = int64_t{3} * kSumWords * 4;

  // Of slot `slot` of the workspace, the tile's for these threads.
  static DEVICE float* SumAt(const LinearOperands& operands, int slot, int number) {
    return reinterpret_cast<float*>(operands.workspace + kArrivalBytes + slot * kBytes) +
           number * kSumWords + threadIdx.x % kThreads * 4;
  }
  static DEVICE void Leave(float* to, const float (&sums)[kWords]) {
#pragma unroll
    for (int i = 0; i < kFragments; ++i) {
      float words[4];
#pragma unroll
      for (int e = 0; e < 4; ++e) words[e] = sums[4 * i + e];
      StoreToL2(to + i * kFragmentWords, words);
    }
  }
  // Before the second half's last part: its first.
  static DEVICE void LeaveThird(const LinearOperands& operands, int slot,
                                const float (&sums)[kWords]) {
    Leave(SumAt(operands, slot, 1), sums);
  }

  // `sums` are of the first half or of the last part. True in the threads that come last, whose
  // sums are then the total. Threads meet at barrier `id`; `flag` is theirs.
  static DEVICE bool Merge(const LinearOperands& operands, int slot, bool is_second, int id,
                           uint32_t* flag, float (&sums)[kWords]) {
    constexpr uint32_t kLeft = 4;
    const int thread = threadIdx.x % kThreads;
    // One for each half that came, and kLeft when the first that came has left its sums.
    auto* arrivals = reinterpret_cast<uint32_t*>(operands.workspace) + slot;
    SyncThreads(id, kThreads);  // the flag of the tile before was read
    if (thread == 0) {
      uint32_t came = CountArrival(arrivals, 1);
      *flag = came;
      if (came > 0) {
        while (came < kLeft) came = CountArrival(arrivals, 0);
        *arrivals = 0;
      }
    }
    SyncThreads(id, kThreads);
    if (*flag == 0) {
      Leave(SumAt(operands, slot, is_second ? 2 : 0), sums);
      SyncThreads(id, kThreads);
      if (thread == 0) CountArrival(arrivals, kLeft);
      return false;
    }
    const float* left = SumAt(operands, slot, is_second ? 0 : 1);
    // Of many fragments half at a time, so that enough loads are in flight, in a loop that is not
    // unrolled, as texts take long to compile. What it has done it leaves behind the rest.
    constexpr int kBatch = kFragments > 8 ? kFragments / 2 : kFragments;
    static_assert(kFragments % kBatch == 0);
#pragma unroll 1
    for (int begin = 0; begin < kFragments; begin += kBatch) {
      float loaded[2 * kBatch][4];
#pragma unroll
      for (int i = 0; i < 2 * kBatch; ++i) {
        LoadFromL2(loaded[i], left + i % 2 * kSumWords + (begin + i / 2) * kFragmentWords);
      }
      float done[kBatch * 4];
#pragma unroll
      for (int i = 0; i < kBatch * 4; ++i) {
        const float first = loaded[i / 4 * 2][i % 4], second = loaded[i / 4 * 2 + 1][i % 4];
        done[i] = Add(Add(first, is_second ? second : sums[i]), is_second ? sums[i] : second);
      }
#pragma unroll
      for (int i = 0; i < kWords; ++i) {
        sums[i] = i + kBatch * 4 < kWords ? sums[(i + kBatch * 4) % kWords]
                                          : done[i + kBatch * 4 - kWords];
      }
    }
    return true;
  }
};

#endif  // QUIRE_LINEAR_UNITS_CUH_
