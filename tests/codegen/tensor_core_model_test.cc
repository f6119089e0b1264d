#include "codegen/cuda/tensor_core_model.h"

#include <bit>
#include <cmath>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "codegen/cuda/linear.h"
#include "gtest/gtest.h"
#include "tests/testdata.h"

namespace quire {
namespace {

struct Pair {
  float a, b;
};

// A step over the given products, the rest zero.
float Step(std::vector<Pair> pairs, float c, DType dtype = DType::kBF16) {
  uint16_t a[kTensorCoreStep] = {}, b[kTensorCoreStep] = {};
  for (size_t i = 0; i < pairs.size(); ++i) {
    a[i] = dtype == DType::kBF16 ? F32ToBF16(pairs[i].a) : F32ToF16(pairs[i].a);
    b[i] = dtype == DType::kBF16 ? F32ToBF16(pairs[i].b) : F32ToF16(pairs[i].b);
  }
  return TensorCoreStep(dtype, a, b, c);
}

const float kInf = std::numeric_limits<float>::infinity();
const float kNan = std::numeric_limits<float>::quiet_NaN();

TEST(TensorCoreModelTest, SmallSumsAreExact) {
  EXPECT_EQ(Step({{3, 5}, {-2, 0.5f}, {1.5f, 1.5f}}, 7), 23.25f);
  EXPECT_EQ(Step({{3, 5}, {-2, 0.5f}, {1.5f, 1.5f}}, 7, DType::kF16), 23.25f);
}

TEST(TensorCoreModelTest, DropsWhatLies25PlacesBelowTheLargestExponent) {
  const float tiny = std::ldexp(1.0f, -25), tinier = std::ldexp(1.0f, -26);
  // In f32 itself 1 + 2^-25 rounds away; here sixteen times 2^-25 add up, and 2^-26 do not.
  EXPECT_EQ(Step(std::vector<Pair>(16, {tiny, 1}), 1), 1 + std::ldexp(1.0f, -21));
  EXPECT_EQ(Step(std::vector<Pair>(16, {tinier, 1}), 1), 1);
}

TEST(TensorCoreModelTest, AlignsByTheSumOfExponentsBeforeNormalising) {
  // 1.75 * 1.75 = 3.0625 counts as 2^0 for alignment: 2^-25 is kept beside it and, added to the
  // 2^-25 that c brings, survives; normalised to 2^1 the unit would be 2^-24.
  const float unit = std::ldexp(1.0f, -25);
  EXPECT_EQ(Step({{1.75f, 1.75f}, {-1.75f, 1.75f}, {unit, 1}}, 0), unit);
  // A product 2 * 2 counts as 2^2: the unit is 2^-23.
  EXPECT_EQ(Step({{2, 2}, {-2, 2}, {unit, 1}}, 0), 0);
}

TEST(TensorCoreModelTest, CutsTowardZero) {
  const float above = 1 + std::ldexp(1.0f, -23);
  EXPECT_EQ(Step({{std::ldexp(1.0f, -24), 1}, {std::ldexp(1.0f, -25), 1}}, above), above);
  EXPECT_EQ(Step({{-std::ldexp(1.0f, -24), 1}, {-std::ldexp(1.0f, -25), 1}}, -above), -above);
}

TEST(TensorCoreModelTest, KeepsSubnormals) {
  const float least = std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(Step({{std::ldexp(1.0f, -100), std::ldexp(1.0f, -49)}}, least), 2 * least);
  EXPECT_EQ(Step({{std::ldexp(1.0f, -20), std::ldexp(1.0f, -20)}}, 0, DType::kF16),
            std::ldexp(1.0f, -40));
}

TEST(TensorCoreModelTest, SpecialValues) {
  EXPECT_EQ(std::bit_cast<uint32_t>(Step({{0, -1}, {1, -1}, {1, 1}}, -0.0f)), 0u);
  EXPECT_EQ(Step({{kInf, 2}}, -5), kInf);
  EXPECT_EQ(Step({{kInf, -2}}, 5), -kInf);
  EXPECT_EQ(Step({{1, 1}}, -kInf), -kInf);
  for (float nan : {Step({{kInf, 0}}, 0), Step({{kInf, 1}, {kInf, -1}}, 0),
                    Step({{kInf, 1}}, -kInf), Step({{kNan, 0}}, 1), Step({}, kNan)}) {
    EXPECT_EQ(std::bit_cast<uint32_t>(nan), 0x7fffffffu);
  }
  const float huge = std::ldexp(1.0f, 100);
  EXPECT_EQ(Step({{huge, huge}}, 0), kInf);
  EXPECT_EQ(Step({{huge, -huge}}, 0), -kInf);
}

std::vector<uint16_t> Words(const std::string& hex) {
  std::vector<uint16_t> words;
  for (size_t i = 0; i + 4 <= hex.size(); i += 4) {
    words.push_back(static_cast<uint16_t>(std::stoul(hex.substr(i, 4), nullptr, 16)));
  }
  return words;
}

// Lines "type x weight sum", printed by `bench_cuda_linear record` on an H200.
TEST(TensorCoreModelTest, GivesTheBitsOfAnH200) {
  std::ifstream file(TestData("codegen/tensor_core_steps.txt"));
  std::string type, x, weight, sum;
  int lines = 0;
  for (; file >> type >> x >> weight >> sum; ++lines) {
    const DType dtype = type == "f16" ? DType::kF16 : DType::kBF16;
    const std::vector<uint16_t> a = Words(x), b = Words(weight);
    ASSERT_EQ(a.size(), 192u);
    ASSERT_EQ(b.size(), 192u);
    const float model = CudaLinearSum(dtype, a.data(), b.data(), 192);
    EXPECT_EQ(std::bit_cast<uint32_t>(model), std::stoul(sum, nullptr, 16)) << "line " << lines;
  }
  EXPECT_EQ(lines, 24);
}

uint8_t Byte(const std::string& hex, size_t at) {
  return static_cast<uint8_t>(std::stoul(hex.substr(2 * at, 2), nullptr, 16));
}

// Lines "x weight before after", of an H200: one step of 32 products each.
TEST(TensorCoreModelTest, GivesTheBitsOfAnH200ForF8E4M3) {
  std::ifstream file(TestData("codegen/tensor_core_e4m3_steps.txt"));
  std::string x, weight, before, after;
  int lines = 0;
  for (; file >> x >> weight >> before >> after; ++lines) {
    uint8_t a[kE4m3Step], b[kE4m3Step];
    ASSERT_EQ(x.size(), 2u * kE4m3Step);
    for (size_t i = 0; i < kE4m3Step; ++i) a[i] = Byte(x, i), b[i] = Byte(weight, i);
    const auto c = std::bit_cast<float>(static_cast<uint32_t>(std::stoul(before, nullptr, 16)));
    EXPECT_EQ(std::bit_cast<uint32_t>(TensorCoreE4m3Step(a, b, c)), std::stoul(after, nullptr, 16))
        << "line " << lines;
  }
  EXPECT_EQ(lines, 120);
}

TEST(TensorCoreModelTest, AChainFeedsEachStepIntoTheNext) {
  std::vector<uint16_t> a(48), b(48);
  for (size_t i = 0; i < a.size(); ++i) {
    a[i] = F32ToBF16(1.0f + static_cast<float>(i));
    b[i] = F32ToBF16(i % 3 == 0 ? -0.37f : 1.73f);
  }
  float c = 0.5f;
  for (size_t i = 0; i < a.size(); i += 16) c = TensorCoreStep(DType::kBF16, &a[i], &b[i], c);
  EXPECT_EQ(TensorCoreChain(DType::kBF16, a.data(), b.data(), 48, 0.5f), c);
}

}  // namespace
}  // namespace quire
