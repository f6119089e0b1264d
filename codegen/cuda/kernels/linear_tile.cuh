// A linear over many rows: tiles of kTokens rows of x by 128 rows of the weight, by mma.sync.
//
// Template:  kTokens rows of x a tile, shared by kTokenWarps x 4 warps of kTokens / kTokenWarps x
//            32 outputs each; kStages stages.
// Work:      in units (linear_units.cuh).
// Ring:      the block's, [tokens + 128 rows] x 64 k a stage, filled by cp.async kStages - 1 stages
//            ahead, over the ends of parts and units too. The operands of a step are read from it
//            during the step before, over stages' ends too.
// Dependent launch: the first stages of weights are asked for before the prior grid ends, x after.
// Reduction: a part is summed in registers, then added to the unit's total. The parts of a tile
// that
//            is cut are left in the workspace; the last of the four to arrive adds them in order.
// Shared memory, in bytes:
//   0              ring: [kStages][kTokens + 128 rows x 128], rows swizzled, those of x first
//   kRingBytes     the arrival number of a part
// Workspace: [kArrivalBytes] u32 a cut tile, zero before and after; then PartSums of each.
#ifndef QUIRE_LINEAR_TILE_CUH_
#define QUIRE_LINEAR_TILE_CUH_

#include "linear_units.cuh"

template <int kTokens, int kTokenWarps, int kStages>
struct LinearTile {
  static constexpr int kTileRows = 128;  // of the weight
  static constexpr int kWarpRows = 32;
  static constexpr int kThreads = kTokenWarps * (kTileRows / kWarpRows) * kWarpThreads;
  static constexpr int kWarpTokens = kTokens / kTokenWarps;
  static constexpr int kTokenTiles = kWarpTokens / 16;
  static constexpr int kRowTiles = kWarpRows / 8;
  using Units = LinearUnits<kTokens, kTileRows>;
  using Cursor = typename Units::Cursor;
  static_assert(kTokens % (kTokenWarps * 16) == 0);
  static_assert(kStages >= 3);

  static constexpr int kStageBytes = (kTokens + kTileRows) * kStageRowBytes;
  static constexpr int kRingBytes = kStages * kStageBytes;
  static_assert(kSharedBytes >= kRingBytes + 16, "the launch rule's bytes");
  static constexpr int kThreadSums = kTokenTiles * kRowTiles * 4;

  using Sums = float[kTokenTiles][kRowTiles][4];
  using Totals = float[kThreadSums];

  // Copies rows begin ... of `from`, zeros past its `end` rows and past the part. Each thread
  // copies chunk threadIdx.x % 8 of every kThreads / 8th row.
  template <int kRows>
  static DEVICE void CopyRows(const Element* from, int begin, int end, int k, const Cursor& at,
                              uint32_t to) {
    constexpr int kStride = kThreads / 8;
    static_assert(kRows % kStride == 0 && kStride % 8 == 0);
    const int row = threadIdx.x / 8;
    const int column = at.k + threadIdx.x % 8 * kChunk;
    const bool in_part = kWholeStages || (column < at.part_end && column < k);
    from += int64_t{begin + row} * k + column;
    to += row * kStageRowBytes + SwizzledChunk(row, threadIdx.x);
#pragma unroll
    for (int i = 0; i < kRows; i += kStride) {
      CopyAsync(to + i * kStageRowBytes, from + int64_t{i} * k,
                in_part && begin + row + i < end ? 16 : 0);
    }
  }
  static DEVICE void CopyWeight(const LinearOperands& operands, const Cursor& at, uint32_t stage) {
    if (at.done()) return;
    CopyRows<kTileRows>(operands.weight, at.row_begin, operands.n, operands.k, at,
                        stage + kTokens * kStageRowBytes);
  }
  static DEVICE void CopyX(const LinearOperands& operands, const Cursor& at, uint32_t stage) {
    if (at.done()) return;
    CopyRows<kTokens>(operands.x, at.token_begin, operands.rows, operands.k, at, stage);
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
    Cursor ahead;              // the next stage to copy
    uint32_t x_at, weight_at;  // this lane's row and chunk of step 0, in stage 0
    int stage, free_stage;     // to be multiplied next; to be copied to next
    Fragments next;            // step 0 of `stage`

    // Asks for the stages that the ring holds beside the free one. x is read last.
    DEVICE void Fill(uint32_t ring) {
      WaitForWeight();
      ahead.Begin(operands);
#pragma unroll 1
      for (int i = 0; i < kStages - 1; ++i) {
        CopyWeight(operands, ahead, ring + i * kStageBytes);
        if (!ahead.done()) ahead.NextStage(operands);
      }
      AllowNextGrid();
      WaitForPriorGrid();
      ahead.Begin(operands);
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

  // Bias, residual, rounding, and stores of eight columns a lane.
  static DEVICE void Store(const LinearOperands& operands, const typename Units::Place& at,
                           const Totals& total) {
    const int warp = threadIdx.x / kWarpThreads, lane = threadIdx.x % kWarpThreads;
    const int n = at.row_begin + warp % 4 * kWarpRows + lane % 4 * 8;
    const int first_row = at.token_begin + warp / 4 * kWarpTokens + lane / 4;
#pragma unroll
    for (int i = 0; i < kTokenTiles * 2; ++i) {
      float values[kRowTiles][2];
#pragma unroll
      for (int j = 0; j < kRowTiles; ++j) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          values[j][e] = total[(i / 2 * kRowTiles + j) * 4 + i % 2 * 2 + e];
        }
      }
      GatherTile(values);
      StoreEight(operands, first_row + i * 8, n, values);
    }
  }

  static DEVICE void Run(const LinearOperands& operands) {
    const uint32_t ring = SharedAddress(SharedMemory());
    auto* flag = reinterpret_cast<uint32_t*>(SharedMemory() + kRingBytes);

    const int warp = threadIdx.x / kWarpThreads, lane = threadIdx.x % kWarpThreads;
    Pipeline pipeline{operands};
    pipeline.x_at = ring + (warp / 4 * kWarpTokens + lane % 16) * kStageRowBytes +
                    SwizzledChunk(lane, lane / 16);
    pipeline.weight_at =
        ring + (kTokens + warp % 4 * kWarpRows + lane / 16 * 8 + lane % 8) * kStageRowBytes +
        SwizzledChunk(lane, lane / 8 % 2);
    pipeline.Fill(ring);
    pipeline.Turn(ring);

    const int unit_count = Units::Count(operands);
    for (int number = blockIdx.x; number < unit_count; number += gridDim.x) {
      const typename Units::Unit unit(operands, number);
      Totals total = {};
      for (int part = unit.first_part(); part < unit.end_part(); ++part) {
        Sums sums = {};
        for (int i = PartStages(operands.k, part); i > 0; --i) pipeline.MultiplyStage(ring, sums);
#pragma unroll
        for (int i = 0; i < kThreadSums; ++i) {
          total[i] = Add(total[i], sums[i / (4 * kRowTiles)][i / 4 % kRowTiles][i % 4]);
        }
      }
      if (unit.whole() || PartSums<kThreads, kThreadSums>::Merge(
                              operands, unit.cut_tile(), unit.first_part(), 0, flag, total)) {
        Store(operands, typename Units::Place(operands, unit.tile()), total);
      }
    }
    WaitForCopies<0>();
  }
};

#endif  // QUIRE_LINEAR_TILE_CUH_
