// What the bodies for sm_90a do between products of warpgroups: scores to weights, and sums to
// totals.
#ifndef QUIRE_ATTENTION_STEPS_CUH_
#define QUIRE_ATTENTION_STEPS_CUH_

#include "attention_rows.cuh"

// Of a step's 64 tokens, for a lane's rows, as first operands of products.
using StepScores = float[kStepTokens / 8][4];
using StepWeights = uint32_t[kStepTokens / 16][4];

// Weights of finished scores. `m` is raised, if some score asks for it, only after all weights have
// been computed without: it seldom is but by a chunk's first step (`opens`), and no lane has to
// know what others have. Weights that ask for it reach 2^8, rounded or not. If the result is true,
// sums of the chunk's steps before are to be scaled by two to `before` - m.
DEVICE bool Weigh(const StepScores& s, bool opens, float (&m)[2], float (&before)[2],
                  StepWeights& p) {
  before[0] = m[0], before[1] = m[1];
  const auto raise = [&] {
    float largest[2];
    Largest(s, largest);
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      m[row] = RaiseMaximum(opens ? kLowest : before[row], largest[row]);
    }
  };
  const auto weigh = [&] {
    uint32_t most = 0;
#pragma unroll
    for (int i = 0; i < kStepTokens / 4; ++i) {
      const float* pair = &s[i / 4 * 2 + i % 4 / 2][i % 2 * 2];
      p[i / 4][i % 4] = Pack<Element>(Weight(pair[0], m[i % 2]), Weight(pair[1], m[i % 2]));
      most = i == 0 ? p[0][0] : MaxOfPairs<Element>(most, p[i / 4][i % 4]);
    }
    constexpr uint32_t kLarge = kIsBf16 ? 0x4380 : 0x5c00;  // 2^8
    return most >> 16 >= kLarge || (most & 0xffff) >= kLarge;
  };
  if (opens) raise();
  const bool large = weigh();
  if (opens) return true;
  if (!AnyLane(large)) return false;
  raise();
  weigh();
  return true;
}

// Sums whose maxima were `before`.
template <int kTiles>
DEVICE void ScaleSums(RowSums<kTiles>& sums, const float (&before)[2]) {
  const float scale[2] = {PowerOfTwo(Add(before[0], -sums.m[0])),
                          PowerOfTwo(Add(before[1], -sums.m[1]))};
#pragma unroll
  for (int i = 0; i < 4; ++i) sums.l[i] = Mul(sums.l[i], scale[i / 2]);
#pragma unroll
  for (int i = 0; i < kTiles * 4; ++i) {
    sums.o[i / 4][i % 4] = Mul(sums.o[i / 4][i % 4], scale[i % 4 / 2]);
  }
}

// A chunk's sums, with maxima `m`, into the totals, which are seldom scaled: one is a power of two,
// and exact.
template <int kTiles>
DEVICE void FoldChunk(RowSums<kTiles>& total, const RowSums<kTiles>& chunk, const float (&m)[2]) {
  const FoldScales scales[2] = {FoldScales(total.m[0], m[0]), FoldScales(total.m[1], m[1])};
  if (AnyLane(scales[0].own != 1 || scales[1].own != 1)) {
#pragma unroll
    for (int i = 0; i < 4; ++i) total.l[i] = Mul(total.l[i], scales[i / 2].own);
#pragma unroll
    for (int i = 0; i < kTiles * 4; ++i) {
      total.o[i / 4][i % 4] = Mul(total.o[i / 4][i % 4], scales[i % 4 / 2].own);
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) total.l[i] = Fma(chunk.l[i], scales[i / 2].more, total.l[i]);
#pragma unroll
  for (int i = 0; i < kTiles * 4; ++i) {
    total.o[i / 4][i % 4] =
        Fma(chunk.o[i / 4][i % 4], scales[i % 4 / 2].more, total.o[i / 4][i % 4]);
  }
}

#endif  // QUIRE_ATTENTION_STEPS_CUH_
