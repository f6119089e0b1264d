// The arithmetic of a norm over a whole row, the same in every kernel that computes one.
//
// A row is cut into chunks of 8 elements. A sum over a row: elements of a chunk one after another
// from its first, then chunks as a perfect binary tree over their numbers, absent ones being 0, so
// that it does not matter which thread has which chunk, nor how many threads there are.
//
//   mean     = sum(x) (1 / n); 0 for rms_norm
//   inverse  = 1 / sqrt(fma(sum((x - mean)^2), 1 / n, eps))
//   y        = ((x - mean) inverse) (w + offset); with a bias the last product is an fma
#ifndef QUIRE_NORM_CUH_
#define QUIRE_NORM_CUH_

#include "prelude.cuh"

constexpr int kNormChunk = 8;

// `sum` grown by the next elements of a chunk.
template <int V>
DEVICE float AddElements(float sum, const float (&x)[V]) {
#pragma unroll
  for (int i = 0; i < V; ++i) sum = Add(sum, x[i]);
  return sum;
}
template <int V>
DEVICE float AddSquares(float sum, const float (&x)[V]) {
#pragma unroll
  for (int i = 0; i < V; ++i) sum = Fma(x[i], x[i], sum);
  return sum;
}

// What trees below are of: sums, or the greatest of magnitudes, which a quantize is by.
struct SumTree {
  static DEVICE float Of(float a, float b) { return Add(a, b); }
};
struct GreatestTree {
  static DEVICE float Of(float a, float b) { return Max(a, b); }
};
// `greatest` of the next elements of a chunk, too.
template <int V>
DEVICE float TakeGreatest(float greatest, const float (&x)[V]) {
#pragma unroll
  for (int i = 0; i < V; ++i) greatest = Max(greatest, FromBits(Bits(x[i]) & 0x7fffffffu));
  return greatest;
}

// The tree over the numbers of 2, 4, .. or 32 lanes; every lane receives the sum.
template <int kLanes, typename Tree = SumTree>
DEVICE float SumOfLanes(float x) {
#pragma unroll
  for (int mask = 1; mask < kLanes; mask *= 2) x = Tree::Of(x, ShuffleXor(x, mask));
  return x;
}

DEVICE constexpr int PowerOfTwoFrom(int x) {
  int power = 1;
  while (power < x) power *= 2;
  return power;
}

// The tree over chunks that a block of kThreads has, a multiple of 32: thread t has chunks
// j kThreads + t. Every lane of each warp puts the sum of a chunk, 0 where there is none; then, after
// SyncBlock, every thread asks for the total. `scratch` is kGroups = ceil(chunks / 32) floats of
// shared memory that no thread may still be reading: two places take turns.
template <int kThreads, int kGroups, typename Tree = SumTree>
DEVICE void PutSum(float* scratch, int j, float sum) {
  static_assert(kThreads % kWarpThreads == 0);
  const float of_group = SumOfLanes<kWarpThreads, Tree>(sum);
  const int group = j * (kThreads / kWarpThreads) + static_cast<int>(threadIdx.x / kWarpThreads);
  if (threadIdx.x % kWarpThreads == 0 && group < kGroups) scratch[group] = of_group;
}
template <int kGroups, typename Tree = SumTree>
DEVICE float Total(const float* scratch) {
  static_assert(kGroups <= kWarpThreads * kWarpThreads);
  const int lane = threadIdx.x % kWarpThreads;
  if constexpr (kGroups <= kWarpThreads) {
    // As often as the warp holds the tree.
    constexpr int kLeaves = PowerOfTwoFrom(kGroups);
    const int at = lane % kLeaves;
    return SumOfLanes<kLeaves, Tree>(at < kGroups ? scratch[at] : 0.0f);
  } else {
    float mine = 0;
    for (int j = 0; j < (kGroups + kWarpThreads - 1) / kWarpThreads; ++j) {
      const int at = j * kWarpThreads + lane;
      const float sum = SumOfLanes<kWarpThreads, Tree>(at < kGroups ? scratch[at] : 0.0f);
      mine = lane == j ? sum : mine;
    }
    return SumOfLanes<kWarpThreads, Tree>(mine);
  }
}

// The same of the chunks that a warp has: lane l brings chunk 32 j + l.
template <typename Tree = SumTree, int K>
DEVICE float SumOfWarp(const float (&sums)[K]) {
  constexpr int kGroups = PowerOfTwoFrom(K);
  float groups[kGroups] = {};
#pragma unroll
  for (int j = 0; j < K; ++j) groups[j] = SumOfLanes<kWarpThreads, Tree>(sums[j]);
#pragma unroll
  for (int width = kGroups / 2; width > 0; width /= 2) {
#pragma unroll
    for (int j = 0; j < width; ++j) groups[j] = Tree::Of(groups[2 * j], groups[2 * j + 1]);
  }
  return groups[0];
}

// Of sum((x - mean)^2); `per_element` is 1 / n.
DEVICE float InverseRoot(float squares, float per_element, float eps) {
  return Reciprocal(SquareRoot(Fma(squares, per_element, eps)));
}

#endif  // QUIRE_NORM_CUH_
