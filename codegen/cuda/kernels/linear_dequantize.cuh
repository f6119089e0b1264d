// A block-quantised weight as rows of Element, what bodies read that do not read blocks: the values
// of linear_fours.cuh.
//
// Work:   a thread has lane t's share of a span, and the next in the grid's stride.
// Constants expected: Element, kN, kK. Out: [kN, kK].
#ifndef QUIRE_LINEAR_DEQUANTIZE_CUH_
#define QUIRE_LINEAR_DEQUANTIZE_CUH_

#include "linear_fours.cuh"

template <typename Fours, int kThreads>
DEVICE void DequantizeWeight(const uint8_t* weight, Element* out) {
  static_assert(kK % Fours::kElements == 0);
  constexpr int kSpans = Fours::kElements / Fours::kSpan;
  constexpr int64_t kShares = int64_t{kN} * (kK / Fours::kSpan) * 4;
  AllowNextGrid();
  WaitForPriorGrid();
  const int64_t stride = int64_t{kThreads} * gridDim.x;
  for (int64_t at = int64_t{blockIdx.x} * kThreads + threadIdx.x; at < kShares; at += stride) {
    const int t = static_cast<int>(at % 4);
    const int64_t span = at / 4;  // of the whole weight, as blocks follow each other
    Fours four;
    four.Load(weight + span / kSpans * Fours::kBytes, static_cast<int>(span % kSpans), t);
#pragma unroll
    for (int step = 0; step < Fours::kSpan / 16; ++step) {
      float values[4];
      four.Four(step, values);
      *reinterpret_cast<Words2*>(out + span * Fours::kSpan + 16 * step + 4 * t) = {
          Pack<Element>(values[0], values[1]), Pack<Element>(values[2], values[3])};
    }
  }
}

#endif  // QUIRE_LINEAR_DEQUANTIZE_CUH_
