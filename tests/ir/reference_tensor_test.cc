#include <bit>
#include <cmath>
#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/reference/tensor.h"

namespace quire::reference {
namespace {

TEST(RoundToTest, AgreesWithTheBitPatternsOfF16) {
  // Between two neighbours: below the middle, the middle, above it.
  for (uint32_t bits = 0; bits < 0x7bff; ++bits) {
    const double low = F16ToF32(static_cast<uint16_t>(bits));
    const double high = F16ToF32(static_cast<uint16_t>(bits + 1));
    const double middle = (low + high) / 2;
    ASSERT_EQ(RoundTo(DType::kF16, low), low);
    ASSERT_EQ(RoundTo(DType::kF16, -middle), bits % 2 == 0 ? -low : -high);
    ASSERT_EQ(RoundTo(DType::kF16, std::nextafter(middle, 0.0)), low);
    ASSERT_EQ(RoundTo(DType::kF16, std::nextafter(middle, 1e9)), high);
  }
}

TEST(RoundToTest, AgreesWithTheBitPatternsOfBF16) {
  for (uint32_t bits = 0; bits < 0x7f7f; ++bits) {
    const double low = BF16ToF32(static_cast<uint16_t>(bits));
    const double high = BF16ToF32(static_cast<uint16_t>(bits + 1));
    const double middle = (low + high) / 2;
    ASSERT_EQ(RoundTo(DType::kBF16, low), low);
    ASSERT_EQ(RoundTo(DType::kBF16, middle), bits % 2 == 0 ? low : high);
    ASSERT_EQ(RoundTo(DType::kBF16, std::nextafter(middle, 0.0)), low);
    ASSERT_EQ(RoundTo(DType::kBF16, std::nextafter(middle, 1e300)), high);
  }
}

TEST(RoundToTest, AgreesWithTheBitPatternsOfF8E4M3) {
  for (uint32_t bits = 0; bits < 0x7e; ++bits) {
    const double low = F8E4M3ToF32(static_cast<uint8_t>(bits));
    const double high = F8E4M3ToF32(static_cast<uint8_t>(bits + 1));
    const double middle = (low + high) / 2;
    ASSERT_EQ(RoundTo(DType::kF8E4M3, low), low);
    ASSERT_EQ(RoundTo(DType::kF8E4M3, -middle), bits % 2 == 0 ? -low : -high);
    ASSERT_EQ(RoundTo(DType::kF8E4M3, std::nextafter(middle, 0.0)), low);
    ASSERT_EQ(RoundTo(DType::kF8E4M3, std::nextafter(middle, 1e9)), high);
  }
}

TEST(RoundToTest, OverflowAndNaN) {
  EXPECT_EQ(RoundTo(DType::kF16, 65519.99), 65504);
  EXPECT_EQ(RoundTo(DType::kF16, -65520), -std::numeric_limits<double>::infinity());
  EXPECT_EQ(RoundTo(DType::kF8E4M3, 1e39), 448);
  EXPECT_EQ(RoundTo(DType::kF8E4M3, -std::numeric_limits<double>::infinity()), -448);
  EXPECT_TRUE(std::isnan(RoundTo(DType::kF8E4M3, std::numeric_limits<double>::quiet_NaN())));
  EXPECT_EQ(RoundTo(DType::kBF16, 1e39), std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(RoundTo(DType::kBF16, std::numeric_limits<double>::quiet_NaN())));
  EXPECT_EQ(RoundTo(DType::kF32, 1 + 0x1p-40), 1 + 0x1p-40);
}

TEST(TensorTest, AtIsRowMajor) {
  const Tensor tensor = {{2, 3}, {0, 1, 2, 3, 4, 5}};
  EXPECT_EQ(tensor.at({1, 0}), 3);
  EXPECT_EQ(tensor.row(1)[2], 5);
}

TEST(TensorTest, ZerosRefusesWhatDoesNotFit) {
  EXPECT_EQ(Tensor::Zeros({int64_t{1} << 40, int64_t{1} << 40}).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Tensor::Zeros({11}, 10).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Tensor::Zeros({int64_t{1} << 60}, int64_t{1} << 62).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Tensor::Zeros({-1, 0}).status().code(), absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(Tensor::Zeros({10}, 10).ok());
  EXPECT_THAT(Tensor::Zeros({int64_t{1} << 40, 0})->values, ::testing::IsEmpty());
}

}  // namespace
}  // namespace quire::reference
