// A linear over many rows for sm_90a: tiles of 128 rows of x by kTileRows rows of the weight, by
// products of warpgroups.
//
// Template:  kStages stages; kChained: the second warpgroup gets a stage when the first is done
//            with it, which keeps them apart, so that one adds to its totals while the other
//            multiplies.
// Work:      in units (linear_units.cuh). Warpgroup 0 copies; 1 and 2 have 64 rows of x each.
// Ring:      linear_ring.cuh; half: the first warpgroup has read a stage (chained).
// Reduction: a part is summed in registers, then added to the unit's total. The parts of a tile
//            that is cut are left in the workspace, each warpgroup's own; the last of four adds them
//            in order.
// Shared memory, in bytes:
//   0              the ring and its barriers
//   + kBarrierBytes  the arrival number of a part, for each warpgroup
// Workspace: [kArrivalBytes] u32 a cut tile and warpgroup, zero before and after; then PartSums of
//            each.
// Measured:  on an H200, kernels.md: a width of 192 is 0.96 to 0.98 of cuBLAS from 512 rows on, and
//            128 the better one for few tiles.
#ifndef QUIRE_LINEAR_WARPGROUP_CUH_
#define QUIRE_LINEAR_WARPGROUP_CUH_

#include "linear_ring.cuh"

template <int kTileRows, int kStages, bool kChained>
struct LinearWarpgroup {
  static constexpr int kTokens = 128;
  static constexpr int kConsumers = 2, kGroupTokens = kTokens / kConsumers;
  static constexpr int kThreads = (1 + kConsumers) * kWarpgroupThreads;
  using Ring = LinearRing<kTokens, kTileRows, kStages>;
  using Units = typename Ring::Units;
  using Turn = typename Ring::Turn;
  static constexpr int kRingBytes = Ring::kRingBytes, kBarrierBytes = Ring::kBarrierBytes;
  static_assert(kSharedBytes >= kRingBytes + kBarrierBytes + 4 * kConsumers,
                "the launch rule's bytes");
  static constexpr int kThreadSums = kTileRows / 2;
  using Merger = PartSums<kWarpgroupThreads, kThreadSums>;

  // One part's sums of this warpgroup, added to its totals.
  static DEVICE void AddPart(const Ring& ring, int consumer, int stages, Turn& turn,
                             float (&total)[kThreadSums]) {
    if (stages == 0) return;
    const bool waits_for_half = kChained && consumer == 1;
    const auto release = [&](int stage) {
      if (threadIdx.x % kWarpThreads != 0) return;
      Arrive(kChained && consumer == 0 ? ring.half(stage) : ring.free(stage));
    };
    float sum[kThreadSums];
    int before = 0;
    for (int i = 0; i < stages; ++i) {
      WaitForPhase(waits_for_half ? ring.half(turn.stage) : ring.full(turn.stage), turn.parity);
      const Operand a = OperandAt(ring.x(turn.stage) + consumer * kGroupTokens * kStageRowBytes);
      const Operand b = OperandAt(ring.weight(turn.stage));
      BeginProducts();
#pragma unroll
      for (int step = 0; step < kStageK / kStepK; ++step) {
        WarpgroupProduct<Element, kTileRows>::Run(sum, a + 2 * step, b + 2 * step,
                                                  step > 0 || i > 0);
      }
      CommitProducts();
      WaitForProducts<1>();
      if (i > 0) release(before);
      before = turn.stage;
      turn.Next();
    }
    WaitForProducts<0>();
    HoldProducts(sum);
    release(before);
#pragma unroll
    for (int i = 0; i < kThreadSums; ++i) total[i] = Add(total[i], sum[i]);
  }

  static DEVICE void Store(const LinearOperands& operands, const typename Units::Place& at,
                           int consumer, const float (&total)[kThreadSums]) {
    const int warp = threadIdx.x % kWarpgroupThreads / kWarpThreads;
    const int lane = threadIdx.x % kWarpThreads;
    const int row = at.token_begin + consumer * kGroupTokens + warp * 16 + lane / 4;
#pragma unroll
    for (int i = 0; i < kThreadSums / 16; ++i) {  // 32 columns
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float values[4][2];
#pragma unroll
        for (int j = 0; j < 8; ++j)
          values[j / 2][j % 2] = total[16 * i + j / 2 * 4 + 2 * half + j % 2];
        GatherTile(values);
        StoreEight(operands, row + 8 * half, at.row_begin + 32 * i + lane % 4 * 8, values);
      }
    }
  }

  static DEVICE void Consume(const LinearOperands& operands, const Ring& ring, int consumer,
                             uint32_t* flag) {
    WaitForPriorGrid();
    Turn turn;
    const int unit_count = Units::Count(operands);
    for (int number = blockIdx.x; number < unit_count; number += gridDim.x) {
      const typename Units::Unit unit(operands, number);
      float total[kThreadSums];
#pragma unroll
      for (int i = 0; i < kThreadSums; ++i) total[i] = 0;
      for (int part = unit.first_part(); part < unit.end_part(); ++part) {
        AddPart(ring, consumer, PartStages(operands.k, part), turn, total);
      }
      if (unit.whole() || Merger::Merge(operands, unit.cut_tile() * kConsumers + consumer,
                                        unit.first_part(), 1 + consumer, flag + consumer, total)) {
        Store(operands, typename Units::Place(operands, unit.tile()), consumer, total);
      }
    }
  }

  static DEVICE void Run(const LinearOperands& operands, const TensorMap& x,
                         const TensorMap& weight) {
    const Ring ring{SharedAddress(SharedMemory())};
    auto* flag = reinterpret_cast<uint32_t*>(SharedMemory() + kRingBytes + kBarrierBytes);
    if (threadIdx.x == 0) {
      PrefetchMap(x);
      PrefetchMap(weight);
      constexpr int kWarps = kWarpgroupThreads / kWarpThreads;
      ring.Init(kWarps, kChained ? kWarps : kConsumers * kWarps);
    }
    SyncBlock();
    // 168 registers a thread at launch.
    const int warpgroup = threadIdx.x / kWarpgroupThreads;
    if (warpgroup == 0) {
      GiveRegisters<24>();
      if (threadIdx.x == 0) ring.Produce(operands, x, weight);
    } else {
      TakeRegisters<240>();
      Consume(operands, ring, warpgroup - 1, flag);
    }
  }
};

#endif  // QUIRE_LINEAR_WARPGROUP_CUH_
