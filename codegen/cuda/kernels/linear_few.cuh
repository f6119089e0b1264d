// A linear over few rows: the weights stream once through shared memory, as the 16-row operand of
// the tensor core; the rows of x are its columns, and stay in shared memory.
//
// Template:  kCapacity rows at most, from operands.first_row on; kGroups groups of kParts warps;
//            kStages stages a warp; XRows, how x comes to shared memory.
// Work:      a tile is 16 rows of the weight. Groups are numbered group * grid + block and take
//            tiles at that stride, so that blocks' shares differ by one tile at most; warp p of a
//            group sums part p.
// Ring:      private to a warp, 16 rows x 64 k a stage, filled by cp.async kStages - 1 stages
//            ahead, over tile ends too; no barrier but the warp's own.
// Dependent launch: the ring fills before the prior grid ends, x is read after.
// Reduction: the warps of a group leave their sums in shared memory; one thread an element adds
//            them in order of parts.
// Shared memory, in bytes:
//   0              rings: [kGroups][kParts][kStages][16 rows x 128], rows swizzled
//   kRingBytes     sums, then x, of LinearColumns; then what XRows needs
// Measured:  on an H200, 40 KB in flight a multiprocessor read 4.2 TB/s, 72 KB 4.4, 112 KB 4.45;
// two
//            groups of 8 stages keep 112 KB.
#ifndef QUIRE_LINEAR_FEW_CUH_
#define QUIRE_LINEAR_FEW_CUH_

#include "linear_columns.cuh"

template <int kCapacity, int kGroups, int kStages,
          template <typename> typename XRows = PlainRows>
struct LinearFew {
  static_assert(kStages >= 3);
  using Columns = LinearColumns<kCapacity, kGroups, 0>;
  using X = XRows<Columns>;
  static constexpr int kThreads = Columns::kThreads, kColumnTiles = Columns::kColumnTiles;
  static constexpr int kTileRows = Columns::kTileRows, kTiles = Columns::kTiles;

  static constexpr int kStageBytes = kTileRows * kStageRowBytes;
  static constexpr int kWarpRingBytes = kStages * kStageBytes;
  static constexpr int kRingBytes = kGroups * kParts * kWarpRingBytes;
  static_assert(kSharedBytes >=
                    kRingBytes + Columns::kSumBytes + Columns::kXBytes + X::kScratchBytes,
                "the launch rule's bytes");

  // Fills the warp's ring, one stage a call. Each lane copies chunk lane % 8 of the rows lane / 8,
  // + 4, + 8, + 12.
  struct Producer {
    const Element* from;  // row lane / 8 of the tile, this lane's chunk of the stage
    uint32_t ring;        // shared address, without the stage
    int part_begin, part_end;
    int tile, stride, k, stage;

    DEVICE void Issue() {
      const int lane = threadIdx.x % kWarpThreads;
      if (tile < kTiles && (kWholeStages || k + lane % 8 * kChunk < part_end)) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int row = lane / 8 + 4 * i;
          // Rows past the weight's end are left as they are: no row reaches another.
          if (Columns::HasRow(tile, row)) {
            CopyAsync(ring + stage * kStageBytes + row * kStageRowBytes + SwizzledChunk(row, lane),
                      from + int64_t{Columns::WeightRow(0, 4 * i)} * kK,
                      kK == kPaddedK || k + lane % 8 * kChunk < kK ? 16 : 0);
          }
        }
      }
      CommitCopies();
      stage = stage + 1 == kStages ? 0 : stage + 1;
      k += kStageK;
      from += kStageK;
      if (k >= part_end) {
        from += int64_t{stride} * (Columns::kTileColumns * kK) - (k - part_begin);
        k = part_begin;
        tile += stride;
      }
    }
  };

  // REQUIRES: first_row < rows.
  static DEVICE void Run(const LinearOperands& operands) {
    uint8_t* shared = SharedMemory();
    const int warp = threadIdx.x / kWarpThreads, lane = threadIdx.x % kWarpThreads;
    const int group = warp / kParts, part = warp % kParts;
    const int first_tile = group * gridDim.x + blockIdx.x, stride = kGroups * gridDim.x;
    const int part_begin = PartBegin(kK, part), part_end = PartBegin(kK, part + 1);
    const int stages = PartStages(kK, part);
    const uint32_t ring = SharedAddress(shared) + warp * kWarpRingBytes;

    const X x(operands);
    Producer producer;
    producer.from = operands.weight + (int64_t{first_tile} * Columns::kTileColumns + lane / 8) * kK +
                    part_begin + lane % 8 * kChunk;
    producer.ring = ring;
    producer.part_begin = producer.k = part_begin;
    producer.part_end = part_end;
    producer.tile = stages > 0 ? first_tile : kTiles;
    producer.stride = stride;
    producer.stage = 0;
#pragma unroll 1
    for (int i = 0; i < kStages - 1; ++i) producer.Issue();
    AllowNextGrid();
    WaitForPriorGrid();
    uint8_t* x_rows = shared + kRingBytes + Columns::kSumBytes;
    x.Load(operands, x_rows, x_rows + Columns::kXBytes);
    SyncBlock();

    // Lane addresses of the matrices: weight row lane % 16 and half lane / 16 of each 16 k.
    uint32_t weight_at[4], x_at[kColumnTiles];
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      weight_at[step] = lane % 16 * kStageRowBytes + SwizzledChunk(lane % 16, 2 * step + lane / 16);
    }
    Columns::XAddresses(operands, x_rows, part_begin, x_at);
    auto* sums =
        reinterpret_cast<float*>(shared + kRingBytes) + group * kParts * Columns::kPartSums;

    int stage = 0;
    for (int tile = first_tile; tile < kTiles; tile += stride) {
      const typename Columns::Finisher finisher(operands, tile);
      typename Columns::Sums sum = {};
      for (int s = 0; s < stages; ++s) {
        WaitForCopies<kStages - 2>();
        SyncWarp();
        uint32_t a[4][4], b[kColumnTiles][2][4];
        const int steps = kWholeStages ? 4 : (part_end - part_begin - s * kStageK) / kStepK;
#pragma unroll
        for (int step = 0; step < 4; ++step) {
          LoadMatrices(a[step], ring + stage * kStageBytes + weight_at[step]);
        }
#pragma unroll
        for (int i = 0; i < kColumnTiles; ++i) {
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            if (kWholeStages || steps > 2 * half) {
              LoadMatrices(b[i][half], x_at[i] + s * kStageRowBytes + half * 64);
            }
          }
        }
        producer.Issue();  // into the stage that the round before this one read
#pragma unroll
        for (int step = 0; step < 4; ++step) {
          if (kWholeStages || step < steps) {
#pragma unroll
            for (int i = 0; i < kColumnTiles; ++i) {
              Mma<Element>(sum[i], a[step], b[i][step / 2][step % 2 * 2],
                           b[i][step / 2][step % 2 * 2 + 1]);
            }
          }
        }
        stage = stage + 1 == kStages ? 0 : stage + 1;
      }
      finisher.Run(operands, sums, sum);
    }
    WaitForCopies<0>();
  }
};

#endif  // QUIRE_LINEAR_FEW_CUH_
