// Bodies for few rows that norm their rows first and compute an activation last, their source run
// on the CPU, against the steps that codegen/spec.h states, each rounded.
#include <cmath>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "ir/reference/dequantize.h"
#include "tests/codegen/cuda_emulator.h"
#include "tests/codegen/cuda_linear_case.h"

namespace quire::emulated {

#include <linear_fours.cuh>
#include <math.cuh>
#include <norm.cuh>

#define QUIRE_FUSED(n, k, grain, element, output, bias) \
  using Element = element;                              \
  using Output = output;                                \
  constexpr int kN = n, kK = k, kGrain = grain;         \
  constexpr bool kHasBias = bias, kHasResidual = false; \
  constexpr bool kWeightIsWritten = false;              \
  constexpr int kSharedBytes = 1 << 20;                 \
  QUIRE_DERIVED                                         \
  constexpr float kNormPerElement = static_cast<float>(1.0 / k);
#define QUIRE_ACT(gated, text)                   \
  constexpr bool kHasAct = true, kGated = gated; \
  inline float Act(float x) { return text; }
#define QUIRE_NORM(weight, bias, centres, eps, offset)                         \
  using NormWeight = std::conditional_t<std::is_void_v<weight>, F32, weight>;  \
  using NormBias = std::conditional_t<std::is_void_v<bias>, F32, bias>;        \
  constexpr bool kNormHasWeight = !std::is_void_v<weight>;                     \
  constexpr bool kNormHasBias = !std::is_void_v<bias>, kNormCentres = centres; \
  constexpr float kNormEps = eps, kNormOffset = offset;

// Rows and the last tile end early; the second half's rows begin within 16 bytes' grain.
namespace gated {
QUIRE_FUSED(43, 208, 16, Bf16, Bf16, true)
QUIRE_ACT(true, Silu(x))
QUIRE_NORM(F32, void, false, 1e-5F, 1)
#include <linear_few.cuh>
#include <linear_norm.cuh>
}  // namespace gated
#include "tests/codegen/forget_linear_kernels.h"

// More groups of chunks than warps, and a step that rows end within.
namespace layer {
QUIRE_FUSED(21, 2120, 16, F16, F32, false)
QUIRE_ACT(false, Gelu(x))
QUIRE_NORM(F16, F32, true, 0.5F, 0)
#include <linear_few.cuh>
#include <linear_norm.cuh>
}  // namespace layer
#include "tests/codegen/forget_linear_kernels.h"

// More groups than a warp keeps parameters of in registers.
namespace wide {
QUIRE_FUSED(16, 4360, 16, Bf16, Bf16, false)
QUIRE_NO_ACT
QUIRE_NORM(Bf16, void, false, 1e-6F, 0)
#include <linear_few.cuh>
#include <linear_norm.cuh>
}  // namespace wide
#include "tests/codegen/forget_linear_kernels.h"

namespace blocks {
using Fours = FoursOfQ4_0<>;
QUIRE_FUSED(19, 1056, 32, Bf16, F16, true)
QUIRE_ACT(true, GeluTanh(x))
QUIRE_NORM(void, void, false, 1e-5F, 0)
#include <linear_few_blocks.cuh>
#include <linear_norm.cuh>
}  // namespace blocks

namespace {

// Pairs of neighbours, then pairs of pairs.
float TreeSum(std::vector<float> leaves) {
  size_t count = 1;
  while (count < leaves.size()) count *= 2;
  leaves.resize(count, 0.0f);
  for (; count > 1; count /= 2) {
    for (size_t i = 0; i < count / 2; ++i) leaves[i] = leaves[2 * i] + leaves[2 * i + 1];
  }
  return leaves[0];
}
float SumOf(const std::vector<float>& x, bool squares) {
  std::vector<float> chunks;
  for (size_t begin = 0; begin < x.size(); begin += 8) {
    float sum = 0;
    for (size_t i = begin; i < begin + 8; ++i) {
      sum = squares ? std::fma(x[i], x[i], sum) : sum + x[i];
    }
    chunks.push_back(sum);
  }
  return TreeSum(chunks);
}

// The norm's formula, of an f32 row.
struct Norm {
  bool centres;
  float eps, offset;
  std::vector<float> weight, bias;  // or empty

  std::vector<float> Of(std::vector<float> x) const {
    const float per_element = static_cast<float>(1.0 / static_cast<double>(x.size()));
    if (centres) {
      const float mean = SumOf(x, false) * per_element;
      for (float& value : x) value -= mean;
    }
    const float inverse = 1 / std::sqrt(std::fma(SumOf(x, true), per_element, eps));
    for (size_t i = 0; i < x.size(); ++i) {
      x[i] *= inverse;
      const float w = weight.empty() ? 1 : offset == 0 ? weight[i] : weight[i] + offset;
      x[i] = bias.empty() ? x[i] * w : std::fma(x[i], w, bias[i]);
    }
    return x;
  }
};

template <typename T>
std::vector<float> Widened(const std::vector<T>& values) {
  std::vector<float> wide;
  for (T value : values) wide.push_back(ToFloat(value));
  return wide;
}

#define QUIRE_RUN_FUSED(space, body, row_count, first, grid)                                       \
  {                                                                                                \
    using Body = body;                                                                             \
    constexpr int kK = space::kK, kN = space::kN, kRows = space::kWeightRows;                      \
    const auto x = Draw<space::Element>("x", int64_t{row_count} * kK);                             \
    const auto norm_weight = Draw<space::NormWeight>("norm", kK);                                  \
    const auto norm_bias = Draw<space::NormBias>("norm bias", kK);                                 \
    const auto bias = Draw<float>("bias", kRows);                                                  \
    const Norm norm{space::kNormCentres, space::kNormEps, space::kNormOffset,                      \
                    space::kNormHasWeight ? Widened(norm_weight) : std::vector<float>(),           \
                    space::kNormHasBias ? Widened(norm_bias) : std::vector<float>()};              \
    for (uint64_t seed : {1u, 2u}) {                                                               \
      std::vector<space::Output> y(size_t{row_count} * kN, FromFloat<space::Output>(-77));         \
      const space::LinearOperands operands{x.data(),                                               \
                                           reinterpret_cast<const space::Element*>(weight_bytes),  \
                                           bias.data(),                                            \
                                           nullptr,                                                \
                                           y.data(),                                               \
                                           nullptr,                                                \
                                           row_count,                                              \
                                           0,                                                      \
                                           kN,                                                     \
                                           kK,                                                     \
                                           first,                                                  \
                                           0,                                                      \
                                           norm_weight.data(),                                     \
                                           norm_bias.data()};                                      \
      RunGrid({grid, Body::kThreads,                                                               \
               size_t{Body::kRingBytes + Body::Columns::kSumBytes + Body::Columns::kXBytes +       \
                      Body::X::kScratchBytes},                                                     \
               x.data(), x.size() * 2, seed},                                                      \
              [&] { Body::Run(operands); });                                                       \
      for (int row = first; row < row_count; ++row) {                                              \
        const std::vector<float> normed = norm.Of(Widened(std::vector<space::Element>(             \
            x.begin() + int64_t{row} * kK, x.begin() + int64_t{row + 1} * kK)));                   \
        std::vector<uint16_t> bits;                                                                \
        for (float value : normed) bits.push_back(FromFloat<space::Element>(value).bits);          \
        const auto product = [&](int n) {                                                          \
          float sum = CudaLinearSum(TypeOf<space::Element>(), bits.data(),                         \
                                    &weight[static_cast<size_t>(n) * kK].bits, kK, space::kGrain); \
          if (space::kHasBias) sum += bias[static_cast<size_t>(n)];                                \
          return ToFloat(FromFloat<space::Output>(sum));                                           \
        };                                                                                         \
        for (int n = 0; n < kN; ++n) {                                                             \
          float expected = product(n);                                                             \
          if (space::kHasAct) expected = space::Act(expected);                                     \
          if (space::kGated) expected *= product(kN + n);                                          \
          ASSERT_EQ(BitsOf(y[static_cast<size_t>(row * kN + n)]),                                  \
                    BitsOf(FromFloat<space::Output>(expected)))                                    \
              << "row " << row << ", n " << n;                                                     \
        }                                                                                          \
      }                                                                                            \
    }                                                                                              \
  }

// Where 1 + exp(-x) is near one, large, beyond what has a normal inverse, and infinite.
TEST(CudaLinearFusedEmulatedTest, SigmoidsDenominatorsAreOfAnySize) {
  for (const float x : {40.0F, 1.0F, 0.0F, -1.0F, -60.0F, -70.0F, -87.0F, -88.0F, -88.7F}) {
    const double expected = 1 / (1 + std::exp(-static_cast<double>(x)));
    EXPECT_NEAR(Sigmoid(x) / expected, 1, 5e-5) << x;
  }
  EXPECT_EQ(Sigmoid(-200), 0);
  EXPECT_TRUE(std::isnan(Sigmoid(std::nanf(""))));
}

TEST(CudaLinearFusedEmulatedTest, GatedAndNormed) {
  const auto weight = Draw<Bf16>("weight", int64_t{gated::kWeightRows} * gated::kK);
  const void* weight_bytes = weight.data();
  using One = gated::LinearFew<1, 2, 3, gated::NormedRows>;
  using Eight = gated::LinearFew<8, 2, 4, gated::NormedRows>;
  using Sixteen = gated::LinearFew<16, 1, 3, gated::NormedRows>;
  QUIRE_RUN_FUSED(gated, One, 1, 0, 2)
  QUIRE_RUN_FUSED(gated, Eight, 11, 8, 1)
  QUIRE_RUN_FUSED(gated, Eight, 8, 0, 3)
  QUIRE_RUN_FUSED(gated, Sixteen, 13, 0, 1)
}

TEST(CudaLinearFusedEmulatedTest, LayerNormAndAct) {
  const auto weight = Draw<F16>("weight", int64_t{layer::kN} * layer::kK);
  const void* weight_bytes = weight.data();
  using Four = layer::LinearFew<4, 2, 3, layer::NormedRows>;
  using Sixteen = layer::LinearFew<16, 1, 3, layer::NormedRows>;
  QUIRE_RUN_FUSED(layer, Four, 3, 0, 1)
  QUIRE_RUN_FUSED(layer, Sixteen, 10, 0, 1)
}

TEST(CudaLinearFusedEmulatedTest, WideRows) {
  const auto weight = Draw<Bf16>("weight", int64_t{wide::kN} * wide::kK);
  const void* weight_bytes = weight.data();
  using Two = wide::LinearFew<2, 1, 3, wide::NormedRows>;
  QUIRE_RUN_FUSED(wide, Two, 2, 0, 1)
}

TEST(CudaLinearFusedEmulatedTest, BlockQuantisedWeights) {
  constexpr int64_t kElements = int64_t{blocks::kWeightRows} * blocks::kK;
  testing::Random random{"blocks"};
  std::vector<uint8_t> bytes(static_cast<size_t>(RowBytes(DType::kQ4_0, kElements)));
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<uint8_t>(random.Next());
    if (i % 18 == 1) bytes[i] = 0x24;  // scales near 2^-6
  }
  std::vector<double> values(static_cast<size_t>(kElements));
  ASSERT_TRUE(Dequantize(DType::kQ4_0, bytes, absl::MakeSpan(values)).ok());
  std::vector<Bf16> weight;
  for (double value : values) weight.push_back(FromFloat<Bf16>(static_cast<float>(value)));
  const void* weight_bytes = bytes.data();
  using Eights = blocks::LinearFewBlocks<blocks::Fours, 1, 8, 1, 3, blocks::NormedRows>;
  using Sixteens = blocks::LinearFewBlocks<blocks::Fours, 2, 8, 2, 3, blocks::NormedRows>;
  QUIRE_RUN_FUSED(blocks, Eights, 3, 0, 2)
  QUIRE_RUN_FUSED(blocks, Sixteens, 7, 0, 1)
}

}  // namespace
}  // namespace quire::emulated
