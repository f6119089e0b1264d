// Linears of numbers of f8e4m3, their source run on the CPU: rows brought to 8 bits against the
// op's meaning, products against the arithmetic that codegen/cuda/linear_e4m3.h states.
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "codegen/cuda/linear_e4m3.h"
#include "gtest/gtest.h"
#include "ir/dtype.h"
#include "tests/codegen/cuda_emulator.h"
#include "tests/codegen/cuda_hopper_emulator.h"
#include "tests/codegen/cuda_linear_case.h"

namespace quire::emulated {
#include <norm.cuh>
}  // namespace quire::emulated

namespace quire::emulated {

namespace rows {
using Element = E4m3Pair;
using Output = Bf16;
constexpr int kN = 205, kK = 192, kGrain = 64;  // pairs
constexpr bool kHasBias = true, kHasResidual = true, kWeightIsWritten = false, kRowScales = true;
constexpr int kSharedBytes = 1 << 20, kArrivalBytes = 1024;
QUIRE_DERIVED
QUIRE_NO_ACT
#include <linear_e4m3_narrow.cuh>
#include <linear_e4m3_warpgroup.cuh>
}  // namespace rows
#include "tests/codegen/forget_linear_kernels.h"

namespace blocks {
using Element = E4m3Pair;
using Output = F32;
constexpr int kN = 136, kK = 256, kGrain = 64;
constexpr bool kHasBias = false, kHasResidual = true, kWeightIsWritten = false, kRowScales = false;
constexpr int kSharedBytes = 1 << 20, kArrivalBytes = 1024;
QUIRE_DERIVED
QUIRE_NO_ACT
#include <linear_e4m3_narrow.cuh>
#include <linear_e4m3_warpgroup.cuh>
}  // namespace blocks
#include "tests/codegen/forget_linear_kernels.h"

namespace gated {
using Element = E4m3Pair;
using Output = Bf16;
constexpr int kN = 192, kK = 128, kGrain = 64;
constexpr bool kHasBias = false, kHasResidual = false, kWeightIsWritten = false, kRowScales = false;
constexpr int kSharedBytes = 1 << 20, kArrivalBytes = 1024;
QUIRE_DERIVED
constexpr bool kHasAct = true, kGated = true;
inline float Act(float x) { return x + 1; }
#include <linear_e4m3_narrow.cuh>
#include <linear_e4m3_warpgroup.cuh>
}  // namespace gated

namespace quantized {
using Element = Bf16;
constexpr int kK = 1152, kColumns = 0, kSharedBytes = 1024;
constexpr float kMost = 1.5f;
constexpr bool kHasScale = false, kHasNorm = false;
using NormWeight = F32;
using NormBias = F32;
constexpr bool kNormHasWeight = false, kNormHasBias = false, kNormCentres = false;
constexpr float kNormPerElement = 0, kNormEps = 0, kNormOffset = 0;
#include <linear_quantize.cuh>
}  // namespace quantized
#include "tests/codegen/forget_linear_kernels.h"

namespace quantized_by_blocks {
using Element = F16;
constexpr int kK = 1408, kColumns = 128, kSharedBytes = 1024;
constexpr float kMost = 0;
constexpr bool kHasScale = false, kHasNorm = false;
using NormWeight = F32;
using NormBias = F32;
constexpr bool kNormHasWeight = false, kNormHasBias = false, kNormCentres = false;
constexpr float kNormPerElement = 0, kNormEps = 0, kNormOffset = 0;
#include <linear_quantize.cuh>
}  // namespace quantized_by_blocks

namespace {

std::vector<uint8_t> DrawNumbers(const char* name, int64_t count) {
  std::vector<uint8_t> numbers;
  for (const float value : Draw<float>(name, count)) numbers.push_back(F32ToF8E4M3(value * 100));
  return numbers;
}
std::vector<float> DrawScales(const char* name, int64_t count) {
  std::vector<float> scales;
  for (const float value : Draw<float>(name, count)) scales.push_back((value + 3) / 512);
  return scales;
}

// x [rows, k], weight [n, k], k in pairs; scales as kernels have them.
template <typename Output>
struct E4m3Case {
  int rows, n, k;
  bool row_scales, is_shared = false;
  int x_rows = (rows + 7) / 8 * 8, scales = row_scales ? 1 : k / 64;
  std::vector<uint8_t> x = DrawNumbers("x", int64_t{2} * rows * k);
  std::vector<uint8_t> weight = DrawNumbers("weight", int64_t{2} * n * k);
  std::vector<float> x_scales = DrawScales("x_scales", int64_t{x_rows} * scales);
  std::vector<float> weight_scales = WeightScales();
  std::vector<float> bias = Draw<float>("bias", n);
  std::vector<Output> residual = Draw<Output>("residual", int64_t{rows} * n);

  std::vector<float> WeightScales() const {
    std::vector<float> drawn = DrawScales("weight_scales", int64_t{n} * scales);
    for (int i = 0; is_shared && i < n * scales; ++i) {
      drawn[static_cast<size_t>(i)] = drawn[static_cast<size_t>(i - i % n % 128)];
    }
    drawn.push_back(std::bit_cast<float>(is_shared ? 1u : 0u));
    return drawn;
  }

  float Sum(int row, int column) const {
    std::vector<float> of_x, of_weight;
    for (int i = 0; i < scales; ++i) {
      of_x.push_back(x_scales[static_cast<size_t>(i * x_rows + row)]);
      of_weight.push_back(weight_scales[static_cast<size_t>(i * n + column)]);
    }
    return CudaE4m3Sum(&x[static_cast<size_t>(2 * row * k)], of_x.data(),
                       &weight[static_cast<size_t>(2 * column * k)], of_weight.data(), 2 * k,
                       row_scales);
  }

  // y [rows, columns] of a body with tiles of `tokens` x `tile_rows`, all of them whole.
  template <typename Operands, typename Body>
  std::vector<Output> Run(int columns, bool adds, int grid, int tokens, int tile_rows) const {
    CudaLinearConfig config;
    config.rows = tokens;
    const TensorMap x_map{x.data(), rows, k, CudaLinearBoxRows(config, rows)};
    const TensorMap weight_map{weight.data(), n, k, tile_rows};
    const int tiles = (rows + tokens - 1) / tokens * ((n + tile_rows - 1) / tile_rows);
    std::vector<Output> y(static_cast<size_t>(rows * columns), FromFloat<Output>(-77));
    const Operands operands{nullptr,
                            nullptr,
                            bias.data(),
                            adds ? residual.data() : nullptr,
                            y.data(),
                            nullptr,
                            rows,
                            tiles,
                            n,
                            k,
                            0,
                            0,
                            nullptr,
                            nullptr,
                            x_scales.data(),
                            weight_scales.data()};
    RunGrid({grid, Body::kThreads, 1 << 20, x.data(), x.size(), 1},
            [&] { Body::Run(operands, x_map, weight_map); });
    return y;
  }
};

template <typename Operands, typename Body, typename Output>
void ExpectSums(const E4m3Case<Output>& c, bool has_bias, int grid, int tokens, int tile_rows) {
  const std::vector<Output> y = c.template Run<Operands, Body>(c.n, true, grid, tokens, tile_rows);
  for (int row = 0; row < c.rows; ++row) {
    for (int n = 0; n < c.n; ++n) {
      const auto at = static_cast<size_t>(row * c.n + n);
      float sum = c.Sum(row, n);
      if (has_bias) sum += c.bias[static_cast<size_t>(n)];
      ASSERT_EQ(BitsOf(y[at]), BitsOf(FromFloat<Output>(sum + ToFloat(c.residual[at]))))
          << "row " << row << ", n " << n << ", tiles of " << tokens << " x " << tile_rows;
    }
  }
}

template <typename Operands, typename Body>
void ExpectGated(int rows, int grid, int tokens, int tile_rows, bool is_shared = false) {
  const E4m3Case<Bf16> c{rows, 2 * gated::kN, gated::kK, false, is_shared};
  const std::vector<Bf16> y =
      c.template Run<Operands, Body>(gated::kN, false, grid, tokens, tile_rows);
  for (int row = 0; row < rows; ++row) {
    for (int n = 0; n < gated::kN; ++n) {
      const float a = ToFloat(FromFloat<Bf16>(c.Sum(row, n)));
      const float b = ToFloat(FromFloat<Bf16>(c.Sum(row, gated::kN + n)));
      const float expected = ToFloat(FromFloat<Bf16>(gated::Act(a))) * b;
      const float unrounded = gated::Act(a) * b;
      const Bf16 got = y[static_cast<size_t>(row * gated::kN + n)];
      ASSERT_TRUE(got.bits == FromFloat<Bf16>(unrounded).bits ||
                  got.bits == FromFloat<Bf16>(expected).bits)
          << "row " << row << ", n " << n;
    }
  }
}

TEST(CudaLinearE4m3EmulatedTest, EveryBodyHasTheBitsOfScalesOfRows) {
  using rows::LinearOperands;
  ExpectSums<LinearOperands, rows::LinearE4m3Narrow<16, 32, 3>>(
      E4m3Case<Bf16>{11, rows::kN, rows::kK, true}, true, 3, 16, 32);
  ExpectSums<LinearOperands, rows::LinearE4m3Narrow<64, 136, 2>>(
      E4m3Case<Bf16>{37, rows::kN, rows::kK, true}, true, 1, 64, 136);
  ExpectSums<LinearOperands, rows::LinearE4m3Warpgroup<128, 3>>(
      E4m3Case<Bf16>{131, rows::kN, rows::kK, true}, true, 3, 128, 128);
  ExpectSums<LinearOperands, rows::LinearE4m3Warpgroup<192, 2>>(
      E4m3Case<Bf16>{131, rows::kN, rows::kK, true}, true, 1, 128, 192);
}
TEST(CudaLinearE4m3EmulatedTest, EveryBodyHasTheBitsOfScalesOfBlocks) {
  using blocks::LinearOperands;
  ExpectSums<LinearOperands, blocks::LinearE4m3Narrow<16, 96, 5>>(
      E4m3Case<F32>{1, blocks::kN, blocks::kK, false}, false, 2, 16, 96);
  ExpectSums<LinearOperands, blocks::LinearE4m3Narrow<32, 64, 2>>(
      E4m3Case<F32>{27, blocks::kN, blocks::kK, false}, false, 2, 32, 64);
  for (const bool is_shared : {false, true}) {
    ExpectSums<LinearOperands, blocks::LinearE4m3Warpgroup<128, 3>>(
        E4m3Case<F32>{140, blocks::kN, blocks::kK, false, is_shared}, false, 2, 128, 128);
  }
}
TEST(CudaLinearE4m3EmulatedTest, Gated) {
  ExpectGated<gated::LinearOperands, gated::LinearE4m3Narrow<16, 64, 3>>(9, 2, 16, 64);
  for (const bool is_shared : {false, true}) {
    ExpectGated<gated::LinearOperands, gated::LinearE4m3Warpgroup<128, 3>>(130, 2, 128, 128,
                                                                           is_shared);
  }
}

// As the op quantize says, in f32.
template <typename Element>
void ExpectRows(const std::vector<Element>& x, int rows, int k, int columns, float most,
                const std::vector<uint8_t>& numbers, const std::vector<float>& scales) {
  const int count = columns == 0 ? k : columns, x_rows = (rows + 7) / 8 * 8;
  for (int begin = 0; begin < rows * k; begin += count) {
    float greatest = 0;
    for (int i = begin; i < begin + count; ++i) {
      greatest = std::max(greatest, std::fabs(ToFloat(x[static_cast<size_t>(i)])));
    }
    if (most > 0) greatest = std::min(greatest, most);
    const float scale = greatest < 0x1p-100f ? 0 : greatest / 448;
    ASSERT_EQ(scales[static_cast<size_t>(begin % k / count * x_rows + begin / k)], scale);
    for (int i = begin; i < begin + count; ++i) {
      const float quotient = ToFloat(x[static_cast<size_t>(i)]) / (scale == 0 ? 1 : scale);
      ASSERT_EQ(numbers[static_cast<size_t>(i)], F32ToF8E4M3(quotient)) << "element " << i;
    }
  }
}

TEST(CudaLinearE4m3EmulatedTest, RowsAreBroughtToNumbers) {
  constexpr int kRows = 3, kK = quantized::kK;
  std::vector<Bf16> x = Draw<Bf16>("rows", kRows * kK);
  for (int i = 0; i < kK; ++i) x[static_cast<size_t>(kK + i)] = FromFloat<Bf16>(0);  // one of zeros
  std::vector<uint8_t> numbers(x.size(), 0x55);
  std::vector<float> scales(8, -1);
  RunGrid({kRows, 96, quantized::kSharedBytes, x.data(), x.size() * 2, 1}, [&] {
    quantized::QuantizeRows<96>::Run(x.data(), nullptr, nullptr, nullptr,
                                     reinterpret_cast<E4m3*>(numbers.data()), scales.data(), 8);
  });
  ExpectRows(x, kRows, kK, 0, quantized::kMost, numbers, scales);
}
TEST(CudaLinearE4m3EmulatedTest, BlocksOfRowsAreBroughtToNumbers) {
  constexpr int kRows = 9, kK = quantized_by_blocks::kK;
  const std::vector<F16> x = Draw<F16>("rows", kRows * kK);
  std::vector<uint8_t> numbers(x.size(), 0x55);
  std::vector<float> scales(16 * kK / 128, -1);
  RunGrid({kRows, 64, quantized_by_blocks::kSharedBytes, x.data(), x.size() * 2, 1}, [&] {
    quantized_by_blocks::QuantizeRows<64>::Run(x.data(), nullptr, nullptr, nullptr,
                                               reinterpret_cast<E4m3*>(numbers.data()),
                                               scales.data(), 16);
  });
  ExpectRows(x, kRows, kK, 128, 0, numbers, scales);
}

}  // namespace
}  // namespace quire::emulated
