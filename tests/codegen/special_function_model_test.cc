#include "codegen/cuda/special_function_model.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "ir/plan_format.h"
#include "tests/testdata.h"

namespace quire {
namespace {

const float kInf = std::numeric_limits<float>::infinity();

TEST(SpecialFunctionModelTest, PowersOfIntegersAreExact) {
  for (int i = -126; i < 128; ++i) {
    EXPECT_EQ(CudaExp2(static_cast<float>(i)), std::ldexp(1.0f, i)) << i;
    EXPECT_EQ(CudaNearReciprocal(std::ldexp(1.0f, i)), i > 126 ? 0 : std::ldexp(1.0f, -i)) << i;
  }
}

TEST(SpecialFunctionModelTest, OfSmallNegativeNumbers23BitsCount) {
  EXPECT_EQ(CudaExp2(-0x1.fffffep-24f), 1);
  EXPECT_EQ(CudaExp2(-0x1.0001e4p-126f), 1);
  EXPECT_EQ(CudaExp2(-0x1p-23f), 0x1.fffffcp-1f);
  EXPECT_EQ(CudaExp2(0x1p-23f), 0x1.000002p+0f);
}

TEST(SpecialFunctionModelTest, WhatIsSubnormalIsZero) {
  EXPECT_EQ(CudaExp2(1e-40f), 1);
  EXPECT_EQ(CudaExp2(-1e-40f), 1);
  EXPECT_EQ(CudaExp2(-126.5f), 0);
  EXPECT_EQ(CudaNearReciprocal(1e-40f), kInf);
  EXPECT_EQ(CudaNearReciprocal(-1e-40f), -kInf);
}

TEST(SpecialFunctionModelTest, SpecialValues) {
  EXPECT_EQ(CudaExp2(kInf), kInf);
  EXPECT_EQ(CudaExp2(128), kInf);
  EXPECT_EQ(CudaExp2(-kInf), 0);
  EXPECT_EQ(std::bit_cast<uint32_t>(CudaNearReciprocal(-kInf)), 0x80000000u);
  EXPECT_EQ(CudaNearReciprocal(-0.0f), -kInf);
  EXPECT_TRUE(std::isnan(CudaExp2(std::nanf(""))));
  EXPECT_TRUE(std::isnan(CudaNearReciprocal(std::nanf(""))));
}

// Lines "function begin step count checksum", printed by `bench_cuda_record functions` on an H200.
TEST(SpecialFunctionModelTest, GivesTheBitsOfAnH200) {
  std::ifstream file(TestData("codegen/special_functions.txt"));
  std::string function, begin, step, count, checksum;
  int lines = 0;
  for (; file >> function >> begin >> step >> count >> checksum; ++lines) {
    const float first = std::stof(begin), stride = std::stof(step);
    std::vector<float> results(std::stoul(count));
    for (size_t i = 0; i < results.size(); ++i) {
      const float x = std::fma(static_cast<float>(i), stride, first);
      results[i] = function == "ex2" ? CudaExp2(x) : CudaNearReciprocal(x);
    }
    EXPECT_EQ(PlanChecksum(absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(results.data()),
                                               results.size() * sizeof(float))),
              std::stoull(checksum, nullptr, 16))
        << "line " << lines;
  }
  EXPECT_EQ(lines, 6);
}

}  // namespace
}  // namespace quire
