// linear_narrow.cuh's linear of numbers of f8e4m3 (linear_e4m3.cuh). All rows of x are in one tile,
// and no tile is cut.
#ifndef QUIRE_LINEAR_E4M3_NARROW_CUH_
#define QUIRE_LINEAR_E4M3_NARROW_CUH_

#include "linear_e4m3.cuh"
#include "linear_narrow.cuh"

template <int kTokens, int kTileRows, int kStages>
struct E4m3Ring : NarrowRing<kTokens, kTileRows, kStages> {
  using Stages = typename NarrowRing<kTokens, kTileRows, kStages>::Ring;

  struct Reader {
    const Stages& ring;
    int consumer;
    typename Stages::Turn turn;

    DEVICE Reader(const E4m3Ring& of, const LinearOperands&, int number)
        : ring(of.ring), consumer(number) {}
    // The first part has the sums of all, the others zeros, which add nothing.
    DEVICE void Multiply(const LinearOperands& operands, int row_begin, int part,
                         float (&sum)[kTokens / 2]) {
#pragma unroll
      for (int i = 0; i < kTokens / 2; ++i) sum[i] = 0;
      if (part > 0) return;
      using Scales = E4m3Scales<kTokens, true>;
      Scales scales(operands, row_begin + consumer * 64, 0);
      // As registers suffice for.
      constexpr bool kHasTwo = kTokens < 64 || (kTokens == 64 && kTileRows <= 128 && kRowScales);
      constexpr int kMost = kTokens == 16 ? 4 : kHasTwo ? 2 : 1;
      constexpr int kAtOnce = kMost <= kStages ? kMost : 1;
      const E4m3Sums<kTokens, kAtOnce, Stages, Scales> sums{
          ring, operands.k / kStageK, Stages::kXBytes + consumer * 64 * kStageRowBytes, 0};
      sums.Run(turn, scales, sum);
    }
  };
};

template <int kTokens, int kTileRows, int kStages>
using LinearE4m3Narrow =
    LinearNarrow<kTokens, kTileRows, kStages, E4m3Ring<kTokens, kTileRows, kStages>>;

#endif  // QUIRE_LINEAR_E4M3_NARROW_CUH_
