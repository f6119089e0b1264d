// Rows of x that a body for few rows norms as it brings them to shared memory: the bits of the row
// kernel of codegen/cuda/row.h, as sums are norm.cuh's trees.
//
// Work:   a warp has every kWarps-th group of 32 chunks of each row, a chunk a lane; what norms those
//         waits in registers, read before the ring is asked for, behind which it would wait.
// Shared memory: a row lies as it is until its sums are known. Scratch, in f32: sums of groups, of
//         elements and of squares: [2][kCapacity][kRowGroups]; [2][kCapacity] of rows.
// Constants expected, beside those of linear.cuh: NormWeight, NormBias (F32, F16 or Bf16),
// kNormHasWeight, kNormHasBias, kNormCentres (layer_norm), kNormPerElement (1 / kK), kNormEps,
// kNormOffset.
#ifndef QUIRE_LINEAR_NORM_CUH_
#define QUIRE_LINEAR_NORM_CUH_

#include "linear_columns.cuh"
#include "norm.cuh"

template <typename Columns>
struct NormedRows {
  static_assert(kChunk == kNormChunk);
  static constexpr int kCapacity = Columns::kRowCapacity;
  static constexpr int kWarps = Columns::kThreads / kWarpThreads;
  static constexpr int kChunks = kK / kChunk, kRowGroups = (kChunks + 31) / 32;
  static constexpr int kTurns = (kRowGroups + kWarps - 1) / kWarps;  // groups of a warp
  static constexpr int kScratchBytes = (2 * kCapacity * (kRowGroups + 1) * 4 + 15) / 16 * 16;

  template <typename T>
  struct alignas(16) Eight {
    T values[kChunk];
  };
  // Of a lane's chunk of a group.
  struct Parameters {
    Eight<NormWeight> weight;
    Eight<NormBias> bias;

    DEVICE void Load(const LinearOperands& operands, int group) {
      const int chunk = group * kWarpThreads + Lane();
      if (chunk >= kChunks) return;
      if constexpr (kNormHasWeight) {
        weight = static_cast<const Eight<NormWeight>*>(operands.norm_weight)[chunk];
      }
      if constexpr (kNormHasBias) {
        bias = static_cast<const Eight<NormBias>*>(operands.norm_bias)[chunk];
      }
    }
  };
  static constexpr int kHeld = kTurns <= 4 ? kTurns : 0;
  Parameters held[kHeld == 0 ? 1 : kHeld];

  static DEVICE int Warp() { return threadIdx.x / kWarpThreads; }
  static DEVICE int Lane() { return threadIdx.x % kWarpThreads; }

  // Before the prior grid is done: no step writes parameters.
  DEVICE explicit NormedRows(const LinearOperands& operands) {
#pragma unroll
    for (int turn = 0; turn < kHeld; ++turn) held[turn].Load(operands, turn * kWarps + Warp());
  }

  static DEVICE void Widen(const Words4& words, float (&values)[kChunk]) {
    const uint32_t all[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      values[i] = ToFloat(Element{static_cast<uint16_t>(all[i / 2] >> i % 2 * 16)});
    }
  }
  static DEVICE void Centre(float (&values)[kChunk], float mean) {
    const float negated = FromBits(Bits(mean) ^ 0x80000000u);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) values[i] = kNormCentres ? Add(values[i], negated) : values[i];
  }

  // Brings chunks `begin` to `begin + kBatch` of this lane's, kTurns a row, to shared memory, and
  // puts their groups' sums.
  template <int kBatch>
  static DEVICE void LoadBatch(const LinearOperands& operands, uint8_t* x_rows, float* sums,
                               int begin) {
    const int items = Columns::Rows(operands) * kTurns;
    const Element* x = operands.x + int64_t{operands.first_row} * kK;
    Words4 words[kBatch];
    float sum[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int row = (begin + i) / kTurns;
      const int chunk = ((begin + i) % kTurns * kWarps + Warp()) * kWarpThreads + Lane();
      words[i] = {};
      if (begin + i < items && chunk < kChunks) {
        words[i] = *reinterpret_cast<const Words4*>(x + row * kK + chunk * kChunk);
      }
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      float values[kChunk];
      Widen(words[i], values);
      sum[i] = kNormCentres ? AddElements(0.0f, values) : AddSquares(0.0f, values);
    }
#pragma unroll
    for (int mask = 1; mask < kWarpThreads; mask *= 2) {  // SumOfLanes, of all
#pragma unroll
      for (int i = 0; i < kBatch; ++i) sum[i] = Add(sum[i], ShuffleXor(sum[i], mask));
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int row = (begin + i) / kTurns, group = (begin + i) % kTurns * kWarps + Warp();
      const int chunk = group * kWarpThreads + Lane();
      if (begin + i >= items) continue;
      if (chunk < kPaddedK / kChunk) {
        Columns::StoreChunk(x_rows + row * Columns::kXRowBytes, chunk, words[i]);
      }
      if (group < kRowGroups && Lane() == 0) sums[row * kRowGroups + group] = sum[i];
    }
  }

  // Sums of squares of what is centred, of one group's rows in shared memory.
  static DEVICE void SquareGroup(const uint8_t* x_rows, int rows, float mean_of_lane,
                                 float* squares, int group) {
    const int chunk = group * kWarpThreads + Lane();
    for (int row = 0; row < rows; ++row) {
      const float mean = FromBits(Shuffle(Bits(mean_of_lane), row));
      float sum = 0;
      if (chunk < kChunks) {
        float values[kChunk];
        Widen(Columns::ReadChunk(x_rows + row * Columns::kXRowBytes, chunk), values);
        Centre(values, mean);
        sum = AddSquares(0.0f, values);
      }
      sum = SumOfLanes<kWarpThreads>(sum);
      if (Lane() == 0) squares[row * kRowGroups + group] = sum;
    }
  }

  // The rows of one group in shared memory, normed in place.
  static DEVICE void NormGroup(uint8_t* x_rows, int rows, float mean_of_lane, float inverse_of_lane,
                               const Parameters& parameters, int group) {
    const int chunk = group * kWarpThreads + Lane();
    for (int row = 0; row < rows; ++row) {
      const float mean = kNormCentres ? FromBits(Shuffle(Bits(mean_of_lane), row)) : 0;
      const float inverse = FromBits(Shuffle(Bits(inverse_of_lane), row));
      if (chunk >= kChunks) continue;
      uint8_t* x_row = x_rows + row * Columns::kXRowBytes;
      float values[kChunk];
      Widen(Columns::ReadChunk(x_row, chunk), values);
      Centre(values, mean);
#pragma unroll
      for (int i = 0; i < kChunk; ++i) {
        values[i] = Mul(values[i], inverse);
        if constexpr (kNormHasWeight) {
          float weight = ToFloat(parameters.weight.values[i]);
          if constexpr (kNormOffset != 0) weight = Add(weight, kNormOffset);
          values[i] = kNormHasBias ? Fma(values[i], weight, ToFloat(parameters.bias.values[i]))
                                   : Mul(values[i], weight);
        }
      }
      Columns::StoreChunk(x_row, chunk,
                          {Pack<Element>(values[0], values[1]), Pack<Element>(values[2], values[3]),
                           Pack<Element>(values[4], values[5]),
                           Pack<Element>(values[6], values[7])});
    }
  }

  // In lane r what `of_row` is of row r, computed by one warp a row; `place` is [kCapacity] f32.
  template <typename F>
  static DEVICE float OfRows(int rows, float* place, F of_row) {
    if (rows == 1) return of_row(0);  // in every lane of every warp
    for (int row = Warp(); row < rows; row += kWarps) {
      const float value = of_row(row);
      if (Lane() == 0) place[row] = value;
    }
    SyncBlock();
    return place[Lane() < rows ? Lane() : 0];
  }

  // All threads of the block, after the prior grid. Another warp's lanes may not have stored yet.
  DEVICE void Load(const LinearOperands& operands, uint8_t* x_rows, uint8_t* scratch) const {
    const int rows = Columns::Rows(operands);
    auto* sums = reinterpret_cast<float*>(scratch);
    float* squares = sums + kCapacity * kRowGroups;
    float* of_rows = squares + kCapacity * kRowGroups;
    for (int begin = 0; begin < rows * kTurns; begin += 4) {
      LoadBatch<4>(operands, x_rows, kNormCentres ? sums : squares, begin);
    }
    SyncBlock();
    float mean = 0;
    if constexpr (kNormCentres) {
      mean = OfRows(rows, of_rows, [&](int row) {
        return Mul(Total<kRowGroups>(sums + row * kRowGroups), kNormPerElement);
      });
      for (int group = Warp(); group < kRowGroups; group += kWarps) {
        SquareGroup(x_rows, rows, mean, squares, group);
      }
      SyncBlock();
    }
    const float inverse = OfRows(rows, of_rows + kCapacity, [&](int row) {
      return InverseRoot(Total<kRowGroups>(squares + row * kRowGroups), kNormPerElement, kNormEps);
    });
    if constexpr (kHeld > 0) {
#pragma unroll
      for (int turn = 0; turn < kHeld; ++turn) {
        const int group = turn * kWarps + Warp();
        if (group < kRowGroups) NormGroup(x_rows, rows, mean, inverse, held[turn], group);
      }
    } else {
      for (int group = Warp(); group < kRowGroups; group += kWarps) {
        Parameters parameters;
        parameters.Load(operands, group);
        NormGroup(x_rows, rows, mean, inverse, parameters, group);
      }
    }
  }
};

#endif  // QUIRE_LINEAR_NORM_CUH_
