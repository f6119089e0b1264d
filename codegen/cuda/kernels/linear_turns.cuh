// The cosines and sines by which a step's linears turn heads (linear_rope.cuh): for all layers.
//
// Constants expected: kPairs of a head, kMagnitude, and a function
//   Angles<1> FrequencyOf(int position, int pair, const void* factors)
// Work: one pair of one row a thread at a time.
#ifndef QUIRE_LINEAR_TURNS_CUH_
#define QUIRE_LINEAR_TURNS_CUH_

#include "row.cuh"
#include "step.cuh"

struct alignas(8) Rotation {
  float cosine, sine;
};

// `turns`: [header->rows, kPairs].
DEVICE void WriteTurns(const StepHeader* header, const int* positions, const void* factors,
                       Rotation* turns, int threads) {
  AllowNextGrid();
  WaitForPriorGrid();  // the step before may still read what is there
  const int count = header->rows * kPairs;
  const int stride = static_cast<int>(gridDim.x) * threads;
  for (int i = static_cast<int>(blockIdx.x) * threads + static_cast<int>(threadIdx.x); i < count;
       i += stride) {
    const int position = LoadGlobal(positions + i / kPairs);
    const Turns<1> turn = TurnsOf(position, FrequencyOf(position, i % kPairs, factors), kMagnitude);
    turns[i] = {turn.cosine.x[0], turn.sine.x[0]};
  }
}

#endif  // QUIRE_LINEAR_TURNS_CUH_
