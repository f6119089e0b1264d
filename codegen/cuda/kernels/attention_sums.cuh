// Sums of rows as the entry for few rows has them: columns down, rows across.
#ifndef QUIRE_ATTENTION_SUMS_CUH_
#define QUIRE_ATTENTION_SUMS_CUH_

#include "attention_tiles.cuh"

// Sums of 8 kBlocks rows: lane 4g + t has rows 8b + 2t and the next, of each of kTiles tiles of 16
// columns column g and g + 8; of values in bytes 2g and the next.
template <int kBlocks, int kTiles>
struct DownSums {
  float m[kBlocks][2], l[kBlocks][4], o[kTiles][kBlocks][4];

  DEVICE void Clear() {
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      m[b][0] = m[b][1] = kLowest;
#pragma unroll
      for (int i = 0; i < 4; ++i) l[b][i] = 0;
#pragma unroll
      for (int c = 0; c < kTiles * 4; ++c) o[c / 4][b][c % 4] = 0;
    }
  }
  // To maxima that are not below m, and seldom above.
  DEVICE void RaiseTo(const float (&raised)[kBlocks][2]) {
    bool changes = false;
#pragma unroll
    for (int i = 0; i < kBlocks * 2; ++i) changes |= raised[i / 2][i % 2] != m[i / 2][i % 2];
    if (!AnyLane(changes)) return;
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      float scale[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        scale[i] = PowerOfTwo(Add(m[b][i], -raised[b][i]));
        m[b][i] = raised[b][i];
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) l[b][i] = Mul(l[b][i], scale[i % 2]);
#pragma unroll
      for (int c = 0; c < kTiles * 4; ++c) {
        o[c / 4][b][c % 4] = Mul(o[c / 4][b][c % 4], scale[c % 2]);
      }
    }
  }
};

// A pair's chunks so far, folded, in shared memory: what each lane has, in vectors of four,
// kWarpThreads apart.
template <int kBlocks>
struct SumWords {
  using Sums = DownSums<kBlocks, kColumnTiles>;
  Words4* words;  // of this lane

  // `next` becomes all of them with it folded.
  DEVICE void FoldInto(Sums& next) const {
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      const Words4 statistics = words[b * kWarpThreads];
      float m[2] = {FromBits(statistics.x), FromBits(statistics.y)};
      const FoldScales scales[2] = {FoldScales(m[0], next.m[b][0]), FoldScales(m[1], next.m[b][1])};
      next.m[b][0] = m[0];
      next.m[b][1] = m[1];
      next.l[b][0] = scales[0].Fold(FromBits(statistics.z), next.l[b][0]);
      next.l[b][1] = scales[1].Fold(FromBits(statistics.w), next.l[b][1]);
#pragma unroll
      for (int c = 0; c < kColumnTiles; ++c) {
        const Words4 o = words[(kBlocks + c * kBlocks + b) * kWarpThreads];
        float(&to)[4] = next.o[c][b];
        to[0] = scales[0].Fold(FromBits(o.x), to[0]);
        to[1] = scales[1].Fold(FromBits(o.y), to[1]);
        to[2] = scales[0].Fold(FromBits(o.z), to[2]);
        to[3] = scales[1].Fold(FromBits(o.w), to[3]);
      }
    }
  }
  DEVICE void Keep(const Sums& sums) const {
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      words[b * kWarpThreads] = {Bits(sums.m[b][0]), Bits(sums.m[b][1]), Bits(sums.l[b][0]),
                                 Bits(sums.l[b][1])};
#pragma unroll
      for (int c = 0; c < kColumnTiles; ++c) {
        const float(&o)[4] = sums.o[c][b];
        words[(kBlocks + c * kBlocks + b) * kWarpThreads] = {Bits(o[0]), Bits(o[1]), Bits(o[2]),
                                                             Bits(o[3])};
      }
    }
  }
};

// The first kCount become the last, and those behind them come first.
template <int kCount, int kAll, typename T, int kEach, int kWords>
DEVICE void MoveUp(T (&of)[kAll][kEach][kWords]) {
#pragma unroll
  for (int i = 0; i < (kAll - kCount) * kEach * kWords; ++i) {
    const int each = i / kWords % kEach, word = i % kWords;
    of[i / kWords / kEach][each][word] = of[i / kWords / kEach + kCount][each][word];
  }
}

// Largest scores of a step's tiles, of all lanes' tokens.
template <int kBlocks>
DEVICE void LargestDown(const float (&s)[kStepTiles][kBlocks][4], float (&largest)[kBlocks][2]) {
#pragma unroll
  for (int b = 0; b < kBlocks; ++b) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float x = Max(s[0][b][i], s[0][b][i + 2]);
#pragma unroll
      for (int j = 1; j < kStepTiles; ++j) x = Max(x, Max(s[j][b][i], s[j][b][i + 2]));
      largest[b][i] = x;
    }
  }
}
template <int kBlocks>
DEVICE void OverLanes(float (&largest)[kBlocks][2]) {
#pragma unroll
  for (int b = 0; b < kBlocks; ++b) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int mask = 4; mask < kWarpThreads; mask *= 2) {
        largest[b][i] = Max(largest[b][i], ShuffleXor(largest[b][i], mask));
      }
    }
  }
}

#endif  // QUIRE_ATTENTION_SUMS_CUH_
