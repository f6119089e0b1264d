// A linear over many rows: tiles of kTokens rows of x by 128 rows of the weight, by mma.sync.
//
// Template:  kTokens rows of x a tile, shared by kTokenWarps x 4 warps of kTokens / kTokenWarps x
//            32 outputs each; kStages stages.
// Work:      a unit is one of the first `whole_tiles` tiles, or one part of K of one of the others,
//            so that the last round of tiles, or the only one, goes round all blocks. Blocks take
//            units at the stride of the grid. Tiles run down bands of kBandTiles tiles of x, so that
//            the blocks at work share rows of both operands in L2.
// Ring:      the block's, [tokens + 128 rows] x 64 k a stage, filled by cp.async kStages - 1 stages
//            ahead, over the ends of parts and units too. The operands of a step are read from it
//            during the step before, over stages' ends too.
// Dependent launch: the first stages of weights are asked for before the prior grid ends, x after.
// Reduction: a part is summed in registers, then added to the unit's total. The parts of a tile that
//            is cut are left in the workspace; the last of the four to arrive adds them in order.
// Shared memory, in bytes:
//   0              ring: [kStages][kTokens + 128 rows x 128], rows swizzled, those of x first
//   kRingBytes     the arrival number of a part
// Workspace: [kArrivalBytes] u32 a cut tile, zero before and after; then for each of them
//            [kParts][kSumWords] f32, a thread's own four together.
#ifndef QUIRE_LINEAR_TILE_CUH_
#define QUIRE_LINEAR_TILE_CUH_

#include "linear.cuh"

template <int kTokens, int kTokenWarps, int kStages>
struct LinearTile {
  static constexpr int kTileRows = 128;  // of the weight
  static constexpr int kWarpRows = 32;
  static constexpr int kThreads = kTokenWarps * (kTileRows / kWarpRows) * kWarpThreads;
  static constexpr int kWarpTokens = kTokens / kTokenWarps;
  static constexpr int kTokenTiles = kWarpTokens / 16;
  static constexpr int kRowTiles = kWarpRows / 8;
  static constexpr int kBandTiles = 16;
  static constexpr int kRowTileCount = (kN + kTileRows - 1) / kTileRows;
  static_assert(kTokens % (kTokenWarps * 16) == 0);
  static_assert(kStages >= 3);

  static constexpr int kStageBytes = (kTokens + kTileRows) * kStageRowBytes;
  static constexpr int kRingBytes = kStages * kStageBytes;
  static_assert(kSharedBytes >= kRingBytes + 16, "the launch rule's bytes");
  static constexpr int kThreadSums = kTokenTiles * kRowTiles * 4;
  static constexpr int kSumWords = kThreads * kThreadSums;

  using Sums = float[kTokenTiles][kRowTiles][4];

  // Where a tile begins.
  struct TilePlace {
    int token_begin, row_begin;

    DEVICE TilePlace(const LinearOperands& operands, int tile) {
      const int token_tiles = (operands.rows + kTokens - 1) / kTokens;
      const int band = tile / (kBandTiles * kRowTileCount);
      const int in_band = tile - band * (kBandTiles * kRowTileCount);
      const int left = token_tiles - band * kBandTiles;
      const int width = left < kBandTiles ? left : kBandTiles;
      row_begin = in_band / width * kTileRows;
      token_begin = (band * kBandTiles + in_band % width) * kTokens;
    }
  };

  // A place in the block's sequence of stages: unit after unit, in each part after part.
  struct Cursor {
    int unit, unit_count, part, k, part_end;
    int token_begin, row_begin;  // of the tile

    // At the first stage that is not empty, from the block's first unit on.
    DEVICE void Begin(const LinearOperands& operands, int count) {
      unit = blockIdx.x;
      unit_count = count;
      if (done()) return;
      EnterUnit(operands);
      SkipEmptyParts(operands);
    }
    DEVICE bool done() const { return unit >= unit_count; }

    DEVICE void EnterPart() {
      k = PartBegin(part);
      part_end = PartBegin(part + 1);
    }
    DEVICE void EnterUnit(const LinearOperands& operands) {
      const bool whole = unit < operands.whole_tiles;
      const int cut = unit - operands.whole_tiles;
      part = whole ? 0 : cut % kParts;
      EnterPart();
      const TilePlace place(operands, whole ? unit : operands.whole_tiles + cut / kParts);
      token_begin = place.token_begin;
      row_begin = place.row_begin;
    }
    DEVICE void SkipEmptyParts(const LinearOperands& operands) {
      while (!done() && k >= part_end) {
        if (unit < operands.whole_tiles && part < kParts - 1) {
          ++part;
          EnterPart();
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
  };

  // Copies rows begin ... of `from`, zeros past its `end` rows and past the part. Each thread copies
  // chunk threadIdx.x % 8 of every kThreads / 8th row.
  template <int kRows>
  static DEVICE void CopyRows(const Element* from, int begin, int end, const Cursor& at,
                              uint32_t to) {
    constexpr int kStride = kThreads / 8;
    static_assert(kRows % kStride == 0 && kStride % 8 == 0);
    const int row = threadIdx.x / 8;
    const int column = at.k + threadIdx.x % 8 * kChunk;
    const bool in_part = kWholeStages || (column < at.part_end && column < kK);
    from += int64_t{begin + row} * kK + column;
    to += row * kStageRowBytes + SwizzledChunk(row, threadIdx.x);
#pragma unroll
    for (int i = 0; i < kRows; i += kStride) {
      CopyAsync(to + i * kStageRowBytes, from + int64_t{i} * kK,
                in_part && begin + row + i < end ? 16 : 0);
    }
  }
  static DEVICE void CopyWeight(const LinearOperands& operands, const Cursor& at, uint32_t stage) {
    if (at.done()) return;
    CopyRows<kTileRows>(operands.weight, at.row_begin, kN, at,
                        stage + kTokens * kStageRowBytes);
  }
  static DEVICE void CopyX(const LinearOperands& operands, const Cursor& at, uint32_t stage) {
    if (at.done()) return;
    CopyRows<kTokens>(operands.x, at.token_begin, operands.rows, at, stage);
  }

  // The operands of one tensor-core step.
  struct Fragments {
    uint32_t x[kTokenTiles][4], weight[kRowTiles / 2][4];

    DEVICE void Load(uint32_t x_at, uint32_t weight_at) {
#pragma unroll
      for (int i = 0; i < kTokenTiles; ++i) LoadMatrices(x[i], x_at + i * 16 * kStageRowBytes);
#pragma unroll
      for (int j = 0; j < kRowTiles / 2; ++j) {
        LoadMatrices(weight[j], weight_at + j * 16 * kStageRowBytes);
      }
    }
    DEVICE void Multiply(Sums& sums) const {
#pragma unroll
      for (int i = 0; i < kTokenTiles; ++i) {
#pragma unroll
        for (int j = 0; j < kRowTiles; ++j) {
          Mma<Element>(sums[i][j], x[i], weight[j / 2][j % 2 * 2], weight[j / 2][j % 2 * 2 + 1]);
        }
      }
    }
  };

  // The ring and this warp's place in it.
  struct Pipeline {
    const LinearOperands& operands;
    Cursor ahead;                // the next stage to copy
    uint32_t x_at, weight_at;    // this lane's row and chunk of step 0, in stage 0
    int stage, free_stage;       // to be multiplied next; to be copied to next
    Fragments next;              // step 0 of `stage`

    // Asks for the stages that the ring holds beside the free one. x is read last.
    DEVICE void Fill(uint32_t ring, int unit_count) {
      ahead.Begin(operands, unit_count);
#pragma unroll 1
      for (int i = 0; i < kStages - 1; ++i) {
        CopyWeight(operands, ahead, ring + i * kStageBytes);
        if (!ahead.done()) ahead.NextStage(operands);
      }
      AllowNextGrid();
      WaitForPriorGrid();
      ahead.Begin(operands, unit_count);
#pragma unroll 1
      for (int i = 0; i < kStages - 1; ++i) {
        CopyX(operands, ahead, ring + i * kStageBytes);
        CommitCopies();
        if (!ahead.done()) ahead.NextStage(operands);
      }
      stage = 0;
      free_stage = kStages - 1;
    }

    // When all of the block have read the free stage to its end: copies into it, and reads the
    // first operands of `stage`. Past the last stage those are old ones, and not used.
    DEVICE void Turn(uint32_t ring) {
      WaitForCopies<kStages - 2>();
      SyncBlock();
      if (!ahead.done()) {
        CopyWeight(operands, ahead, ring + free_stage * kStageBytes);
        CopyX(operands, ahead, ring + free_stage * kStageBytes);
        ahead.NextStage(operands);
      }
      CommitCopies();
      next.Load(x_at + stage * kStageBytes, weight_at + stage * kStageBytes);
    }

    // Adds the products of `stage`. In a row of 128 bytes, the step of 16 k is an exclusive or, as
    // rows are swizzled.
    DEVICE void MultiplyStage(uint32_t ring, Sums& sums) {
      const uint32_t x = x_at + stage * kStageBytes, weight = weight_at + stage * kStageBytes;
      constexpr int kSteps = kStageK / kStepK;
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        const Fragments now = next;
        if (step + 1 < kSteps) {
          next.Load(x ^ ((step + 1) << 5), weight ^ ((step + 1) << 5));
        } else {
          free_stage = stage;
          stage = stage + 1 == kStages ? 0 : stage + 1;
          Turn(ring);
        }
        now.Multiply(sums);
      }
    }
  };

  // Leaves one part of a cut tile; true in the block that comes last, which then holds the total.
  static DEVICE bool MergeParts(const LinearOperands& operands, int tile, int part, uint32_t* flag,
                                Sums& total) {
    auto* arrivals = reinterpret_cast<uint32_t*>(operands.workspace);
    auto* parts = reinterpret_cast<float*>(operands.workspace + kArrivalBytes) +
                  int64_t{tile} * kParts * kSumWords + threadIdx.x * 4;
    constexpr int kFragments = kTokenTiles * kRowTiles;
#pragma unroll
    for (int i = 0; i < kFragments; ++i) {
      StoreToL2(parts + part * kSumWords + i * kThreads * 4, total[i / kRowTiles][i % kRowTiles]);
    }
    SyncBlock();
    if (threadIdx.x == 0) *flag = CountArrival(arrivals + tile, 1);
    SyncBlock();
    if (*flag != kParts - 1) return false;
    if (threadIdx.x == 0) arrivals[tile] = 0;
    // Four fragments at a time, so that sixteen loads are in flight.
    constexpr int kBatch = 4;
    static_assert(kFragments % kBatch == 0);
#pragma unroll
    for (int begin = 0; begin < kFragments; begin += kBatch) {
      float loaded[kParts][kBatch][4];
#pragma unroll
      for (int i = 0; i < kParts * kBatch; ++i) {
        LoadFromL2(loaded[i / kBatch][i % kBatch],
                   parts + i / kBatch * kSumWords + (begin + i % kBatch) * kThreads * 4);
      }
#pragma unroll
      for (int i = 0; i < kBatch * 4; ++i) {
        float sum = loaded[0][i / 4][i % 4];
#pragma unroll
        for (int p = 1; p < kParts; ++p) sum = Add(sum, loaded[p][i / 4][i % 4]);
        total[(begin + i / 4) / kRowTiles][(begin + i / 4) % kRowTiles][i % 4] = sum;
      }
    }
    return true;
  }

  // Lane t of four holds elements 2t, 2t + 1 of each of four tiles of 8 columns; afterwards all 8 of
  // tile t, in order.
  static DEVICE void GatherTile(float (&values)[kRowTiles][2]) {
    static_assert(kRowTiles == 4);
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

  // Bias, residual, rounding, and stores of eight columns a lane.
  static DEVICE void Store(const LinearOperands& operands, const TilePlace& at, const Sums& total) {
    const int warp = threadIdx.x / kWarpThreads, lane = threadIdx.x % kWarpThreads;
    const int n = at.row_begin + warp % 4 * kWarpRows + lane % 4 * 8;
    const int first_row = at.token_begin + warp / 4 * kWarpTokens + lane / 4;
#pragma unroll
    for (int i = 0; i < kTokenTiles * 2; ++i) {
      float values[kRowTiles][2];
#pragma unroll
      for (int j = 0; j < kRowTiles; ++j) {
        values[j][0] = total[i / 2][j][i % 2 * 2];
        values[j][1] = total[i / 2][j][i % 2 * 2 + 1];
      }
      GatherTile(values);
      const int row = first_row + i * 8;
      if (row >= operands.rows || n >= kN) continue;
      const int64_t element = int64_t{row} * kN + n;
      // 16 bytes at once where rows of y begin at multiples of them.
      if constexpr (kN % 8 == 0) {
        struct alignas(16) Eight {
          Output values[8];
        };
        Eight residual = {}, y;
        if constexpr (kHasResidual) {
          residual = *reinterpret_cast<const Eight*>(operands.residual + element);
        }
#pragma unroll
        for (int e = 0; e < 8; ++e) {
          y.values[e] = Finish(values[e / 2][e % 2], kHasBias ? operands.bias[n + e] : 0,
                               ToFloat(residual.values[e]));
        }
        *reinterpret_cast<Eight*>(operands.y + element) = y;
      } else {
#pragma unroll
        for (int e = 0; e < 8; ++e) {
          if (n + e >= kN) continue;
          operands.y[element + e] =
              Finish(values[e / 2][e % 2], kHasBias ? operands.bias[n + e] : 0,
                     kHasResidual ? ToFloat(operands.residual[element + e]) : 0);
        }
      }
    }
  }

  static DEVICE void Run(const LinearOperands& operands) {
    const uint32_t ring = SharedAddress(SharedMemory());
    auto* flag = reinterpret_cast<uint32_t*>(SharedMemory() + kRingBytes);
    const int tiles = (operands.rows + kTokens - 1) / kTokens * kRowTileCount;
    const int unit_count = operands.whole_tiles + (tiles - operands.whole_tiles) * kParts;

    const int warp = threadIdx.x / kWarpThreads, lane = threadIdx.x % kWarpThreads;
    Pipeline pipeline{operands};
    pipeline.x_at = ring + (warp / 4 * kWarpTokens + lane % 16) * kStageRowBytes +
                    SwizzledChunk(lane, lane / 16);
    pipeline.weight_at =
        ring + (kTokens + warp % 4 * kWarpRows + lane / 16 * 8 + lane % 8) * kStageRowBytes +
        SwizzledChunk(lane, lane / 8 % 2);
    pipeline.Fill(ring, unit_count);
    pipeline.Turn(ring);

    for (int unit = blockIdx.x; unit < unit_count; unit += gridDim.x) {
      const bool whole = unit < operands.whole_tiles;
      const int first_part = whole ? 0 : (unit - operands.whole_tiles) % kParts;
      const int end_part = whole ? kParts : first_part + 1;
      Sums total = {};
      for (int part = first_part; part < end_part; ++part) {
        Sums sums = {};
        for (int i = PartStages(part); i > 0; --i) pipeline.MultiplyStage(ring, sums);
#pragma unroll
        for (int i = 0; i < kThreadSums; ++i) {
          float& element = total[i / (4 * kRowTiles)][i / 4 % kRowTiles][i % 4];
          element = Add(element, sums[i / (4 * kRowTiles)][i / 4 % kRowTiles][i % 4]);
        }
      }
      const int cut_tile = (unit - operands.whole_tiles) / kParts;
      if (whole || MergeParts(operands, cut_tile, first_part, flag, total)) {
        const TilePlace place(operands, whole ? unit : operands.whole_tiles + cut_tile);
        Store(operands, place, total);
      }
    }
    WaitForCopies<0>();
  }
};

#endif  // QUIRE_LINEAR_TILE_CUH_
