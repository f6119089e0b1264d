// A linear over many rows for sm_90a: tiles of 128 rows of x by kTileRows rows of the weight, by
// products of warpgroups. Of a gated linear every 16 of those are eight of each half of the weight,
// so that one thread has both rows of an element of y.
//
// Template:  kStages stages; kChained: the second warpgroup gets a stage when the first is done
//            with it, which keeps them apart, so that one adds to its totals while the other
//            multiplies.
// Work:      in units (linear_units.cuh), a tile or half of its K. Warpgroup 0 copies; 1 and 2 have
//            64 rows of x each.
// Ring:      linear_ring.cuh; half: the first warpgroup has read a stage (chained).
// Reduction: a part is summed in registers, then added to the unit's total. Of a tile that is cut
//            the half that comes first leaves its sums in the workspace, each warpgroup's own; the
//            other adds them in order.
// Store:     a warp turns 16 rows x kRunColumns columns at a time in its shared memory.
// Shared memory, in bytes:
//   0              the ring and its barriers
//   kFlagsAt       the arrival number of a half, for each warpgroup
//   kWarpsAt       each warp's own
// Workspace: [kArrivalBytes] u32 a cut tile and warpgroup, zero before and after; then HalfSums of
//            each.
// Measured:  on an H200, shares of cuBLAS's speed: 256 rows of the weight 0.93 to 0.98 at 4096 rows
//            of x and more where they fill the rounds, 192 (chained) 0.93 to 0.95; 128 the better
//            one for few tiles; 64 and 96 for up to 128 rows of x. 256 chained take 1.4% less time
//            after rests, but up to 8% more back to back, where power is short. No gain: clusters
//            of two and four blocks that share rows of x by multicast (0.99 to 1.04 of the time
//            from 128 to 16384 rows, and 1.3 where they arrive at each other's barriers by
//            .release.cluster, which is a fence of all memory); a further warpgroup that stores, or
//            has activations, while the next tile's products run (1.06 to 1.2: its warps share the
//            issue slots, and its buffer takes a stage).
#ifndef QUIRE_LINEAR_WARPGROUP_CUH_
#define QUIRE_LINEAR_WARPGROUP_CUH_

#include "linear_ring.cuh"
#include "linear_runs.cuh"

template <int kTileRows, int kStages, bool kChained>
struct LinearWarpgroup {
  static constexpr int kTokens = 128, kPieces = 2;
  static constexpr int kConsumers = 2, kGroupTokens = kTokens / kConsumers;
  static constexpr int kThreads = (1 + kConsumers) * kWarpgroupThreads;
  using Ring = LinearRing<kTokens, kTileRows, kStages, kGated, kPieces>;
  using Units = typename Ring::Units;
  using Turn = typename Ring::Turn;
  static constexpr int kFlagsAt = Ring::kRingBytes + Ring::kBarrierBytes;
  using Runs = LinearRuns<kTileRows>;
  static constexpr int kThreadSums = Runs::kThreadSums;
  static constexpr int kHalves = Runs::kHalves, kTileColumns = Runs::kTileColumns;
  static_assert(!kGated || kStoresEights, "rows of the weight in pairs of eight");
  static_assert(!kAppends || (kStoresEights && !kHasAct), "eight columns go to one place");
  static constexpr int kWarps = kWarpgroupThreads / kWarpThreads;

  // A thread's totals: the first in registers, those for which there are none in shared memory.
  static constexpr int kKeptSums = kThreadSums < 96 ? kThreadSums : 96;
  static constexpr int kSharedSums = kThreadSums - kKeptSums;
  static constexpr bool kCuts = kSharedSums == 0;  // else registers are lacking
  struct alignas(16) Four {
    float sums[4];
  };
  // A warp's own shared memory: those totals; then what it stores, a run of columns at a time.
  static constexpr int kRunBytes = Runs::kBytes;
  static constexpr int kSharedSumBytes = kSharedSums * kWarpThreads * 4;
  static constexpr int kWarpBytes = kRunBytes > kSharedSumBytes ? kRunBytes : kSharedSumBytes;
  static constexpr int kWarpsAt = (kFlagsAt + 4 * kConsumers + 15) / 16 * 16;
  static constexpr int kUsedBytes = kWarpsAt + kConsumers * kWarps * kWarpBytes;
  static_assert(kSharedBytes >= kUsedBytes, "the launch rule's bytes");

  struct Totals {
    float kept[kKeptSums];
    Four* shared;  // every kWarpThreads-th

    DEVICE explicit Totals(uint8_t* of_warp)
        : shared(reinterpret_cast<Four*>(of_warp) + threadIdx.x % kWarpThreads) {
#pragma unroll
      for (int i = 0; i < kKeptSums; ++i) kept[i] = 0;
#pragma unroll
      for (int i = 0; i < kSharedSums / 4; ++i) shared[i * kWarpThreads] = {};
    }
    DEVICE void TakeIn(const float (&sum)[kThreadSums]) {
#pragma unroll
      for (int i = 0; i < kKeptSums; ++i) kept[i] = Add(kept[i], sum[i]);
#pragma unroll
      for (int i = 0; i < kSharedSums; i += 4) {
        Four four = shared[i / 4 * kWarpThreads];
#pragma unroll
        for (int e = 0; e < 4; ++e) four.sums[e] = Add(four.sums[e], sum[kKeptSums + i + e]);
        shared[i / 4 * kWarpThreads] = four;
      }
    }
    // The last part's sums become those of all.
    DEVICE void AddTo(float (&sum)[kThreadSums]) const {
#pragma unroll
      for (int i = 0; i < kKeptSums; ++i) sum[i] = Add(kept[i], sum[i]);
#pragma unroll
      for (int i = 0; i < kSharedSums; i += 4) {
        const Four four = shared[i / 4 * kWarpThreads];
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          sum[kKeptSums + i + e] = Add(four.sums[e], sum[kKeptSums + i + e]);
        }
      }
    }
  };
  using Merger = HalfSums<kWarpgroupThreads, kThreadSums>;

  using Sums = float[kThreadSums];

  // One part's sums of this warpgroup.
  static DEVICE void Multiply(const Ring& ring, int consumer, int stages, Turn& turn, Sums& sum) {
    const bool is_first = kChained && consumer == 0, is_second = kChained && consumer == 1;
    ring.template Multiply<kTileRows>(
        stages, turn, consumer * kGroupTokens * kStageRowBytes, Ring::kXBytes,
        [&](int stage) { return is_second ? ring.half(stage) : ring.full(stage); },
        [&](int stage) { return is_first ? ring.half(stage) : ring.free(stage); }, sum);
  }

  static DEVICE void Store(const LinearOperands& operands, const typename Units::Place& at,
                           int consumer, Sums& total) {
    const int warp = threadIdx.x % kWarpgroupThreads / kWarpThreads;
    const int row = at.token_begin + consumer * kGroupTokens + warp * 16;
    const int column = at.row_begin / kHalves;
    Runs(operands, WarpBytes(), row, column).Run(total, column);
  }

  // Rows of the residual that a thread is to add soon.
  static DEVICE void PrefetchResidual(const LinearOperands& operands, int tile, int consumer) {
    constexpr int kLineElements = 128 / sizeof(Output);
    if (operands.residual == nullptr) return;
    const typename Units::Place at(operands, tile);
    const int thread = threadIdx.x % kWarpgroupThreads;
    const int row = at.token_begin + consumer * kGroupTokens + thread / 2;
    if (row >= operands.rows) return;
    for (int n = thread % 2 * kLineElements; n < kTileColumns; n += 2 * kLineElements) {
      if (at.row_begin + n >= operands.n) return;
      PrefetchToL2(operands.residual + int64_t{row} * operands.n + at.row_begin + n);
    }
  }

  static DEVICE uint8_t* WarpBytes() {
    const int warp = threadIdx.x / kWarpThreads - kWarps;  // of those that multiply
    return SharedMemory() + kWarpsAt + warp * kWarpBytes;
  }

  static DEVICE void Consume(const LinearOperands& operands, const Ring& ring, int consumer) {
    auto* flag = reinterpret_cast<uint32_t*>(SharedMemory() + kFlagsAt);
    WaitForPriorGrid();
    Turn turn;
    const int stride = gridDim.x;
    int number = blockIdx.x;
    // Counted down: how many units there are would take one register more than there is.
    for (int left = (Units::Count(operands) - number + stride - 1) / stride; left > 0;
         --left, number += stride) {
      const typename Units::Unit unit(operands, number);
      Totals total(WarpBytes());
      Sums sum;
      const int slot = unit.cut_tile() * kConsumers + consumer;
      for (int part = unit.first_part();; ++part) {
        if (part + 1 == unit.end_part()) PrefetchResidual(operands, unit.tile(), consumer);
        Multiply(ring, consumer, PartStages(operands.k, part), turn, sum);
        if (part + 1 == unit.end_part()) break;
        if (kCuts && !unit.whole() && part > 0) {
          Merger::LeaveThird(operands, slot, sum);
        } else {
          total.TakeIn(sum);
        }
      }
      total.AddTo(sum);
      if (!kCuts || unit.whole() ||
          Merger::Merge(operands, slot, unit.first_part() > 0, 1 + consumer, flag + consumer,
                        sum)) {
        Store(operands, typename Units::Place(operands, unit.tile()), consumer, sum);
      }
    }
  }

  // A block: warpgroups 1 and 2 do what Body::Consume says. `half_arrivals`: at the ring's barriers
  // between them, if they have a use for these.
  template <typename Body>
  static DEVICE void RunBlock(const LinearOperands& operands, const TensorMap& x,
                              const TensorMap& weight, int half_arrivals) {
    const Ring ring{SharedAddress(SharedMemory())};
    if (threadIdx.x == 0) {
      PrefetchMap(x);
      PrefetchMap(weight);
      ring.Init(half_arrivals, kChained ? kWarps : kConsumers * kWarps);
    }
    SyncBlock();
    // 168 registers a thread at launch.
    const int warpgroup = threadIdx.x / kWarpgroupThreads;
    if (warpgroup == 0) {
      GiveRegisters<24>();
      if (threadIdx.x == 0) ring.Produce(operands, x, weight);
    } else {
      TakeRegisters<240>();
      Body::Consume(operands, ring, warpgroup - 1);
    }
  }
  static DEVICE void Run(const LinearOperands& operands, const TensorMap& x,
                         const TensorMap& weight) {
    RunBlock<LinearWarpgroup>(operands, x, weight, kWarps);
  }
};

#endif  // QUIRE_LINEAR_WARPGROUP_CUH_
