// linear_warpgroup.cuh's linear of numbers of f8e4m3 (linear_e4m3.cuh). No tile is cut. One warpgroup
// adds to its totals while the other multiplies.
#ifndef QUIRE_LINEAR_E4M3_WARPGROUP_CUH_
#define QUIRE_LINEAR_E4M3_WARPGROUP_CUH_

#include "linear_e4m3.cuh"
#include "linear_warpgroup.cuh"

template <int kTileRows, int kStages>
struct LinearE4m3Warpgroup {
  using Whole = LinearWarpgroup<kTileRows, kStages, false>;
  using Ring = typename Whole::Ring;
  using Units = typename Whole::Units;
  static constexpr int kThreads = Whole::kThreads;

  static DEVICE void Consume(const LinearOperands& operands, const Ring& ring, int consumer) {
    WaitForPriorGrid();
    using Scales = E4m3Scales<kTileRows, false>;
    const E4m3Sums<kTileRows, 1, Ring, Scales> sums{
        ring, operands.k / kStageK, consumer * Whole::kGroupTokens * kStageRowBytes, Ring::kXBytes};
    typename Ring::Turn turn;
    const int tiles = Units::Count(operands);
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
      Whole::PrefetchResidual(operands, tile, consumer);
      const typename Units::Place at(operands, tile);
      float total[kTileRows / 2];
      Scales scales(operands, at.token_begin + consumer * Whole::kGroupTokens, at.row_begin);
      sums.Run(turn, scales, total);
      Whole::Store(operands, typename Units::Place(operands, tile), consumer, total);
    }
  }

  static DEVICE void Run(const LinearOperands& operands, const TensorMap& x,
                         const TensorMap& weight) {
    Whole::template RunBlock<LinearE4m3Warpgroup>(operands, x, weight, 1);
  }
};

#endif  // QUIRE_LINEAR_E4M3_WARPGROUP_CUH_
