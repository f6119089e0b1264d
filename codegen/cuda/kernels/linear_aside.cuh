// linear_warpgroup.cuh's linear without a residual, for tiles of 192 rows of the weight: threads of
// their own finish one tile while the products of the next run, which need few instructions.
//
// Block:    warpgroups 0 to 2 as there; of warpgroup 3 two warps have the rows of each of 1 and 2.
// Hand-over: sums with their biases, rounded as the activation takes them, in shared memory: of one
//           tile, so that a warpgroup waits where the tile before is not finished yet.
// Shared memory, in bytes, behind the ring and the flags:
//   kBarriersAt    filled [2], drained [2], one a warpgroup that multiplies
//   kTilesAt       i32 [2], which tile was handed over; less than none: the block's tiles are done
//   kBiasesAt      f32 [2][kTileRows], in the order of sums
//   kRowsAt        [2][64 rows][kTileRows], units of 16 bytes swizzled by their row
#ifndef QUIRE_LINEAR_ASIDE_CUH_
#define QUIRE_LINEAR_ASIDE_CUH_

#include "linear_warpgroup.cuh"

template <int kTileRows, int kStages, bool kChained, int kCluster = 1>
struct LinearAside {
  using Whole = LinearWarpgroup<kTileRows, kStages, kChained, kCluster>;
  using Ring = typename Whole::Ring;
  using Units = typename Whole::Units;
  static constexpr int kConsumers = Whole::kConsumers, kHalves = Whole::kHalves;
  static constexpr int kThreads = Whole::kThreads + kWarpgroupThreads;
  // Of 512 for each of 128 threads; warpgroup 0 has 24.
  static constexpr int kRegisters = 224, kFinisherRegisters = 40;
  static constexpr int kFinisherWarps = 2, kFinishers = kFinisherWarps * kWarpThreads;
  static constexpr int kRows = Whole::kGroupTokens, kUnits = kTileRows / 8;
  static_assert(kStoresEights && sizeof(Output) == 2 && kUnits % 8 == 0);

  static constexpr int kBarriersAt = (Whole::kFlagsAt + 4 * kConsumers + 7) / 8 * 8;
  static constexpr int kTilesAt = kBarriersAt + 8 * 2 * kConsumers;
  static constexpr int kBiasesAt = (kTilesAt + 4 * kConsumers + 15) / 16 * 16;
  static constexpr int kRowsAt = kBiasesAt + kConsumers * kTileRows * 4;
  static constexpr int kUsedBytes = kRowsAt + kConsumers * kRows * kTileRows * 2;
  static_assert(kSharedBytes >= kUsedBytes, "the launch rule's bytes");

  static DEVICE uint32_t Filled(int consumer) {
    return SharedAddress(SharedMemory()) + kBarriersAt + 8 * consumer;
  }
  static DEVICE uint32_t Drained(int consumer) { return Filled(kConsumers + consumer); }
  static DEVICE int& TileOf(int consumer) {
    return reinterpret_cast<int*>(SharedMemory() + kTilesAt)[consumer];
  }
  static DEVICE float* BiasesOf(int consumer) {
    return reinterpret_cast<float*>(SharedMemory() + kBiasesAt) + consumer * kTileRows;
  }
  // Unit `unit` of a row: eight columns of sums.
  static DEVICE uint8_t* UnitOf(int consumer, int row, int unit) {
    return SharedMemory() + kRowsAt + (consumer * kRows + row) * (kTileRows * 2) +
           (unit ^ row % 8) * 16;
  }
  static DEVICE void Init() {
    for (int i = 0; i < kConsumers; ++i) {
      InitBarrier(Filled(i), kWarpgroupThreads / kWarpThreads);
      InitBarrier(Drained(i), kFinisherWarps);
    }
    FenceBarriers();
  }

  struct Pair {
    Output values[2];
  };
  struct alignas(16) Eight {
    Output values[8];
  };
  struct alignas(8) Biases {
    float of[2];
  };

  // A warpgroup that multiplies.
  struct Giver {
    const LinearOperands& operands;
    const int consumer, thread;
    int parity = 1;  // of the phase in which what was handed over before is drained

    DEVICE void Wait() {
      WaitForPhase(Drained(consumer), parity);
      parity ^= 1;
    }
    // Once the warp's threads have written what they hand over.
    DEVICE void Give(int tile) const {
      if (thread == 0) TileOf(consumer) = tile;
      SyncWarp();
      if (thread % kWarpThreads == 0) Arrive(Filled(consumer));
    }
    // A tile's biases are there before its sums are.
    DEVICE void Begin(int tile) const {
      if constexpr (!kHasBias) return;
      const typename Units::Place at(operands, tile);
      WaitForCopies<0>();  // of a tile that another block finishes
      const int columns = operands.n / kHalves, four = thread;
      if (four < kTileRows / 4) {
        const int unit = four / 2;
        const int column = at.row_begin / kHalves + unit / kHalves * 8 + four % 2 * 4;
        const float* from = operands.bias + unit % kHalves * columns + column;
        const bool there = column < columns;
        CopyAsync(SharedAddress(BiasesOf(consumer) + four * 4), there ? from : operands.bias,
                  there ? 16 : 0);
      }
      CommitCopies();
    }
    DEVICE void End(int tile, float (&sums)[kTileRows / 2]) {
      Wait();
      if constexpr (kHasBias) {
        WaitForCopies<0>();
        SyncThreads(1 + consumer, kWarpgroupThreads);
      }
      const int lane = thread % kWarpThreads, row = thread / kWarpThreads * 16 + lane / 4;
#pragma unroll
      for (int unit = 0; unit < kUnits; ++unit) {
        const int column = unit * 8 + lane % 4 * 2;
        Biases biases = {};
        if constexpr (kHasBias) {
          biases = *reinterpret_cast<const Biases*>(BiasesOf(consumer) + column);
        }
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          Pair pair;
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            float sum = sums[4 * unit + 2 * half + e];
            if constexpr (kHasBias) sum = Add(sum, biases.of[e]);
            pair.values[e] = FromFloat<Output>(sum);
          }
          *reinterpret_cast<Pair*>(UnitOf(consumer, row + 8 * half, unit) + lane % 4 * 4) = pair;
        }
      }
      Give(tile);
      // The next tile's biases come where this one's were.
      if constexpr (kHasBias) SyncThreads(1 + consumer, kWarpgroupThreads);
    }
  };

  static DEVICE void Consume(const LinearOperands& operands, const Ring& ring, int consumer) {
    Giver giver{operands, consumer, static_cast<int>(threadIdx.x) % kWarpgroupThreads};
    Whole::ConsumeUnits(
        operands, ring, consumer, [&](int tile) { giver.Begin(tile); },
        [&](int tile, float(&sums)[kTileRows / 2]) { giver.End(tile, sums); });
    giver.Wait();
    giver.Give(-1);
  }

  // Two warps of warpgroup 3: what a warpgroup hands over, in chunks of 16 bytes of y.
  static DEVICE void FinishTiles(const LinearOperands& operands) {
    constexpr int kChunks = kUnits / kHalves;  // of a row
    const int of_group = threadIdx.x % kWarpgroupThreads;
    const int consumer = of_group / kFinishers, thread = of_group % kFinishers;
    const int columns = operands.n / kHalves;
    for (int parity = 0;; parity ^= 1) {
      WaitForPhase(Filled(consumer), parity);
      const int tile = TileOf(consumer);
      if (tile < 0) return;
      const typename Units::Place at(operands, tile);
      const int first_row = at.token_begin + consumer * kRows;
      const int first_column = at.row_begin / kHalves;
#pragma unroll 2
      for (int i = thread; i < kRows * kChunks; i += kFinishers) {
        const int row = i / kChunks, chunk = i % kChunks;
        const auto unit = [&](int part) {
          return *reinterpret_cast<const Eight*>(UnitOf(consumer, row, chunk * kHalves + part));
        };
        const Eight a = unit(0);
        Eight b = {}, y;
        if constexpr (kGated) b = unit(1);
#pragma unroll
        for (int e = 0; e < 8; ++e) {
          y.values[e] = kHasAct ? ActOf(a.values[e], b.values[e]) : a.values[e];
        }
        const int column = first_column + chunk * 8;
        if (first_row + row >= operands.rows || column >= columns) continue;
        Output* to = operands.y + int64_t{first_row + row} * columns + column;
        *reinterpret_cast<Eight*>(to) = y;
      }
      SyncWarp();
      if (thread % kWarpThreads == 0) Arrive(Drained(consumer));
    }
  }

  static DEVICE void Run(const LinearOperands& operands, const TensorMap& x,
                         const TensorMap& weight) {
    Whole::template RunBlock<LinearAside>(operands, x, weight, Whole::kWarps);
  }
};

#endif  // QUIRE_LINEAR_ASIDE_CUH_
