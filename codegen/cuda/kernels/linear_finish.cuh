// What comes behind sums of a library where heads are turned: bias, rope, stores to y and pages.
//
// Sums are as a body's, columns in the order of the weight's rows (linear_rope.cuh).
// Work: eight columns of one row a thread at a time; rows have whole sixteens of them.
#ifndef QUIRE_LINEAR_FINISH_CUH_
#define QUIRE_LINEAR_FINISH_CUH_

#include "linear_units.cuh"

static_assert(kTurns);

DEVICE void FinishSums(const float* sums, const LinearOperands& operands, int threads) {
  AllowNextGrid();
  WaitForPriorGrid();
  const int eights = (operands.n + 15) / 16 * 2;
  const int64_t count = int64_t{operands.rows} * eights;
  const int64_t stride = int64_t{gridDim.x} * threads;
  // Whole warps go round, as those that have nothing hand on nothing.
  for (int64_t begin = int64_t{blockIdx.x} * threads + threadIdx.x / kWarpThreads * kWarpThreads;
       begin < count; begin += stride) {
    const int64_t i = begin + threadIdx.x % kWarpThreads;
    const int row = static_cast<int>(i / eights), at = static_cast<int>(i % eights) * 8;
    float values[4][2] = {};
    if (i < count && at < operands.n) {
      const float* from = sums + int64_t{row} * operands.n + at;
#pragma unroll
      for (int e = 0; e < 8; e += 4) {
        const Words4 words = *reinterpret_cast<const Words4*>(from + e);
        values[e / 2][0] = FromBits(words.x), values[e / 2][1] = FromBits(words.y);
        values[e / 2 + 1][0] = FromBits(words.z), values[e / 2 + 1][1] = FromBits(words.w);
      }
    }
    StoreEight(operands, row, at, values);
  }
}

#endif  // QUIRE_LINEAR_FINISH_CUH_
