// The linear bodies of warpgroups, their source run on the CPU, against the arithmetic that
// codegen/cuda/linear.h states.
#include <vector>

#include "gtest/gtest.h"
#include "tests/codegen/cuda_emulator.h"
#include "tests/codegen/cuda_hopper_emulator.h"
#include "tests/codegen/cuda_linear_case.h"

namespace quire::emulated {

namespace one_stage_a_part {
using Element = Bf16;
using Output = Bf16;
constexpr int kN = 205, kK = 256, kGrain = 16;
constexpr bool kHasBias = true, kHasResidual = true, kWeightIsWritten = true;
constexpr int kSharedBytes = 1 << 20, kArrivalBytes = 1024;
QUIRE_DERIVED
QUIRE_NO_ACT
#include <linear_narrow.cuh>
#include <linear_warpgroup.cuh>
}  // namespace one_stage_a_part
#include "tests/codegen/forget_linear_kernels.h"

namespace lines {
using Element = Bf16;
using Output = F16;
constexpr int kN = 264, kK = 256, kGrain = 16;
constexpr bool kHasBias = true, kHasResidual = true, kWeightIsWritten = false;
constexpr int kSharedBytes = 1 << 20, kArrivalBytes = 1024;
QUIRE_DERIVED
QUIRE_NO_ACT
#include <linear_narrow.cuh>
#include <linear_warpgroup.cuh>
}  // namespace lines
#include "tests/codegen/forget_linear_kernels.h"

// Texts of linears that append, for one that does not.
namespace beside_turned {
using Element = Bf16;
using Output = Bf16;
constexpr int kN = 328, kK = 256, kGrain = 16;
constexpr bool kHasBias = true, kHasResidual = true, kWeightIsWritten = false;
constexpr int kSharedBytes = 1 << 20, kArrivalBytes = 1024;
QUIRE_STAGES
QUIRE_APPEND_TURNED(1, 1, 64, 64, 16, 8)
QUIRE_NO_ACT
#include <linear_warpgroup.cuh>
}  // namespace beside_turned
#include "tests/codegen/forget_linear_kernels.h"

namespace beside_appended {
using Element = Bf16;
using Output = Bf16;
constexpr int kN = 264, kK = 256, kGrain = 16;
constexpr bool kHasBias = false, kHasResidual = true, kWeightIsWritten = false;
constexpr int kSharedBytes = 1 << 20, kArrivalBytes = 1024;
QUIRE_STAGES
QUIRE_APPEND(2, 1, 64, 64, 16)
QUIRE_NO_ACT
#include <linear_warpgroup.cuh>
}  // namespace beside_appended
#include "tests/codegen/forget_linear_kernels.h"

namespace gated {
using Element = Bf16;
using Output = Bf16;
constexpr int kN = 136, kK = 256, kGrain = 16;
constexpr bool kHasBias = true, kHasResidual = false, kWeightIsWritten = false;
constexpr int kSharedBytes = 1 << 20, kArrivalBytes = 1024;
QUIRE_DERIVED
constexpr bool kHasAct = true, kGated = true;
inline float Act(float x) { return x + 1; }
#include <linear_narrow.cuh>
#include <linear_warpgroup.cuh>
}  // namespace gated
#include "tests/codegen/forget_linear_kernels.h"

namespace blocks_of_256 {
using Element = F16;
using Output = F32;
constexpr int kN = 264, kK = 768, kGrain = 256;
constexpr bool kHasBias = false, kHasResidual = false, kWeightIsWritten = false;
constexpr int kSharedBytes = 1 << 20, kArrivalBytes = 1024;
QUIRE_DERIVED
QUIRE_NO_ACT
#include <linear_narrow.cuh>
#include <linear_warpgroup.cuh>
}  // namespace blocks_of_256

namespace {

// Rows of x's boxes of a body with tiles of `tokens`.
int BoxRows(int rows, int tokens) {
  CudaLinearConfig config;
  config.rows = tokens;
  return CudaLinearBoxRows(config, rows);
}

template <typename Body, typename Operands, typename TestCase>
void RunTiles(const TestCase& c, int grid, int tile_rows) {
  const TensorMap x{c.x.data(), c.rows, c.k(), BoxRows(c.rows, 128)};
  const TensorMap weight{c.weight.data(), c.n(), c.k(), tile_rows};
  const int tiles = (c.rows + 127) / 128 * ((c.n() + tile_rows - 1) / tile_rows);
  // Whole tiles, and others that are cut, where they can be.
  c.template Run<Operands>(grid, Body::kCuts ? tiles / 2 : tiles, Body::kThreads, Body::kUsedBytes,
                           [&](const Operands& operands) { Body::Run(operands, x, weight); });
}

template <typename Body, typename Operands, typename TestCase>
void RunNarrow(const TestCase& c, int grid, int tokens) {
  const TensorMap x{c.x.data(), c.rows, c.k(), BoxRows(c.rows, tokens)};
  const TensorMap weight{c.weight.data(), c.n(), c.k(), Body::kTileRows};
  const int row_tiles = (c.n() + Body::kTileRows - 1) / Body::kTileRows;
  const int tiles = (c.rows + tokens - 1) / tokens * row_tiles;
  c.template Run<Operands>(grid, tiles / 2, Body::kThreads, Body::kFlagsAt + 16,
                           [&](const Operands& operands) { Body::Run(operands, x, weight); });
}

#define QUIRE_CASE(space)                                                                     \
  using Operands = space::LinearOperands;                                                     \
  using TestCase = Case<space::Element, space::Output, space::kN, space::kK, space::kHasBias, \
                        space::kHasResidual>;

TEST(CudaLinearWarpgroupEmulatedTest, RaggedEndsOfRowsAndColumns) {
  QUIRE_CASE(one_stage_a_part);
  RunTiles<one_stage_a_part::LinearWarpgroup<128, 3, false>, Operands>(TestCase{131}, 3, 128);
  RunTiles<one_stage_a_part::LinearWarpgroup<192, 5, true>, Operands>(TestCase{131}, 1, 192);
  RunTiles<one_stage_a_part::LinearWarpgroup<224, 4, false>, Operands>(TestCase{131}, 2, 224);
  RunTiles<one_stage_a_part::LinearWarpgroup<256, 4, false>, Operands>(TestCase{131}, 1, 256);
  RunTiles<one_stage_a_part::LinearWarpgroup<64, 3, false>, Operands>(TestCase{131}, 3, 64);
  RunTiles<one_stage_a_part::LinearWarpgroup<96, 3, false>, Operands>(TestCase{131}, 2, 96);
}
TEST(CudaLinearWarpgroupEmulatedTest, PartsOfSeveralStagesAndAnEmptyOne) {
  QUIRE_CASE(blocks_of_256);
  RunTiles<blocks_of_256::LinearWarpgroup<128, 4, false>, Operands>(
      TestCase{70, blocks_of_256::kGrain}, 2, 128);
  RunTiles<blocks_of_256::LinearWarpgroup<192, 5, true>, Operands>(
      TestCase{70, blocks_of_256::kGrain}, 5, 192);
  RunTiles<blocks_of_256::LinearWarpgroup<64, 3, false>, Operands>(
      TestCase{70, blocks_of_256::kGrain}, 2, 64);
  RunTiles<blocks_of_256::LinearWarpgroup<256, 4, false>, Operands>(
      TestCase{70, blocks_of_256::kGrain}, 2, 256);
}

TEST(CudaLinearWarpgroupEmulatedTest, StoresLines) {
  QUIRE_CASE(lines);
  static_assert(lines::LinearWarpgroup<128, 3, false>::Runs::kStoresLines);
  RunTiles<lines::LinearWarpgroup<128, 3, false>, Operands>(TestCase{131}, 3, 128);
  RunTiles<lines::LinearWarpgroup<256, 3, false>, Operands>(TestCase{131}, 1, 256);
}

template <typename Operands, typename TestCase, typename Narrow, typename Chained, typename Wide>
void RunBeside() {
  RunTiles<Narrow, Operands>(TestCase{131}, 3, 96);
  RunTiles<Chained, Operands>(TestCase{131}, 2, 192);
  RunTiles<Wide, Operands>(TestCase{70}, 1, 256);
}
TEST(CudaLinearWarpgroupEmulatedTest, TextsOfLinearsThatAppend) {
  {
    QUIRE_CASE(beside_turned);
    using Without = Case<Bf16, Bf16, beside_turned::kN, beside_turned::kK, true, false>;
    using Narrow = beside_turned::LinearWarpgroup<96, 3, false>;
    using Chained = beside_turned::LinearWarpgroup<192, 5, true>;
    using Wide = beside_turned::LinearWarpgroup<256, 3, false>;
    RunBeside<Operands, TestCase, Narrow, Chained, Wide>();
    RunBeside<Operands, Without, Narrow, Chained, Wide>();
    using Logits = Case<Bf16, F32, beside_turned::kN, beside_turned::kK, true, false>;
    RunTiles<beside_turned::LinearWarpgroup<128, 3, false>, Operands>(Logits{131}, 3, 128);
  }
  QUIRE_CASE(beside_appended);
  RunBeside<Operands, TestCase, beside_appended::LinearWarpgroup<96, 3, false>,
            beside_appended::LinearWarpgroup<192, 5, true>,
            beside_appended::LinearWarpgroup<256, 3, false>>();
}

// Texts of 16-bit results.
TEST(CudaLinearWarpgroupEmulatedTest, StoresF32) {
  {
    using Operands = lines::LinearOperands;
    using TestCase = Case<Bf16, F32, lines::kN, lines::kK, true, false>;
    RunTiles<lines::LinearWarpgroup<128, 3, false>, Operands>(TestCase{131}, 3, 128);
    RunTiles<lines::LinearWarpgroup<96, 3, false>, Operands>(TestCase{70}, 2, 96);
    RunNarrow<lines::LinearNarrow<16, 64, 3>, Operands>(TestCase{11}, 2, 16);
  }
  using Operands = one_stage_a_part::LinearOperands;
  using TestCase = Case<Bf16, F32, one_stage_a_part::kN, one_stage_a_part::kK, true, false>;
  RunTiles<one_stage_a_part::LinearWarpgroup<128, 3, false>, Operands>(TestCase{131}, 2, 128);
  RunTiles<one_stage_a_part::LinearWarpgroup<64, 3, false>, Operands>(TestCase{131}, 3, 64);
  RunNarrow<one_stage_a_part::LinearNarrow<32, 136, 2>, Operands>(TestCase{37}, 1, 32);
}

TEST(CudaLinearWarpgroupEmulatedTest, Narrow) {
  {
    QUIRE_CASE(one_stage_a_part);
    RunNarrow<one_stage_a_part::LinearNarrow<16, 64, 3>, Operands>(TestCase{11}, 2, 16);
    RunNarrow<one_stage_a_part::LinearNarrow<64, 136, 2>, Operands>(TestCase{37}, 1, 64);
  }
  QUIRE_CASE(blocks_of_256);
  RunNarrow<blocks_of_256::LinearNarrow<32, 104, 4>, Operands>(TestCase{41, blocks_of_256::kGrain},
                                                               2, 32);
  RunNarrow<blocks_of_256::LinearNarrow<16, 256, 3>, Operands>(TestCase{16, blocks_of_256::kGrain},
                                                               3, 16);
}

// act(a) * b, each rounded; tiles of one and of two warpgroups, whose last rows are not the
// linear's.
template <typename Body>
void RunGated(int rows, int tokens, int tile_rows, size_t shared_bytes, int grid) {
  using TestCase = Case<Bf16, Bf16, 2 * gated::kN, gated::kK, true, false>;
  const TestCase c{rows};
  const TensorMap x{c.x.data(), rows, c.k(), BoxRows(rows, tokens)};
  const TensorMap weight{c.weight.data(), c.n(), c.k(), tile_rows};
  const int tiles = (rows + tokens - 1) / tokens * ((c.n() + tile_rows - 1) / tile_rows);
  std::vector<float> workspace(256 + static_cast<size_t>(tiles) * 4 * 256 * 64, 0.0f);
  for (int whole : {tiles, tile_rows <= 192 ? tiles / 2 : tiles}) {
    std::vector<Bf16> y(static_cast<size_t>(rows) * gated::kN, FromFloat<Bf16>(-77));
    const gated::LinearOperands operands{
        nullptr, nullptr,  c.bias.data(),
        nullptr, y.data(), reinterpret_cast<uint8_t*>(workspace.data()),
        rows,    whole,    c.n(),
        c.k()};
    RunGrid({grid, Body::kThreads, shared_bytes, c.x.data(), c.x.size() * 2, 1},
            [&] { Body::Run(operands, x, weight); });
    for (int row = 0; row < rows; ++row) {
      for (int n = 0; n < gated::kN; ++n) {
        const float expected =
            gated::Act(ToFloat(c.Expected(row, n))) * ToFloat(c.Expected(row, gated::kN + n));
        ASSERT_EQ(BitsOf(y[static_cast<size_t>(row * gated::kN + n)]),
                  BitsOf(FromFloat<Bf16>(expected)))
            << "row " << row << ", n " << n << ", whole " << whole;
      }
    }
  }
}
TEST(CudaLinearWarpgroupEmulatedTest, NarrowAndGated) {
  using One = gated::LinearNarrow<16, 48, 3>;
  using Two = gated::LinearNarrow<32, 112, 2>;
  RunGated<One>(11, 16, One::kTileRows, One::kFlagsAt + 16, 2);
  RunGated<Two>(41, 32, Two::kTileRows, Two::kFlagsAt + 16, 1);
}
TEST(CudaLinearWarpgroupEmulatedTest, ManyRowsAndGated) {
  using Short = gated::LinearWarpgroup<64, 3, false>;
  using Chained = gated::LinearWarpgroup<192, 3, true>;
  using Short16 = gated::LinearWarpgroup<224, 3, false>;  // runs of 16 columns
  using Wide = gated::LinearWarpgroup<256, 3, false>;
  RunGated<Short>(131, 128, 64, Short::kUsedBytes, 3);
  RunGated<Chained>(131, 128, 192, Chained::kUsedBytes, 2);
  RunGated<Short16>(70, 128, 224, Short16::kUsedBytes, 1);
  RunGated<Wide>(70, 128, 256, Wide::kUsedBytes, 1);
}

}  // namespace
}  // namespace quire::emulated
