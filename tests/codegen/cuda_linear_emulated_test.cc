// The linear kernels' source, run on the CPU over awkward sizes, against the arithmetic that
// codegen/cuda/linear.h states.
#include <string>
#include <vector>

#include "codegen/cuda/linear.h"
#include "gtest/gtest.h"
#include "tests/codegen/cuda_emulator.h"

// Kernels are included as system headers (tests/CMakeLists.txt): their text is written for NVRTC,
// not for the warnings of this build.

namespace quire::emulated {

// A kernel per set of constants: N, K, types, epilogue, body and body sizes.
#define QUIRE_LINEAR(name, n, k, element, output, bias, residual) \
  namespace name {                                                \
  using Element = element;                                        \
  using Output = output;                                          \
  constexpr int kN = n, kK = k;                                   \
  constexpr bool kHasBias = bias, kHasResidual = residual;        \
  constexpr int kSharedBytes = 1 << 20, kArrivalBytes = 1024;     \
  }

QUIRE_LINEAR(whole, 40, 512, Bf16, F32, false, false)
namespace whole {
#include <linear_few.cuh>
#include <linear_tile.cuh>
}  // namespace whole
#undef QUIRE_LINEAR_CUH_
#undef QUIRE_LINEAR_FEW_CUH_
#undef QUIRE_LINEAR_TILE_CUH_

QUIRE_LINEAR(ragged, 43, 208, Bf16, Bf16, true, true)
namespace ragged {
#include <linear_few.cuh>
#include <linear_tile.cuh>
}  // namespace ragged
#undef QUIRE_LINEAR_CUH_
#undef QUIRE_LINEAR_FEW_CUH_
#undef QUIRE_LINEAR_TILE_CUH_

QUIRE_LINEAR(wide, 264, 80, F16, F16, false, true)
namespace wide {
#include <linear_few.cuh>
#include <linear_tile.cuh>
}  // namespace wide
#undef QUIRE_LINEAR_CUH_
#undef QUIRE_LINEAR_FEW_CUH_
#undef QUIRE_LINEAR_TILE_CUH_

QUIRE_LINEAR(small, 16, 16, F16, F32, true, false)
namespace small {
#include <linear_few.cuh>
#include <linear_tile.cuh>
}  // namespace small
#undef QUIRE_LINEAR_CUH_
#undef QUIRE_LINEAR_FEW_CUH_
#undef QUIRE_LINEAR_TILE_CUH_

QUIRE_LINEAR(half_step, 21, 360, Bf16, Bf16, false, false)
namespace half_step {
#include <linear_few.cuh>
#include <linear_tile.cuh>
}  // namespace half_step

namespace {

template <typename T>
constexpr DType TypeOf() {
  return std::is_same_v<T, F32> ? DType::kF32 : std::is_same_v<T, F16> ? DType::kF16 : DType::kBF16;
}
template <typename T>
uint32_t BitsOf(T x) {
  if constexpr (std::is_same_v<T, F32>) {
    return Bits(x);
  } else {
    return x.bits;
  }
}

// Values whose sums differ by their order, with some of every sign and many magnitudes.
template <typename T>
std::vector<T> Draw(const char* name, int64_t count) {
  testing::Random random{absl::string_view(name)};
  std::vector<T> values;
  for (int64_t i = 0; i < count; ++i) {
    const double scale = std::ldexp(1.0, static_cast<int>(random.Between(-6, 1)));
    values.push_back(FromFloat<T>(static_cast<float>((random.Uniform() * 2 - 1) * scale)));
  }
  return values;
}

template <typename Element, typename Output, int kN, int kK, bool kBias, bool kResidual>
struct Case {
  int rows;
  std::vector<Element> x = Draw<Element>("x", int64_t{rows} * kK);
  std::vector<Element> weight = Draw<Element>("weight", int64_t{kN} * kK);
  std::vector<float> bias = Draw<float>("bias", kN);
  std::vector<Output> residual = Draw<Output>("residual", int64_t{rows} * kN);

  Output Expected(int row, int n) const {
    float sum = CudaLinearSum(TypeOf<Element>(), &x[static_cast<size_t>(row) * kK].bits,
                              &weight[static_cast<size_t>(n) * kK].bits, kK);
    if (kBias) sum += bias[static_cast<size_t>(n)];
    if (kResidual) sum += ToFloat(residual[static_cast<size_t>(row) * kN + static_cast<size_t>(n)]);
    return FromFloat<Output>(sum);
  }

  // Runs `Body` on `grid` blocks, twice over one workspace.
  template <typename Body, typename Operands>
  void Run(int grid, int whole_tiles) const {
    const int64_t tiles = int64_t{(kN + 127) / 128} * ((rows + 15) / 16);
    std::vector<float> workspace(static_cast<size_t>(256 + tiles * 4 * 128 * 128), 0.0f);
    for (uint64_t seed : {1u, 2u}) {
      std::vector<Output> y(static_cast<size_t>(rows) * kN, FromFloat<Output>(-77));
      Operands operands{x.data(),
                        weight.data(),
                        kBias ? bias.data() : nullptr,
                        kResidual ? residual.data() : nullptr,
                        y.data(),
                        reinterpret_cast<uint8_t*>(workspace.data()),
                        rows,
                        whole_tiles};
      Launch launch{grid,
                    Body::kThreads,
                    size_t{Body::kRingBytes} + 128 * 1024,
                    x.data(),
                    x.size() * sizeof(Element),
                    seed};
      RunGrid(launch, [&] { Body::Run(operands); });
      for (int row = 0; row < rows; ++row) {
        for (int n = 0; n < kN; ++n) {
          ASSERT_EQ(BitsOf(y[static_cast<size_t>(row) * kN + static_cast<size_t>(n)]),
                    BitsOf(Expected(row, n)))
              << "row " << row << " of " << rows << ", n " << n << ", grid " << grid << ", whole "
              << whole_tiles;
        }
      }
      for (size_t i = 0; i < 256; ++i) ASSERT_EQ(workspace[i], 0) << "arrivals are not reset";
    }
  }
};

template <typename Body>
int Tiles(int tokens, int rows) {
  return (rows + tokens - 1) / tokens * Body::kRowTileCount;
}

// The bodies of one namespace over row counts and grids; tiles all whole, none, and some.
#define QUIRE_RUN_TILE(space, tokens, warps, stages)                    \
  {                                                                     \
    using Body = space::LinearTile<tokens, warps, stages>;              \
    const int tiles = Tiles<Body>(tokens, rows);                        \
    c.Run<Body, space::LinearOperands>(grid, tiles);                    \
    c.Run<Body, space::LinearOperands>(grid, 0);                        \
    if (tiles > 1) c.Run<Body, space::LinearOperands>(grid, tiles / 2); \
    if (HasFatalFailure()) return;                                      \
  }
#define QUIRE_RUN(space, grids, few_rows, tile_rows)                                          \
  using TestCase = Case<space::Element, space::Output, space::kN, space::kK, space::kHasBias, \
                        space::kHasResidual>;                                                 \
  for (int grid : grids) {                                                                    \
    for (int rows : few_rows) {                                                               \
      SCOPED_TRACE("few");                                                                    \
      const TestCase c{rows};                                                                 \
      if (rows <= 8) c.Run<space::LinearFew<8, 2, 3>, space::LinearOperands>(grid, 0);        \
      c.Run<space::LinearFew<16, 1, 5>, space::LinearOperands>(grid, 0);                      \
      if (HasFatalFailure()) return;                                                          \
    }                                                                                         \
    for (int rows : tile_rows) {                                                              \
      SCOPED_TRACE("tile");                                                                   \
      const TestCase c{rows};                                                                 \
      if (rows <= 33) QUIRE_RUN_TILE(space, 16, 1, 5)                                         \
      if (rows <= 33) QUIRE_RUN_TILE(space, 32, 1, 3)                                         \
      if (rows > 33) QUIRE_RUN_TILE(space, 64, 2, 3)                                          \
      if (rows >= 64) QUIRE_RUN_TILE(space, 128, 2, 4)                                        \
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
TEST(CudaLinearEmulatedTest, EmptyParts) {
  QUIRE_RUN(small, (Ints{1, 4}), (Ints{1, 8, 13}), (Ints{1, 64}));
}

}  // namespace
}  // namespace quire::emulated
