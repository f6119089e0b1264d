// linear_narrow.cuh over block-quantised weights, its source run on the CPU, against the
// reference's values of the blocks and the arithmetic that codegen/cuda/linear.h states.
#include <vector>

#include "gtest/gtest.h"
#include "tests/codegen/cuda_linear_blocks_case.h"
// After the emulator.
#include "tests/codegen/cuda_hopper_emulator.h"

namespace quire::emulated {

constexpr int kArrivalBytes = 1024;

QUIRE_BLOCKS(q4_0, Q4_0, 83, 768, 32, Bf16)
namespace q4_0 {
#include <linear_blocks_ring.cuh>
#include <linear_narrow.cuh>
}  // namespace q4_0
#include "tests/codegen/forget_linear_kernels.h"

QUIRE_BLOCKS(q4_1, Q4_1, 16, 2304, 32, F16)
namespace q4_1 {
#include <linear_blocks_ring.cuh>
#include <linear_narrow.cuh>
}  // namespace q4_1
#include "tests/codegen/forget_linear_kernels.h"

QUIRE_BLOCKS(q5_0, Q5_0, 31, 256, 32, F16)
namespace q5_0 {
#include <linear_blocks_ring.cuh>
#include <linear_narrow.cuh>
}  // namespace q5_0
#include "tests/codegen/forget_linear_kernels.h"

QUIRE_BLOCKS(q5_1, Q5_1, 72, 512, 32, Bf16)
namespace q5_1 {
#include <linear_blocks_ring.cuh>
#include <linear_narrow.cuh>
}  // namespace q5_1
#include "tests/codegen/forget_linear_kernels.h"

QUIRE_BLOCKS(q8_0, Q8_0, 33, 1024, 32, Bf16)
namespace q8_0 {
#include <linear_blocks_ring.cuh>
#include <linear_narrow.cuh>
}  // namespace q8_0
#include "tests/codegen/forget_linear_kernels.h"

QUIRE_BLOCKS(q4_k, Q4_K, 18, 1536, 256, Bf16)
namespace q4_k {
#include <linear_blocks_ring.cuh>
#include <linear_narrow.cuh>
}  // namespace q4_k
#include "tests/codegen/forget_linear_kernels.h"

QUIRE_BLOCKS(q5_k, Q5_K, 16, 1024, 256, F16)
namespace q5_k {
#include <linear_blocks_ring.cuh>
#include <linear_narrow.cuh>
}  // namespace q5_k
#include "tests/codegen/forget_linear_kernels.h"

// One part is empty; no row begins at a multiple of 16 bytes.
QUIRE_BLOCKS(q6_k, Q6_K, 21, 768, 256, Bf16)
namespace q6_k {
#include <linear_blocks_ring.cuh>
#include <linear_narrow.cuh>
}  // namespace q6_k
#include "tests/codegen/forget_linear_kernels.h"

// Scales in turn, and parts of 128.
QUIRE_BLOCKS(f8e4m3_128, F8E4M3_128, 40, 640, 128, Bf16)
namespace f8e4m3_128 {
#include <linear_blocks_ring.cuh>
#include <linear_narrow.cuh>
}  // namespace f8e4m3_128
#include "tests/codegen/forget_linear_kernels.h"

namespace gated {
using Pairs = FoursOfQ8_0<true>;
using Element = Bf16;
using Output = Bf16;
constexpr int kN = 40, kK = 256, kGrain = 32;
constexpr bool kHasBias = false, kHasResidual = false, kWeightIsWritten = false;
constexpr int kSharedBytes = 1 << 20;
QUIRE_DERIVED
constexpr bool kHasAct = true, kGated = true;
inline float Act(float x) { return x + 1; }
#include <linear_blocks_ring.cuh>
#include <linear_narrow.cuh>
}  // namespace gated

namespace {

// Rows of x's boxes of a body with tiles of `tokens`.
int BoxRows(int rows, int tokens) {
  CudaLinearConfig config;
  config.rows = tokens;
  return CudaLinearBoxRows(config, rows);
}

#define QUIRE_TEST_NARROW(name, space, rows, grid, tokens, tile_rows, stages, copy_k)             \
  TEST(CudaLinearBlocksNarrowEmulatedTest, name) {                                                \
    const BlocksCase<space::Element, space::kN, space::kK> c(space::kType, rows, space::kGrain);  \
    using Ring = space::LinearBlocksRing<space::Pairs, tokens, tile_rows, stages, copy_k>;        \
    using Body = space::LinearNarrow<tokens, tile_rows, stages, Ring>;                            \
    const TensorMap x{c.linear.x.data(), rows, space::kK, BoxRows(rows, tokens)};                 \
    const int tiles = ((rows) + tokens - 1) / tokens * ((space::kN + tile_rows - 1) / tile_rows); \
    c.linear.Run<space::LinearOperands>(                                                          \
        grid, tiles / 2, Body::kThreads, Body::kFlagsAt + 16,                                     \
        [&](space::LinearOperands operands) {                                                     \
          operands.weight = reinterpret_cast<const space::Element*>(c.blocks.data());             \
          Body::Run(operands, x);                                                                 \
        });                                                                                       \
  }

QUIRE_TEST_NARROW(Q4_0, q4_0, 70, 2, 64, 64, 3, 64)
QUIRE_TEST_NARROW(Q4_1, q4_1, 5, 1, 64, 32, 4, 64)
QUIRE_TEST_NARROW(Q5_0, q5_0, 3, 2, 64, 64, 2, 64)
QUIRE_TEST_NARROW(Q5_1, q5_1, 130, 3, 128, 128, 3, 128)
QUIRE_TEST_NARROW(Q8_0, q8_0, 9, 1, 64, 40, 5, 256)
QUIRE_TEST_NARROW(Q4_K, q4_k, 65, 1, 64, 64, 3, 256)
QUIRE_TEST_NARROW(Q5_K, q5_k, 8, 1, 128, 64, 3, 256)
QUIRE_TEST_NARROW(Q6_K, q6_k, 17, 2, 64, 64, 3, 256)
QUIRE_TEST_NARROW(F8E4M3_128, f8e4m3_128, 11, 1, 64, 64, 3, 128)

TEST(CudaLinearBlocksNarrowEmulatedTest, Gated) {
  constexpr int kRows = 19, kTiles = 2;
  const BlocksCase<Bf16, 2 * gated::kN, gated::kK> c(DType::kQ8_0, kRows, gated::kGrain);
  using Body = gated::LinearNarrow<64, 48, 3, gated::LinearBlocksRing<gated::Pairs, 64, 48, 3, 64>>;
  const TensorMap x{c.linear.x.data(), kRows, gated::kK, BoxRows(kRows, 64)};
  std::vector<float> workspace(256 + kTiles * 4 * 64 * 64, 0.0f);
  for (int whole : {0, kTiles}) {
    std::vector<Bf16> y(size_t{kRows} * gated::kN, FromFloat<Bf16>(-77));
    const gated::LinearOperands operands{
        nullptr,       reinterpret_cast<const Bf16*>(c.blocks.data()),
        nullptr,       nullptr,
        y.data(),      reinterpret_cast<uint8_t*>(workspace.data()),
        kRows,         whole,
        2 * gated::kN, gated::kK};
    RunGrid({2, Body::kThreads, Body::kFlagsAt + 16, c.linear.x.data(), c.linear.x.size() * 2, 1},
            [&] { Body::Run(operands, x); });
    for (int row = 0; row < kRows; ++row) {
      for (int n = 0; n < gated::kN; ++n) {
        const float a = ToFloat(FromFloat<Bf16>(c.linear.Expected(row, n)));
        const float b = ToFloat(FromFloat<Bf16>(c.linear.Expected(row, gated::kN + n)));
        ASSERT_EQ(BitsOf(y[static_cast<size_t>(row * gated::kN + n)]),
                  BitsOf(FromFloat<Bf16>(Mul(gated::Act(a), b))))
            << "row " << row << ", n " << n;
      }
    }
  }
}

}  // namespace
}  // namespace quire::emulated
