// What bodies for few rows of x have in common: rows of x in shared memory, and tiles of weight
// rows whose parts are summed by kParts warps, a group.
//
// Where kFoursTiles is 0, the 16 rows of a tile are the tensor core's rows, and those of x its
// columns. Otherwise it is the other way round: a tile is one or two times 8 rows, and each 16 k of
// x lie in the order in which
// linear_fours.cuh gives those of a weight, four elements a lane: words 0, 2, 4, 6, then 1, 3,
// 5, 7. Within a step of the tensor core neither side nor order changes a bit.
//
// Of a gated linear the first half of a tile's rows are of `a`, the second the same of `b`, so that
// one thread finishes both.
// Constants expected, beside those of linear_act.cuh: kN, kK.
#ifndef QUIRE_LINEAR_COLUMNS_CUH_
#define QUIRE_LINEAR_COLUMNS_CUH_

#include "linear_act.cuh"

static_assert(kK > 0 && kK % 8 == 0, "16 bytes are copied at once");
static_assert(kN > 0);
static_assert(kWholeStages == (kGrain % kStageK == 0 || kK % (kParts * kStageK) == 0));

// K up to whole steps; from kK on, operands are zeros.
constexpr int kPaddedK = (kK + kStepK - 1) / kStepK * kStepK;

constexpr int kWeightRows = kGated ? 2 * kN : kN;

template <int kCapacity, int kGroups, int kFoursTiles>
struct LinearColumns {
  static_assert(kCapacity >= 1 && kCapacity <= 16);
  static constexpr int kRowCapacity = kCapacity;
  static constexpr bool kFours = kFoursTiles > 0;
  static constexpr int kTileRows = kFours ? 8 * kFoursTiles : 16;
  static constexpr int kColumnTiles = (kCapacity + 7) / 8;
  static constexpr int kGroupThreads = kParts * kWarpThreads;
  static constexpr int kThreads = kGroups * kGroupThreads;
  static constexpr int kTileColumns = kGated ? kTileRows / 2 : kTileRows;  // of y
  static constexpr int kTiles = (kN + kTileColumns - 1) / kTileColumns;
  static_assert(kPairDistance < kTileColumns, "tiles have whole pairs");

  // Sums: [kGroups][kParts][8 kColumnTiles rows of x][kTileRows + 4] f32. x:
  // [kCapacity][2 kPaddedK + 16], an odd number of 16 bytes a row where K is a multiple of 16, free
  // of conflicts; then 16 bytes that the last row's last matrices may read and nothing uses.
  static constexpr int kSumStride = kTileRows + 4;
  static constexpr int kPartSums = 8 * kColumnTiles * kSumStride;
  static constexpr int kSumBytes = kGroups * kParts * kPartSums * 4;
  static constexpr int kXRowBytes = kPaddedK * kElementBytes + 16;
  static constexpr int kXBytes = kCapacity * kXRowBytes + 16;

  // Of a lane: a tile of 16 x 8 each.
  static constexpr int kXTiles = kFours ? 1 : kColumnTiles;
  using Sums = float[kFours ? kFoursTiles : kColumnTiles][4];

  // Rows of x that a group's threads finish at once, and how often.
  static constexpr int kFinishedRows = kGroupThreads / kTileColumns;
  static constexpr int kFinishes = (8 * kColumnTiles + kFinishedRows - 1) / kFinishedRows;

  // Of row `row` of a tile: the row of the weight, and whether there is one.
  static DEVICE int WeightRow(int tile, int row) {
    const int second = kGated && row >= kTileColumns ? kN - kTileColumns : 0;
    return tile * kTileColumns + row + second;
  }
  static DEVICE bool HasRow(int tile, int row) {
    return kN % kTileColumns == 0 || tile * kTileColumns + row % kTileColumns < kN;
  }

  // Rows of x from operands.first_row on.
  static DEVICE int Rows(const LinearOperands& operands) {
    const int left = operands.rows - operands.first_row;
    return left < kCapacity ? left : kCapacity;
  }

  // Eight elements of a row of x in shared memory: those from 8 `chunk` on.
  static DEVICE void StoreChunk(uint8_t* row, int chunk, const Words4& words) {
    if constexpr (kFours) {
      auto* words_of_step = reinterpret_cast<uint32_t*>(row + chunk / 2 * 32 + chunk % 2 * 8);
      words_of_step[0] = words.x;
      words_of_step[1] = words.z;
      words_of_step[4] = words.y;
      words_of_step[5] = words.w;
    } else {
      *reinterpret_cast<Words4*>(row + chunk * 16) = words;
    }
  }
  static DEVICE Words4 ReadChunk(const uint8_t* row, int chunk) {
    if constexpr (kFours) {
      const auto* step = reinterpret_cast<const uint32_t*>(row + chunk / 2 * 32 + chunk % 2 * 8);
      return {step[0], step[4], step[1], step[5]};
    } else {
      return *reinterpret_cast<const Words4*>(row + chunk * 16);
    }
  }

  // Where this lane reads matrices of x from, from `k` on: row lane % 8 of each column tile and
  // chunk lane / 8 of each 32 k; with kFours, row lane % 16 and chunk lane / 16 of each 16 k.
  // Columns past the rows repeat the last row: no column reaches another.
  static DEVICE void XAddresses(const LinearOperands& operands, const uint8_t* x_rows, int k,
                                uint32_t (&x_at)[kXTiles]) {
    const int lane = threadIdx.x % kWarpThreads, rows = Rows(operands);
#pragma unroll
    for (int tile = 0; tile < kXTiles; ++tile) {
      const int row = kFours ? lane % 16 : 8 * tile + lane % 8;
      x_at[tile] = SharedAddress(x_rows) + (row < rows ? row : rows - 1) * kXRowBytes +
                   k * kElementBytes + lane / (kFours ? 16 : 8) * 16;
    }
  }

  // The elements of a tile that this thread finishes: weight row `n`, rows
  // x_row + kFinishedRows i of x.
  struct Finisher {
    int n, x_row, rows;
    float bias, gated_bias, residual[kFinishes];
    float other_bias;  // of the other column of a pair that is turned
    Rotation turns[kTurns ? kFinishes : 1];

    // Loads what comes after the product.
    DEVICE Finisher(const LinearOperands& operands, int tile) {
      const int thread = threadIdx.x % kGroupThreads;
      n = tile * kTileColumns + thread % kTileColumns;
      x_row = thread / kTileColumns;
      rows = Rows(operands);
      bias = gated_bias = other_bias = 0;
      if (kHasBias && n < kN) bias = operands.bias[kTurns ? ColumnAt(operands, n) : n];
      if (kHasBias && kGated && n < kN) gated_bias = operands.bias[kN + n];
#pragma unroll
      for (int i = 0; i < kFinishes; ++i) {
        residual[i] = 0;
        if (kHasResidual && Has(i)) residual[i] = ToFloat(operands.residual[At(operands, i)]);
      }
      if (!kTurns || n >= TurnedColumns(operands)) return;
      if constexpr (kHasBias) other_bias = operands.bias[ColumnAt(operands, n ^ kPairDistance)];
#pragma unroll
      for (int i = 0; i < kFinishes; ++i) {
        const int row = operands.first_row + x_row + kFinishedRows * i;
        if (Has(i)) turns[i] = *TurnAt(operands, row, n);
      }
    }
    DEVICE bool Has(int i) const { return n < kN && x_row + kFinishedRows * i < rows; }
    DEVICE int64_t At(const LinearOperands& operands, int i) const {
      return int64_t{operands.first_row + x_row + kFinishedRows * i} * kN + n;
    }

    static DEVICE float TotalOf(const float* element) {
      float total = element[0];
#pragma unroll
      for (int p = 1; p < kParts; ++p) total = Add(total, element[p * kPartSums]);
      return total;
    }

    // Adds the parts' sums and stores. `sums` are the group's in shared memory.
    DEVICE void Run(const LinearOperands& operands, float* sums, const Sums& sum) const {
      const int thread = threadIdx.x % kGroupThreads, lane = thread % kWarpThreads;
      const int group = threadIdx.x / kGroupThreads, part = thread / kWarpThreads;
      SyncThreads(1 + group, kGroupThreads);  // the tile before is finished
      float* part_sums = sums + part * kPartSums;
      const int g = lane / 4, pair = lane % 4 * 2;
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        if constexpr (kFours) {
          if (e / 2 >= kColumnTiles) continue;
#pragma unroll
          for (int i = 0; i < kFoursTiles; ++i) {
            part_sums[(g + e / 2 * 8) * kSumStride + 8 * i + pair + e % 2] = sum[i][e];
          }
        } else {
#pragma unroll
          for (int i = 0; i < kColumnTiles; ++i) {
            part_sums[(8 * i + pair + e % 2) * kSumStride + g + e / 2 * 8] = sum[i][e];
          }
        }
      }
      SyncThreads(1 + group, kGroupThreads);
#pragma unroll
      for (int i = 0; i < kFinishes; ++i) {
        if (!Has(i)) continue;
        const float* element = sums + (x_row + kFinishedRows * i) * kSumStride + n % kTileColumns;
        Output* y = OutputAt(operands, operands.first_row + x_row + kFinishedRows * i,
                             kTurns ? ColumnAt(operands, n) : n);
        if (kAppends && y == nullptr) continue;
        if constexpr (kHasAct) {
          *y = FinishAct(TotalOf(element), bias, kGated ? TotalOf(element + kTileColumns) : 0,
                         gated_bias);
        } else if (kTurns && n < TurnedColumns(operands)) {
          const int column = n % kTileColumns;
          const float* other = element + ((column ^ kPairDistance) - column);
          *y = Turned(Finish(TotalOf(element), bias, 0), Finish(TotalOf(other), other_bias, 0),
                      turns[i], (n & kPairDistance) != 0);
        } else {
          *y = Finish(TotalOf(element), bias, residual[i]);
        }
      }
    }
  };
};

// How rows of x come to shared memory: as they are, eight loads a thread in flight. NormedRows of
// linear_norm.cuh is another way.
template <typename Columns>
struct PlainRows {
  static constexpr int kScratchBytes = 0;

  // Before the prior grid is done.
  DEVICE explicit PlainRows(const LinearOperands&) {}

  // All threads of the block.
  DEVICE void Load(const LinearOperands& operands, uint8_t* x_rows, uint8_t*) const {
    constexpr int kRowChunks = kPaddedK / kChunk, kLoadedChunks = kK / kChunk;
    constexpr int kBatch = 8;
    const int chunks = Columns::Rows(operands) * kRowChunks;
    const auto* x = reinterpret_cast<const Words4*>(operands.x + int64_t{operands.first_row} * kK);
    for (int begin = threadIdx.x; begin < chunks; begin += kBatch * Columns::kThreads) {
      Words4 words[kBatch];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const int at = begin + i * Columns::kThreads;
        const int row = at / kRowChunks, chunk = at % kRowChunks;
        words[i] = {};
        if (at < chunks && chunk < kLoadedChunks) words[i] = x[row * kLoadedChunks + chunk];
      }
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const int at = begin + i * Columns::kThreads;
        if (at >= chunks) continue;
        Columns::StoreChunk(x_rows + at / kRowChunks * Columns::kXRowBytes, at % kRowChunks,
                            words[i]);
      }
    }
  }
};

#endif  // QUIRE_LINEAR_COLUMNS_CUH_
