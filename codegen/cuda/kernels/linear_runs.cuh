// How a warp stores 16 rows of a tile of linear_warpgroup.cuh: bias, residual, rope or activation,
// rounding; to y, or to pages.
//
// A run of columns at a time is turned in the warp's shared memory (kBytes of it), so that lanes
// load and store chunks of a row that follow each other.
#ifndef QUIRE_LINEAR_RUNS_CUH_
#define QUIRE_LINEAR_RUNS_CUH_

#include "linear_act.cuh"
#include "linear_units.cuh"

template <int kTileRows>
struct LinearRuns {
  static constexpr int kThreadSums = kTileRows / 2;
  static constexpr int kHalves = kGated ? 2 : 1, kTileColumns = kTileRows / kHalves;  // of y
  using Sums = float[kThreadSums];
  // Whole lines of 128 bytes where that was measured to take less time: not by tiles of 192 rows.
  static constexpr bool kStoresLines =
      kStoresEights && sizeof(Output) == 2 && kTileColumns % 128 == 0;
  static constexpr int kRunColumns = kStoresLines ? 64 : kTileColumns % 32 == 0 ? 32 : 16;
  static constexpr int kRunRowBytes = kRunColumns * sizeof(Output);
  static constexpr int kBytes = 16 * kRunRowBytes;

  // What a lane loads and stores at once: 16 bytes, or an element where rows of y begin anywhere.
  template <bool kWords, typename T>
  struct ChunkOf {
    using Type = Words4;
  };
  template <typename T>
  struct ChunkOf<false, T> {
    using Type = T;
  };
  using Chunk = typename ChunkOf<kStoresEights, Output>::Type;
  static constexpr int kRuns = kTileColumns / kRunColumns;
  static_assert(kTileColumns % kRunColumns == 0);
  static constexpr int kChunkElements = sizeof(Chunk) / sizeof(Output);
  static constexpr int kUnitElements = 16 / sizeof(Output), kUnits = kRunColumns / kUnitElements;
  static constexpr int kRowChunks = kRunColumns / kChunkElements;
  // A lane loads and stores chunk `chunk` of every kRowStep-th row, from row `r` on.
  static constexpr int kRowStep = kWarpThreads / kRowChunks, kLaneChunks = 16 / kRowStep;
  struct alignas(2 * sizeof(Output)) Pair {
    Output values[2];
  };

  const LinearOperands& operands;
  uint8_t* staged;
  int rows, n;      // from row `r` on; the chunk's first column, in run 0
  int64_t element;  // its first in y
  int lane, r, chunk, columns;
  int y_columns;                          // those of `columns` that are not appended
  int slots[kAppends ? kLaneChunks : 1];  // of the lane's rows

  DEVICE LinearRuns(const LinearOperands& all, uint8_t* of_warp, int row, int column)
      : operands(all), staged(of_warp) {
    lane = threadIdx.x % kWarpThreads;
    r = lane / kRowChunks;
    chunk = lane % kRowChunks;
    rows = operands.rows - row - r;
    n = column + chunk * kChunkElements;
    columns = operands.n / kHalves;
    y_columns = columns - (Appends(operands) ? kAppendColumns : 0);
    element = int64_t{row + r} * y_columns + n;
    if constexpr (kAppends) {
#pragma unroll
      for (int i = 0; i < kLaneChunks; ++i) {
        slots[i] = -1;
        if (i * kRowStep >= rows || !Appends(operands)) continue;
        slots[i] = operands.slots[row + r + i * kRowStep];
      }
    }
  }
  // Units of 16 bytes are swizzled, so that those of the rows that are used together lie in
  // different banks.
  static DEVICE int UnitAt(int row, int number) {
    return row * kRunRowBytes + ((number ^ (kUnits == 4 ? row / 2 : row)) & (kUnits - 1)) * 16;
  }
  DEVICE Pair& PairOf(int j, int half) const {
    const int in_run = 8 * j + lane % 4 * 2;
    return *reinterpret_cast<Pair*>(staged + UnitAt(lane / 4, in_run / kUnitElements) +
                                    half * 8 * kRunRowBytes +
                                    in_run % kUnitElements * sizeof(Output));
  }
  DEVICE Chunk& Staged(int i) const {
    const int in_run = chunk * kChunkElements;
    return *reinterpret_cast<Chunk*>(staged + UnitAt(r + i * kRowStep, in_run / kUnitElements) +
                                     in_run % kUnitElements * sizeof(Output));
  }
  // More than 0 where this lane's `i`th chunk of run `run` is y's.
  DEVICE int Count(int run, int i) const {
    return i * kRowStep < rows ? columns - n - run * kRunColumns : 0;
  }
  DEVICE int64_t Element(int run, int i) const {
    return element + int64_t{i * kRowStep} * y_columns + run * kRunColumns;
  }
  DEVICE Chunk Residual(int run, int i) const {
    Chunk words = {};
    const int count = Count(run, i);
    const Output* from = operands.residual + Element(run, i);
    if (count > 0) words = *reinterpret_cast<const Chunk*>(from);
    return words;
  }
  DEVICE void Store(int run, int i) const {
    bool is_there = Count(run, i) > 0;
    Output* to = operands.y + Element(run, i);
    if constexpr (kAppends) {
      const int at = n + run * kRunColumns, appended = ColumnAt(operands, at) - y_columns;
      if constexpr (kTurns) to += appended + y_columns - at;
      if (appended >= 0) {
        is_there = is_there && slots[i] >= 0;
        to = PageElement(operands, slots[i], appended);
      }
    }
    if (is_there) *reinterpret_cast<Chunk*>(to) = Staged(i);
  }
  // This lane's biases of a run whose first column is `column`: two of each tile of 8 columns.
  struct alignas(8) Biases {
    float of[2];
  };
  static constexpr int kRunTiles = kRunColumns / 8;
  using RunBiases = Biases[kRunTiles * kHalves];
  DEVICE void LoadBiases(RunBiases& biases, int column) const {
#pragma unroll
    for (int i = 0; i < kRunTiles * kHalves; ++i) {
      const int at = column + i / kHalves * 8 + lane % 4 * 2;
      const int from = kTurns ? ColumnAt(operands, at) : at;
      const float* bias = operands.bias + i % kHalves * columns + from;
      if constexpr (kStoresEights) {
        biases[i] = from < columns ? *reinterpret_cast<const Biases*>(bias) : Biases{};
      } else {
        for (int e = 0; e < 2; ++e) biases[i].of[e] = from + e < columns ? bias[e] : 0;
      }
    }
  }
  DEVICE void AddBiases(float* sums, const RunBiases& biases) const {
#pragma unroll
    for (int i = 0; i < kRunTiles * kHalves * 4; ++i) {
      sums[i] = Add(sums[i], biases[i / 4].of[i % 2]);
    }
  }
  // The residual, which is staged.
  DEVICE void AddStaged(float* total) const {
#pragma unroll
    for (int i = 0; i < kRunColumns / 2; i += 2) {
      const Pair pair = PairOf(i / 4, i / 2 % 2);
      total[i] = Add(total[i], ToFloat(pair.values[0]));
      total[i + 1] = Add(total[i + 1], ToFloat(pair.values[1]));
    }
  }
  // What a run in a loop is asked for early: how it turns, or its residual, as there are not
  // registers for both.
  static constexpr bool kAddsResidual = !kHasAct && (!kAppends || kMayAppend);
  static constexpr int kRunTurns = kTurns ? 2 * kRunTiles / kTurnedTiles : 0;
  static constexpr int kTurnWords = 2 * kRunTurns * kTurnedTiles;
  static constexpr int kAskedWords =
      kAddsResidual && kTurnWords < 4 * kLaneChunks ? 4 * kLaneChunks : kTurnWords + 1;
  using Asked = uint32_t[kAskedWords];
  // Of a run whose first column stands at `at`.
  DEVICE void LoadTurns(Asked& asked, int at) const {
#pragma unroll
    for (int i = 0; i < kRunTurns; ++i) {
      const Rotations turns =
          RotationsAt(operands, operands.rows - rows - r + lane / 4 + 8 * (i % 2),
                      at + i / 2 * kTurnedTiles * 8 + lane % 4 * 2);
#pragma unroll
      for (int e = 0; e < kTurnedTiles; ++e) {
        asked[2 * (i * kTurnedTiles + e)] = Bits(turns.of[e].cosine);
        asked[2 * (i * kTurnedTiles + e) + 1] = Bits(turns.of[e].sine);
      }
    }
  }
  DEVICE void Ask(Asked& asked, int run, int column) const {
    if constexpr (kAddsResidual) {
      if (operands.residual != nullptr) {
#pragma unroll
        for (int i = 0; i < kLaneChunks; ++i) {
          const Chunk chunk = Residual(run, i);
          asked[4 * i] = chunk.x;
          asked[4 * i + 1] = chunk.y;
          asked[4 * i + 2] = chunk.z;
          asked[4 * i + 3] = chunk.w;
        }
        return;
      }
    }
    LoadTurns(asked, column + run * kRunColumns);
  }
  // Rounds, turns and stages that run.
  DEVICE void StageTurned(const float* sums, const Asked& asked, int at) const {
#pragma unroll
    for (int i = 0; i < kRunTurns; ++i) {
      const int j = i / 2 * kTurnedTiles, half = i % 2;
      Pair y[kTurnedTiles];
#pragma unroll
      for (int e = 0; e < 2 * kTurnedTiles; ++e) {
        y[e / 2].values[e % 2] = FromFloat<Output>(sums[4 * (j + e / 2) + 2 * half + e % 2]);
      }
      Rotations turns;
#pragma unroll
      for (int e = 0; e < kTurnedTiles; ++e) {
        const uint32_t* words = asked + 2 * (i * kTurnedTiles + e);
        turns.of[e] = {FromBits(words[0]), FromBits(words[1])};
      }
      TurnPairs(operands, at + 8 * j + lane % 4 * 2, turns, y);
#pragma unroll
      for (int e = 0; e < kTurnedTiles; ++e) PairOf(j + e, half) = y[e];
    }
  }
  // Sums and biases as they are: four lanes have 32 bytes of a row.
  DEVICE void StoreF32(const Sums& total, int column) const {
    const int row = operands.rows - rows - r + lane / 4;
    auto* y = reinterpret_cast<float*>(operands.y) + int64_t{row} * columns;
#pragma unroll
    for (int i = 0; i < kThreadSums; i += 2) {
      const int from = column + i / 4 * 8 + lane % 4 * 2;
      if (row + i / 2 % 2 * 8 >= operands.rows) continue;
      float* to = y + i / 2 % 2 * 8 * int64_t{columns} + from;
      Biases sums;
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const bool has = kHasBias && from + e < columns;
        sums.of[e] = Finish<F32>(total[i + e], has ? operands.bias[from + e] : 0, 0);
        if (!kStoresEights && from + e < columns) to[e] = sums.of[e];
      }
      if (kStoresEights && from < columns) *reinterpret_cast<Biases*>(to) = sums;
    }
  }
  DEVICE void Run(Sums& total, int column) const {
    // Logits are of few rows, and of no wider tiles.
    if constexpr (kMayStoreF32 && !kHasAct && kTileRows <= 128) {
      if (operands.y_is_f32 != 0) {
        StoreF32(total, column);
        return;
      }
    }
    constexpr int kTileSums = 4 * kHalves;
    // As much of the residual is asked for before the first is used as there are registers for.
    constexpr int kAhead = sizeof(Output) == 2 && kRuns > 1 ? (kRuns + 1) / 2 : 1;
    // Zeros, else their registers would be taken from one tile to the next.
    [[maybe_unused]] Chunk residual[kAhead][kLaneChunks] = {};
    // Those of a run are asked for while the one before it is stored, if there are registers.
    constexpr bool kAsksBiases = kHasBias && !kTurns;
    [[maybe_unused]] RunBiases biases[2];
    if constexpr (kAsksBiases) LoadBiases(biases[0], column);
    // In a loop these are asked for before the run that precedes theirs is stored.
    [[maybe_unused]] Asked asked = {};
    if constexpr (kTurns) Ask(asked, 0, column);
    // Of activations and turns, which are long, there is a loop: the next run's sums come first.
    constexpr bool kLoops = kHasAct || kTurns;
    constexpr int kRunSums = kRunTiles * kTileSums;
#pragma unroll(kLoops ? 1 : kRuns)
    for (int run = 0; run < kRuns; ++run) {
      float* sums = total + (kLoops ? 0 : run * kRunSums);
      if constexpr (kHasBias && kTurns) {
        LoadBiases(biases[0], column + run * kRunColumns);
        AddBiases(sums, biases[0]);
      }
      if constexpr (kAsksBiases) {
        if (run + 1 < kRuns) LoadBiases(biases[1], column + (run + 1) * kRunColumns);
        AddBiases(sums, biases[0]);
#pragma unroll
        for (int i = 0; i < kRunTiles * kHalves; ++i) biases[0][i] = biases[1][i];
      }
      SyncWarp();
      if (kAddsResidual && operands.residual != nullptr) {
        if constexpr (kTurns) {
#pragma unroll
          for (int i = 0; i < kLaneChunks; ++i) {
            const uint32_t* words = asked + 4 * i;
            Staged(i) = {words[0], words[1], words[2], words[3]};
          }
        } else if constexpr (kStoresEights) {
#pragma unroll
          for (int i = 0; i < kAhead * kLaneChunks; ++i) {
            const int ahead = i / kLaneChunks;
            if (run % kAhead > 0 || run + ahead >= kRuns) continue;
            residual[ahead][i % kLaneChunks] = Residual(run + ahead, i % kLaneChunks);
          }
#pragma unroll
          for (int i = 0; i < kLaneChunks; ++i) Staged(i) = residual[run % kAhead][i];
        } else {
#pragma unroll 4
          for (int i = 0; i < kLaneChunks; ++i) Staged(i) = Residual(run, i);
        }
        SyncWarp();
        AddStaged(sums);
      }
      if constexpr (kTurns) {
        StageTurned(sums, asked, column + run * kRunColumns);
        if (run + 1 < kRuns) Ask(asked, run + 1, column);
      }
#pragma unroll
      for (int i = 0; i < (kTurns ? 0 : 2 * kRunTiles); ++i) {
        const float* pair = sums + i / 2 * kTileSums + i % 2 * 2;
        Pair y;
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          if constexpr (kHasAct) {
            y.values[e] = FinishAct(pair[e], pair[kTileSums - 4 + e]);
          } else {
            y.values[e] = FromFloat<Output>(pair[e]);
          }
        }
        PairOf(i / 2, i % 2) = y;
      }
      SyncWarp();
#pragma unroll(kStoresEights ? kLaneChunks : 4)
      for (int i = 0; i < kLaneChunks; ++i) Store(run, i);
      if constexpr (kLoops) {
#pragma unroll
        for (int i = kRunSums; i < kThreadSums; ++i) total[i - kRunSums] = total[i];
      }
    }
    SyncWarp();
  }
};

#endif  // QUIRE_LINEAR_RUNS_CUH_
