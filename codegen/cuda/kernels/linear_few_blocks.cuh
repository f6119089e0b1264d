// A linear over few rows whose weight is block-quantised: its bytes stream once through shared
// memory, and become an operand of the tensor core in registers; otherwise as linear_few.cuh.
//
// Template:  Fours, how the weight's blocks are read (linear_fours.cuh); a tile is kRowTiles times
//            8 rows, 1 where rows are few; otherwise as LinearFew.
// Ring:      private to a warp, 8 kRowTiles rows x 256 k a stage. A row's bytes of a stage keep
//            their place in 16 bytes, as rows may begin at any multiple of 2.
// Shared memory, in bytes:
//   0              rings: [kGroups][kParts][kStages][8 kRowTiles rows x kPitch], an odd number of
//                  16 bytes a row, so that eight rows lie in different banks
//   kRingBytes     sums, then x, of LinearColumns; then what XRows needs
#ifndef QUIRE_LINEAR_FEW_BLOCKS_CUH_
#define QUIRE_LINEAR_FEW_BLOCKS_CUH_

#include "linear_columns.cuh"
#include "linear_fours.cuh"

template <typename Fours, int kRowTiles, int kCapacity, int kGroups, int kStages,
          template <typename> typename XRows = PlainRows>
struct LinearFewBlocks {
  static_assert(kStages >= 3);
  static_assert(kK % Fours::kElements == 0 && kGrain == Fours::kElements);
  using Columns = LinearColumns<kCapacity, kGroups, kRowTiles>;
  using X = XRows<Columns>;
  static constexpr int kThreads = Columns::kThreads;
  static constexpr int kTileRows = Columns::kTileRows, kTiles = Columns::kTiles;

  static constexpr int kStageBlocks = 256 / Fours::kElements;
  static constexpr int kStageData = kStageBlocks * Fours::kBytes;  // of a row
  static constexpr int kRowBytes = kK / Fours::kElements * Fours::kBytes;
  static DEVICE constexpr int PartByte(int part) {
    return PartBegin(kK, part) / Fours::kElements * Fours::kBytes;
  }
  // No part ends within a stage.
  static constexpr bool kWholeBlocks = PartByte(1) % kStageData == 0 &&
                                       PartByte(2) % kStageData == 0 &&
                                       PartByte(3) % kStageData == 0 && kRowBytes % kStageData == 0;
  static constexpr bool kAligned = kRowBytes % 16 == 0 && kStageData % 16 == 0 &&
                                   PartByte(1) % 16 == 0 && PartByte(2) % 16 == 0 &&
                                   PartByte(3) % 16 == 0;
  static constexpr int kChunks = kAligned ? kStageData / 16 : (kStageData + 14 + 15) / 16;
  static constexpr int kPitch = (kChunks | 1) * 16;
  static constexpr int kStageBytes = kTileRows * kPitch;
  static constexpr int kWarpRingBytes = kStages * kStageBytes;
  static constexpr int kRingBytes = kGroups * kParts * kWarpRingBytes;
  static_assert(kSharedBytes >=
                    kRingBytes + Columns::kSumBytes + Columns::kXBytes + X::kScratchBytes,
                "the launch rule's bytes");

  // How far into 16 bytes byte `byte` of the weight's row `row` lies.
  static DEVICE int Shift(int row, int byte) {
    return kAligned ? 0 : static_cast<int>((static_cast<uint32_t>(row) * kRowBytes + byte) & 15);
  }

  // Fills the warp's ring, one stage a call.
  struct Producer {
    const uint8_t* weight;
    uint8_t* ring;             // in shared memory, without the stage
    int part_begin, part_end;  // in bytes of a row
    int tile, stride, byte, stage;

    DEVICE void Issue() {
      const int lane = threadIdx.x % kWarpThreads;
      if (tile < kTiles) {
        const int left = part_end - byte;
        const int data = left < kStageData ? left : kStageData;
#pragma unroll
        for (int i = 0; i < (kTileRows * kChunks + 31) / 32; ++i) {
          const int at = i * kWarpThreads + lane, tile_row = at / kChunks, chunk = at % kChunks;
          // Rows past the weight's end are left as they are: no row reaches another.
          if (tile_row >= kTileRows || !Columns::HasRow(tile, tile_row)) continue;
          const int row = Columns::WeightRow(tile, tile_row);
          const int shift = Shift(row, byte);
          if (chunk * 16 >= shift + data) continue;
          const int64_t from = int64_t{row} * kRowBytes + (byte - shift + chunk * 16);
          const uint32_t to = stage * kStageBytes + tile_row * kPitch + chunk * 16;
          if constexpr (int64_t{kWeightRows} * kRowBytes % 16 != 0) {
            const int64_t end = int64_t{kWeightRows} * kRowBytes - from;
            if (end < 16) {
              // The weight's last bytes, not beyond them; the warp meets before it reads.
              for (int i = 0; i < end; ++i) ring[to + i] = weight[from + i];
              continue;
            }
          }
          CopyAsync(SharedAddress(ring) + to, weight + from);
        }
      }
      CommitCopies();
      stage = stage + 1 == kStages ? 0 : stage + 1;
      byte += kStageData;
      if (byte >= part_end) {
        byte = part_begin;
        tile += stride;
      }
    }
  };

  // Adds the products of one span; rows[i] points to the block of row 8 i + lane / 4.
  static DEVICE void AddSpan(typename Columns::Sums& sums, const uint8_t* const (&rows)[kRowTiles],
                             int offset, int span, uint32_t x_at) {
    uint32_t x[Fours::kSpan / kStepK][4];
#pragma unroll
    for (int step = 0; step < Fours::kSpan / kStepK; ++step)
      LoadMatrices(x[step], x_at + 32 * step);
    Fours fours[kRowTiles];
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) fours[i].Load(rows[i] + offset, span, threadIdx.x % 4);
#pragma unroll
    for (int step = 0; step < Fours::kSpan / kStepK; ++step) {
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i) {
        float values[4];
        fours[i].Four(step, values);
        Mma<Element>(sums[i], x[step], Pack<Element>(values[0], values[1]),
                     Pack<Element>(values[2], values[3]));
      }
    }
  }

  // REQUIRES: first_row < rows.
  static DEVICE void Run(const LinearOperands& operands) {
    uint8_t* shared = SharedMemory();
    const int warp = threadIdx.x / kWarpThreads, lane = threadIdx.x % kWarpThreads;
    const int group = warp / kParts, part = warp % kParts;
    const int first_tile = group * gridDim.x + blockIdx.x, stride = kGroups * gridDim.x;
    const int part_begin = PartByte(part), part_end = PartByte(part + 1);
    const int stages = (part_end - part_begin + kStageData - 1) / kStageData;
    uint8_t* ring = shared + warp * kWarpRingBytes;

    const X x(operands);
    Producer producer;
    producer.weight = reinterpret_cast<const uint8_t*>(operands.weight);
    producer.ring = ring;
    producer.part_begin = producer.byte = part_begin;
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

    uint32_t x_at[1];
    Columns::XAddresses(operands, x_rows, PartBegin(kK, part), x_at);
    auto* group_sums =
        reinterpret_cast<float*>(shared + kRingBytes) + group * kParts * Columns::kPartSums;
    int stage = 0;
    for (int tile = first_tile; tile < kTiles; tile += stride) {
      const typename Columns::Finisher finisher(operands, tile);
      typename Columns::Sums sums = {};
      for (int s = 0, byte = part_begin; s < stages; ++s, byte += kStageData) {
        WaitForCopies<kStages - 2>();
        SyncWarp();
        producer.Issue();  // into the stage that the round before this one read
        const uint8_t* rows[kRowTiles];
#pragma unroll
        for (int i = 0; i < kRowTiles; ++i) {
          const int row = 8 * i + lane / 4;
          rows[i] = ring + stage * kStageBytes + row * kPitch +
                    Shift(Columns::WeightRow(tile, row), byte);
        }
#pragma unroll
        for (int block = 0; block < kStageBlocks; ++block) {
          if (!kWholeBlocks && byte + block * Fours::kBytes >= part_end) break;
#pragma unroll
          for (int span = 0; span < Fours::kElements / Fours::kSpan; ++span) {
            AddSpan(sums, rows, block * Fours::kBytes, span,
                    x_at[0] +
                        (s * 256 + block * Fours::kElements + span * Fours::kSpan) * kElementBytes);
          }
        }
        stage = stage + 1 == kStages ? 0 : stage + 1;
      }
      finisher.Run(operands, group_sums, sums);
    }
    WaitForCopies<0>();
  }
};

#endif  // QUIRE_LINEAR_FEW_BLOCKS_CUH_
