// Rows of x, or of a norm of x as row kernels compute it, as numbers of f8e4m3 by scales: what
// linear_e4m3.cuh reads.
//
// Template:  kThreads of a block, which has a row.
// Shared memory: scratch for a sum over the row, [2][kGroups] f32.
// Constants expected: Element, of x; kK, a multiple of 128; kColumns that share a scale, 128, or 0:
// the row; kMost; kHasScale: one is given; kHasNorm, and then those of linear_norm.cuh.
#ifndef QUIRE_LINEAR_QUANTIZE_CUH_
#define QUIRE_LINEAR_QUANTIZE_CUH_

#include "e4m3.cuh"
#include "norm.cuh"

template <int kThreads>
struct QuantizeRows {
  static constexpr int kChunks = kK / kNormChunk, kGroups = (kChunks + 31) / 32;
  static constexpr int kTurns = (kChunks + kThreads - 1) / kThreads;
  static constexpr int kScaleChunks = 128 / kNormChunk;  // lanes that share a scale of 128
  static_assert(kK % 128 == 0 && (kColumns == 0 || kColumns == 128));
  static_assert(kSharedBytes >= 2 * kGroups * 4);
  template <typename T>
  struct alignas(8) Eight {
    T values[kNormChunk];
  };
  using Row = float[kTurns][kNormChunk];

  static DEVICE int Chunk(int turn) { return turn * kThreads + static_cast<int>(threadIdx.x); }

  // Over the row, in the order of norm.cuh; threads meet once.
  template <typename Tree, typename OfChunk>
  static DEVICE float Over(int place, const Row& row, const OfChunk& of_chunk) {
    float* scratch = reinterpret_cast<float*>(SharedMemory()) + place * kGroups;
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
      const float sum = Chunk(turn) < kChunks ? of_chunk(row[turn]) : 0.0f;
      PutSum<kThreads, kGroups, Tree>(scratch, turn, sum);
    }
    SyncBlock();
    return Total<kGroups, Tree>(scratch);
  }

  // As a row kernel computes it, rounded to Element.
  static DEVICE void Norm(const void* weights, const void* biases, Row& row) {
    if constexpr (kNormCentres) {
      const float mean = Mul(Over<SumTree>(0, row,
                                           [](const float(&x)[kNormChunk]) {
                                             return AddElements(0.0f, x);
                                           }),
                             kNormPerElement);
#pragma unroll
      for (int i = 0; i < kTurns * kNormChunk; ++i) {
        float& x = row[i / kNormChunk][i % kNormChunk];
        x = Add(x, FromBits(Bits(mean) ^ 0x80000000u));
      }
    }
    const float inverse = InverseRoot(
        Over<SumTree>(1, row,
                      [](const float(&x)[kNormChunk]) { return AddSquares(0.0f, x); }),
        kNormPerElement, kNormEps);
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
      const int chunk = Chunk(turn);
      if (chunk >= kChunks) continue;
      const auto* weight = static_cast<const NormWeight*>(weights) + chunk * kNormChunk;
      const auto* bias = static_cast<const NormBias*>(biases) + chunk * kNormChunk;
#pragma unroll
      for (int i = 0; i < kNormChunk; ++i) {
        float y = Mul(row[turn][i], inverse);
        if constexpr (kNormHasWeight) {
          float w = ToFloat(weight[i]);
          if constexpr (kNormOffset != 0) w = Add(w, kNormOffset);
          if constexpr (kNormHasBias) {
            y = Fma(y, w, ToFloat(bias[i]));
          } else {
            y = Mul(y, w);
          }
        }
        row[turn][i] = ToFloat(FromFloat<Element>(y));
      }
    }
  }

  // `x_row_count`: rows of x, in eights.
  static DEVICE void Run(const Element* x, const void* norm_weight, const void* norm_bias,
                         const float* given, E4m3* out, float* scales, int x_row_count) {
    AllowNextGrid();
    WaitForPriorGrid();
    const int64_t begin = int64_t{blockIdx.x} * kK;
    Row row;
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
      const int chunk = Chunk(turn);
      Words4 words = {};
      if (chunk < kChunks) {
        words = *reinterpret_cast<const Words4*>(x + begin + chunk * kNormChunk);
      }
      const uint32_t all[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
      for (int i = 0; i < kNormChunk; ++i) {
        row[turn][i] = ToFloat(Element{static_cast<uint16_t>(all[i / 2] >> i % 2 * 16)});
      }
    }
    if constexpr (kHasNorm) Norm(norm_weight, norm_bias, row);
    float scale = 0;
    if constexpr (kHasScale) {
      scale = *given;
    } else if constexpr (kColumns == 0) {
      scale = ScaleOf(Over<GreatestTree>(0, row,
                                         [](const float(&x)[kNormChunk]) {
                                           return TakeGreatest(0.0f, x);
                                         }),
                      kMost);
    }
    if (kColumns == 0 && threadIdx.x == 0) scales[blockIdx.x] = scale;
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
      const int chunk = Chunk(turn);
      if constexpr (kColumns != 0) {
        const float of_chunk = chunk < kChunks ? TakeGreatest(0.0f, row[turn]) : 0.0f;
        scale = ScaleOf(SumOfLanes<kScaleChunks, GreatestTree>(of_chunk), kMost);
        if (chunk < kChunks && chunk % kScaleChunks == 0) {
          scales[chunk / kScaleChunks * x_row_count + static_cast<int>(blockIdx.x)] = scale;
        }
      }
      if (chunk >= kChunks) continue;
      const float divisor = scale == 0 ? 1.0f : scale;
      float y[kNormChunk];
#pragma unroll
      for (int i = 0; i < kNormChunk; ++i) y[i] = Divide(row[turn][i], divisor);
      Words2 packed = {PackFours(y[0], y[1], y[2], y[3]), PackFours(y[4], y[5], y[6], y[7])};
      *reinterpret_cast<Words2*>(out + begin + chunk * kNormChunk) = packed;
    }
  }
};

#endif  // QUIRE_LINEAR_QUANTIZE_CUH_
