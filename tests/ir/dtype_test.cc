#include "ir/dtype.h"

#include <cmath>
#include <limits>

#include "gtest/gtest.h"

namespace quire {
namespace {

TEST(DTypeTest, TextRoundTrips) {
  for (const DTypeInfo& info : AllDTypes()) EXPECT_EQ(ParseDType(info.text), info.dtype);
  EXPECT_EQ(ParseDType("f8"), std::nullopt);
}

TEST(DTypeTest, EveryF16BitPatternRoundTrips) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float value = F16ToF32(static_cast<uint16_t>(bits));
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(F16ToF32(F32ToF16(value))));
    } else {
      EXPECT_EQ(F32ToF16(value), bits);
    }
  }
}

TEST(DTypeTest, F16RoundsToNearestEven) {
  EXPECT_EQ(F32ToF16(65519.0f), 0x7bff);  // below the midpoint of 65504 and 2^16
  EXPECT_EQ(F32ToF16(65520.0f), 0x7c00);
  EXPECT_EQ(F32ToF16(1.0f + std::ldexp(1.0f, -11)), 0x3c00);
  EXPECT_EQ(F32ToF16(1.0f + 3 * std::ldexp(1.0f, -11)), 0x3c02);
  EXPECT_EQ(F32ToF16(std::ldexp(1.0f, -25)), 0x0000);
  EXPECT_EQ(F32ToF16(std::ldexp(3.0f, -25)), 0x0002);
}

TEST(DTypeTest, BF16RoundsToNearestEvenAndKeepsNaN) {
  EXPECT_EQ(F32ToBF16(1.0f + std::ldexp(1.0f, -8)), 0x3f80);
  EXPECT_EQ(F32ToBF16(1.0f + 3 * std::ldexp(1.0f, -8)), 0x3f82);
  EXPECT_TRUE(std::isnan(BF16ToF32(F32ToBF16(std::numeric_limits<float>::quiet_NaN()))));
}

TEST(DTypeTest, EveryF8E4M3BitPatternRoundTrips) {
  for (uint32_t bits = 0; bits < 256; ++bits) {
    const float value = F8E4M3ToF32(static_cast<uint8_t>(bits));
    EXPECT_EQ(std::isnan(value), (bits & 0x7f) == 0x7f);
    EXPECT_EQ(F32ToF8E4M3(value), std::isnan(value) ? 0x7f : bits);
  }
  EXPECT_EQ(F8E4M3ToF32(0x01), 0x1p-9f);
  EXPECT_EQ(F8E4M3ToF32(0x08), 0x1p-6f);
  EXPECT_EQ(F8E4M3ToF32(0xb8), -1.0f);
  EXPECT_EQ(F8E4M3ToF32(0x7e), 448.0f);
}

TEST(DTypeTest, F8E4M3RoundsToNearestEvenAndSaturates) {
  for (uint32_t bits = 0; bits < 0x7e; ++bits) {
    const float low = F8E4M3ToF32(static_cast<uint8_t>(bits));
    const float middle = (low + F8E4M3ToF32(static_cast<uint8_t>(bits + 1))) / 2;
    EXPECT_EQ(F32ToF8E4M3(middle), bits + bits % 2);
    EXPECT_EQ(F32ToF8E4M3(-middle), 0x80 | (bits + bits % 2));
    EXPECT_EQ(F32ToF8E4M3(std::nextafter(middle, 0.0f)), bits);
    EXPECT_EQ(F32ToF8E4M3(std::nextafter(middle, 1e9f)), bits + 1);
  }
  EXPECT_EQ(F32ToF8E4M3(464.5f), 0x7e);
  EXPECT_EQ(F32ToF8E4M3(-1e30f), 0xfe);
  EXPECT_EQ(F32ToF8E4M3(std::numeric_limits<float>::infinity()), 0x7e);
}

TEST(DTypeTest, RowBytesCountsBlocks) {
  EXPECT_EQ(RowBytes(DType::kQ4_K, 512), 288);
  EXPECT_EQ(RowBytes(DType::kBF16, 3), 6);
}

}  // namespace
}  // namespace quire
