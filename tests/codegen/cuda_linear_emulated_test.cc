// The linear kernels' source, run on the CPU over awkward sizes, against the arithmetic that
// codegen/cuda/linear.h states.
#include <string>
#include <vector>

#include "codegen/cuda/linear.h"
#include "gtest/gtest.h"
#include "tests/codegen/cuda_emulator.h"
#include "tests/codegen/cuda_linear_case.h"

// Kernels are included as system headers (tests/CMakeLists.txt): their text is written for NVRTC,
// not for the warnings of this build.

namespace quire::emulated {

// A kernel per set of constants: N, K, types, epilogue, body and body sizes.
#define QUIRE_LINEAR(name, n, k, element, output, bias, residual) \
  namespace name {                                                \
  using Element = element;                                        \
  using Output = output;                                          \
  constexpr int kN = n, kK = k, kGrain = 16;                      \
  constexpr bool kHasBias = bias, kHasResidual = residual;        \
  constexpr bool kWeightIsWritten = false;                        \
  constexpr int kSharedBytes = 1 << 20, kArrivalBytes = 1024;     \
  QUIRE_DERIVED                                                   \
  QUIRE_NO_ACT                                                    \
  }

QUIRE_LINEAR(whole, 40, 512, Bf16, F32, false, false)
namespace whole {
#include <linear_few.cuh>
#include <linear_tile.cuh>
}  // namespace whole
#include "tests/codegen/forget_linear_kernels.h"

QUIRE_LINEAR(ragged, 43, 208, Bf16, Bf16, true, true)
namespace ragged {
#include <linear_few.cuh>
#include <linear_tile.cuh>
}  // namespace ragged
#include "tests/codegen/forget_linear_kernels.h"

QUIRE_LINEAR(wide, 264, 80, F16, F16, false, true)
namespace wide {
#include <linear_few.cuh>
#include <linear_tile.cuh>
}  // namespace wide
#include "tests/codegen/forget_linear_kernels.h"

QUIRE_LINEAR(small, 16, 16, F16, F32, true, false)
namespace small {
#include <linear_few.cuh>
#include <linear_tile.cuh>
}  // namespace small
#include "tests/codegen/forget_linear_kernels.h"

QUIRE_LINEAR(half_step, 21, 360, Bf16, Bf16, false, false)
namespace half_step {
#include <linear_few.cuh>
#include <linear_tile.cuh>
}  // namespace half_step

namespace {

// One body over a case; tiles all whole, none, and some.
template <typename Body, typename Operands, typename TestCase>
void RunBody(const TestCase& c, int grid, int whole_tiles) {
  c.template Run<Operands>(grid, whole_tiles, Body::kThreads, size_t{Body::kRingBytes} + 128 * 1024,
                           [](const Operands& operands) { Body::Run(operands); });
}
template <typename Body, typename Operands, typename TestCase>
void RunTiles(const TestCase& c, int grid, int tokens) {
  const int tiles = (c.rows + tokens - 1) / tokens * ((c.n() + 127) / 128);
  if (tiles > 1) {
    RunBody<Body, Operands>(c, grid, tiles / 2);  // both kinds of units
  } else {
    RunBody<Body, Operands>(c, grid, 1);
    RunBody<Body, Operands>(c, grid, 0);
  }
}

// The bodies of one namespace over row counts and grids.
#define QUIRE_RUN(space, grids, few_rows, tile_rows)                                          \
  using Operands = space::LinearOperands;                                                     \
  using TestCase = Case<space::Element, space::Output, space::kN, space::kK, space::kHasBias, \
                        space::kHasResidual>;                                                 \
  for (int grid : grids) {                                                                    \
    for (int rows : few_rows) {                                                               \
      SCOPED_TRACE("few");                                                                    \
      const TestCase c{rows};                                                                 \
      if (rows <= 8) RunBody<space::LinearFew<8, 2, 3>, Operands>(c, grid, 0);                \
      RunBody<space::LinearFew<16, 1, 5>, Operands>(c, grid, 0);                              \
    }                                                                                         \
    for (int rows : tile_rows) {                                                              \
      SCOPED_TRACE("tile");                                                                   \
      const TestCase c{rows};                                                                 \
      if (rows <= 33) RunTiles<space::LinearTile<16, 1, 5>, Operands>(c, grid, 16);           \
      if (rows <= 33) RunTiles<space::LinearTile<32, 1, 3>, Operands>(c, grid, 32);           \
      if (rows > 33) RunTiles<space::LinearTile<64, 2, 3>, Operands>(c, grid, 64);            \
      if (rows >= 64) RunTiles<space::LinearTile<128, 2, 4>, Operands>(c, grid, 128);         \
    }                                                                                         \
  }

using Ints = std::vector<int>;

TEST(CudaLinearEmulatedTest, WholeStages) {
  QUIRE_RUN(whole, (Ints{1, 2}), (Ints{1, 7, 8, 16}), (Ints{33, 65}));
}
TEST(CudaLinearEmulatedTest, RaggedEndsOfRowsColumnsAndParts) {
  QUIRE_RUN(ragged, (Ints{3}), (Ints{1, 5, 16}), (Ints{17, 129}));
}
TEST(CudaLinearEmulatedTest, MoreTilesThanBlocks) {
  QUIRE_RUN(wide, (Ints{2}), (Ints{3, 11}), (Ints{64, 130}));
}
TEST(CudaLinearEmulatedTest, RowsEndWithinAStep) {
  QUIRE_RUN(half_step, (Ints{2}), (Ints{1, 8, 11}), (Ints{3, 70}));
}
TEST(CudaLinearEmulatedTest, StoresF32) {
  const Case<Bf16, F32, ragged::kN, ragged::kK, true, false> of_ragged{17};
  RunTiles<ragged::LinearTile<32, 1, 3>, ragged::LinearOperands>(of_ragged, 3, 32);
  const Case<F16, F32, wide::kN, wide::kK, false, false> of_wide{64};
  RunTiles<wide::LinearTile<64, 2, 3>, wide::LinearOperands>(of_wide, 2, 64);
}
TEST(CudaLinearEmulatedTest, EmptyParts) {
  QUIRE_RUN(small, (Ints{1, 4}), (Ints{1, 8, 13}), (Ints{1, 64}));
}

}  // namespace
}  // namespace quire::emulated
