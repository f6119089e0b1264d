// A linear over up to 256 rows for sm_90a, by products of warpgroups whose 64 rows are the
// weight's: the rows of x are their columns.
//
// Template:  kTokens rows of x, a multiple of 16; kRows rows of the weight, a multiple of 8, for as
//            many warpgroups as have them with 64 each; kStages stages.
// Work:      in units (linear_units.cuh). Tiles are best as high as lets every block have one.
//            Of those of a gated linear every 16 rows are eight of each half, so that one thread
//            has both rows of an element of y.
// Ring:      linear_ring.cuh, or linear_blocks_ring.cuh. Warpgroup 0 copies; the others multiply. The
//            last may read past a stage's rows: what it makes of that is not stored.
// Reduction: a part is summed in registers, then added to the unit's total. The parts of a tile
//            that is cut are left in the workspace, each warpgroup's own; the last of four adds
//            them in order.
// Store:     a warp turns 16 x 16 of its totals at a time in shared memory.
// Shared memory, in bytes:
//   0              the ring and its barriers
//   kTurnsAt       [4 kConsumers warps][16 rows of x][20] f32
//   kFlagsAt       the arrival number of a part, for each warpgroup
// Workspace: as of linear_warpgroup.cuh.
#ifndef QUIRE_LINEAR_NARROW_CUH_
#define QUIRE_LINEAR_NARROW_CUH_

#include "linear_act.cuh"
#include "linear_ring.cuh"

// The ring of a weight of Elements, as warpgroups with 64 rows of it each read it.
template <int kTokens, int kTileRows, int kStages>
struct NarrowRing {
  using Ring = LinearRing<kTokens, kTileRows, kStages, kGated>;
  using Units = typename Ring::Units;
  static constexpr int kConsumers = (kTileRows + 63) / 64;
  static constexpr int kBytes = Ring::kRingBytes + Ring::kBarrierBytes;
  static constexpr int kRegisters = kConsumers == 4 ? 112 : 0;  // of 96 a thread at launch

  Ring ring;

  DEVICE void Init() const { ring.Init(1, kConsumers * kWarpgroupThreads / kWarpThreads); }
  DEVICE void Produce(const LinearOperands& operands, const TensorMap& x,
                      const TensorMap& weight) const {
    ring.Produce(operands, x, weight);
  }

  struct Reader {
    const Ring& ring;
    int begin;  // of the weight's rows in a stage, in bytes
    typename Ring::Turn turn;

    DEVICE Reader(const NarrowRing& of, const LinearOperands&, int consumer)
        : ring(of.ring), begin(Ring::kXBytes + consumer * 64 * kStageRowBytes) {}
    // One part's sums.
    DEVICE void Multiply(const LinearOperands& operands, int, int part,
                         float (&sum)[kTokens / 2]) {
      ring.template Multiply<kTokens>(
          PartStages(operands.k, part), turn, begin, 0, [&](int stage) { return ring.full(stage); },
          [&](int stage) { return ring.free(stage); }, sum);
    }
  };
};

template <int kTokens, int kRows, int kStages, typename Ring = NarrowRing<kTokens, kRows, kStages>>
struct LinearNarrow {
  static_assert(kTokens % 16 == 0 && kRows % (kGated ? 16 : 8) == 0 && kStages >= 2);
  static_assert(kHasAct == kGated && (!kGated || kStoresEights), "the activations that it has");
  static constexpr int kGroupRows = 64, kTileRows = kRows;
  static constexpr int kConsumers = (kRows + kGroupRows - 1) / kGroupRows;
  static constexpr int kThreads = (1 + kConsumers) * kWarpgroupThreads;
  static constexpr int kWarps = kWarpgroupThreads / kWarpThreads;
  using Units = typename Ring::Units;
  static constexpr int kThreadSums = kTokens / 2;
  using Merger = PartSums<kWarpgroupThreads, kThreadSums>;

  static constexpr int kTurnStride = 20, kTurnFloats = 16 * kTurnStride;
  static constexpr int kTurnsAt = (Ring::kBytes + 15) / 16 * 16;
  static constexpr int kFlagsAt = kTurnsAt + kConsumers * kWarps * kTurnFloats * 4;
  static_assert(kSharedBytes >= kFlagsAt + 4 * kConsumers, "the launch rule's bytes");
  static_assert((kConsumers * kGroupRows - kTileRows) * kStageRowBytes <=
                    kConsumers * kWarps * kTurnFloats * 4,
                "what is read past the last stage");

  // Those of the next 16 rows of x come first: a loop over them is not unrolled, as texts take long
  // to compile.
  static DEVICE void NextTotals(float (&total)[kThreadSums]) {
#pragma unroll
    for (int i = 8; i < kThreadSums; ++i) total[i - 8] = total[i];
  }
  // `turned` is the warp's own; totals are lost.
  static DEVICE void StoreGated(const LinearOperands& operands, const typename Units::Place& at,
                                int consumer, float* turned, float (&total)[kThreadSums]) {
    struct alignas(16) Eight {
      Output values[8];
    };
    const int warp = threadIdx.x % kWarpgroupThreads / kWarpThreads;
    const int lane = threadIdx.x % kWarpThreads;
    const int in_tile = consumer * kGroupRows + warp * 16;
    if (in_tile >= kTileRows) return;
    const int columns = operands.n / 2, n = (at.row_begin + in_tile) / 2;
    if (n >= columns) return;
    float bias = 0, gated_bias = 0;
    if constexpr (kHasBias) {
      bias = operands.bias[n + lane / 4];
      gated_bias = operands.bias[columns + n + lane / 4];
    }
    auto* rows = reinterpret_cast<Eight*>(turned);
#pragma unroll 1
    for (int begin = 0; begin < kTokens; begin += 16) {
#pragma unroll
      for (int i = 0; i < 8; i += i % 2 == 0 ? 1 : 3) {
        rows[i / 4 * 8 + lane % 4 * 2 + i % 2].values[lane / 4] =
            FinishAct(total[i], bias, total[i + 2], gated_bias);
      }
      SyncWarp();
      const int token = at.token_begin + begin + lane;
      if (lane < 16 && token < operands.rows) {
        *reinterpret_cast<Eight*>(operands.y + int64_t{token} * columns + n) = rows[lane];
      }
      SyncWarp();
      NextTotals(total);
    }
  }
  static DEVICE void Store(const LinearOperands& operands, const typename Units::Place& at,
                           int consumer, float* turned, float (&total)[kThreadSums]) {
    const int warp = threadIdx.x % kWarpgroupThreads / kWarpThreads;
    const int lane = threadIdx.x % kWarpThreads;
    const int in_tile = consumer * kGroupRows + warp * 16 + lane % 2 * 8;
    // Rows behind the tile's are another's.
    const int n = in_tile < kTileRows ? at.row_begin + in_tile : operands.n;
#pragma unroll 1
    for (int begin = 0; begin < kTokens; begin += 16) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const int token = i / 4 * 8 + lane % 4 * 2 + i % 2, row = lane / 4 + i / 2 % 2 * 8;
        turned[token * kTurnStride + row] = total[i];
      }
      SyncWarp();
      float values[4][2];
      const float* of_token = turned + lane / 2 * kTurnStride + lane % 2 * 8;
#pragma unroll
      for (int e = 0; e < 8; ++e) values[e / 2][e % 2] = of_token[e];
      StoreEight(operands, at.token_begin + begin + lane / 2, n, values);
      SyncWarp();
      NextTotals(total);
    }
  }

  // What this warpgroup is to add when the tile is done: it was written long ago.
  static DEVICE void PrefetchResidual(const LinearOperands& operands, int tile, int consumer) {
    if (operands.residual == nullptr) return;
    constexpr int kLineElements = 128 / sizeof(Output), kLines = kGroupRows / kLineElements;
    const typename Units::Place at(operands, tile);
    for (int i = threadIdx.x % kWarpgroupThreads; i < kTokens * kLines; i += kWarpgroupThreads) {
      const int row = at.token_begin + i / kLines;
      const int n = at.row_begin + consumer * kGroupRows + i % kLines * kLineElements;
      if (row >= operands.rows || n >= operands.n) continue;
      PrefetchToL2(operands.residual + int64_t{row} * operands.n + n);
    }
  }

  static DEVICE void Consume(const LinearOperands& operands, const Ring& ring, int consumer) {
    typename Ring::Reader reader(ring, operands, consumer);
    WaitForPriorGrid();
    const int unit_count = Units::Count(operands);
    for (int number = blockIdx.x; number < unit_count; number += gridDim.x) {
      const typename Units::Unit unit(operands, number);
      if constexpr (!kHasAct) PrefetchResidual(operands, unit.tile(), consumer);
      const int row_begin = typename Units::Place(operands, unit.tile()).row_begin;
      float total[kThreadSums];
#pragma unroll
      for (int i = 0; i < kThreadSums; ++i) total[i] = 0;
      for (int part = unit.first_part(); part < unit.end_part(); ++part) {
        float sum[kThreadSums];
        reader.Multiply(operands, row_begin, part, sum);
#pragma unroll
        for (int i = 0; i < kThreadSums; ++i) total[i] = Add(total[i], sum[i]);
      }
      if (unit.whole() || Merger::Merge(operands, unit.cut_tile() * kConsumers + consumer,
                                        unit.first_part(), 1 + consumer,
                                        reinterpret_cast<uint32_t*>(SharedMemory() + kFlagsAt) +
                                            consumer,
                                        total)) {
        // Where it is needed, as registers are few.
        const int warp = threadIdx.x / kWarpThreads - kWarps;  // of those that multiply
        auto* turned = reinterpret_cast<float*>(SharedMemory() + kTurnsAt) + warp * kTurnFloats;
        const typename Units::Place at(operands, unit.tile());
        if constexpr (kGated) {
          StoreGated(operands, at, consumer, turned, total);
        } else {
          Store(operands, at, consumer, turned, total);
        }
      }
    }
  }

  // `maps`: of x, and of a weight of Elements.
  template <typename... Maps>
  static DEVICE void Run(const LinearOperands& operands, const Maps&... maps) {
    const Ring ring{SharedAddress(SharedMemory())};
    if (threadIdx.x == 0) {
      (PrefetchMap(maps), ...);
      ring.Init();
    }
    SyncBlock();
    const int warpgroup = threadIdx.x / kWarpgroupThreads;
    if constexpr (Ring::kRegisters > 0) {
      if (warpgroup == 0) {
        GiveRegisters<24>();
      } else {
        TakeRegisters<Ring::kRegisters>();
      }
    }
    if (warpgroup > 0) {
      Consume(operands, ring, warpgroup - 1);
    } else if (threadIdx.x == 0) {
      ring.Produce(operands, maps...);
    }
  }
};

#endif  // QUIRE_LINEAR_NARROW_CUH_
