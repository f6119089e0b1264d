#include "ir/reference/dequantize.h"

#include <bit>
#include <cmath>
#include <fstream>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/quantize.h"
#include "tests/testdata.h"

namespace quire {
namespace {

using ::quire::testing::Quantize;

// Every value equals the gguf package's, which computes in f32: what is exact in double rounds to
// the same f32.
TEST(DequantizeTest, MatchesTheRecordedBlocks) {
  std::ifstream fixture(TestData("ir/dequantize_fixture.txt"));
  std::set<DType> seen;
  std::string type, block_hex, expected_hex;
  while (fixture >> type >> block_hex >> expected_hex) {
    const std::optional<DType> dtype = ParseDType(type);
    ASSERT_TRUE(dtype.has_value()) << type;
    seen.insert(*dtype);
    const std::string block = absl::HexStringToBytes(block_hex);
    std::vector<double> values(expected_hex.size() / 8);
    const absl::Span<const uint8_t> bytes(reinterpret_cast<const uint8_t*>(block.data()),
                                          block.size());
    const absl::Status status = Dequantize(*dtype, bytes, absl::MakeSpan(values));
    ASSERT_TRUE(status.ok()) << status;
    for (size_t i = 0; i < values.size(); ++i) {
      const auto bits =
          static_cast<uint32_t>(std::stoul(expected_hex.substr(8 * i, 8), nullptr, 16));
      EXPECT_EQ(static_cast<float>(values[i]), std::bit_cast<float>(bits))
          << type << " element " << i;
    }
  }
  EXPECT_EQ(seen.size(), AllDTypes().size() - 4)
      << "all but f32 and i32, and f8e4m3 and f8e4m3_128, which GGUF has not";
}

TEST(DequantizeTest, PlainNumbersAreThemselves) {
  const std::vector<uint8_t> bytes = {0x00, 0x00, 0x20, 0xc0, 0xfe, 0xff, 0xff, 0xff};
  std::vector<double> f32(2), i32(2);
  ASSERT_TRUE(Dequantize(DType::kF32, bytes, absl::MakeSpan(f32)).ok());
  ASSERT_TRUE(Dequantize(DType::kI32, bytes, absl::MakeSpan(i32)).ok());
  EXPECT_EQ(f32[0], -2.5);
  EXPECT_EQ(i32[0], -1071644672.0);
  EXPECT_EQ(i32[1], -2.0);
}

TEST(DequantizeTest, EightBitFloatsHaveAScale) {
  std::vector<uint8_t> bytes(132, 0x00);
  bytes[2] = 0x40, bytes[3] = 0x40;                     // 3
  bytes[4] = 0x38, bytes[5] = 0xfe, bytes[131] = 0x01;  // 1, -448, 2^-9
  std::vector<double> values(128, -1);
  ASSERT_TRUE(Dequantize(DType::kF8E4M3_128, bytes, absl::MakeSpan(values)).ok());
  EXPECT_EQ(values[0], 3);
  EXPECT_EQ(values[1], -1344);
  EXPECT_EQ(values[2], 0);
  EXPECT_EQ(values[127], 3 * 0x1p-9);
}

TEST(DequantizeTest, RefusesBytesThatAreNotTheElements) {
  const std::vector<uint8_t> bytes(36);
  std::vector<double> out(64);
  EXPECT_EQ(Dequantize(DType::kQ4_0, bytes, absl::MakeSpan(out).subspan(0, 32)),
            absl::InvalidArgumentError("36 bytes of q4_0 are not 32 elements"));
  EXPECT_FALSE(Dequantize(DType::kQ4_0, bytes, absl::MakeSpan(out).subspan(0, 63)).ok());
  EXPECT_FALSE(
      Dequantize(DType::kQ4_0, absl::MakeSpan(bytes).subspan(1), absl::MakeSpan(out)).ok());
  EXPECT_TRUE(Dequantize(DType::kQ4_0, bytes, absl::MakeSpan(out)).ok());
}

// Runs of 16 of very different size and offset, so that swapped scales or minimums show.
std::vector<float> TestValues(size_t count) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  float size = 1, offset = 0;
  for (size_t i = 0; i < count; ++i) {
    if (i % 16 == 0) {
      size = std::exp(normal(random));
      offset = normal(random);
    }
    values[i] = std::round(64 * (size * normal(random) + offset)) / 64;
  }
  return values;
}

// Half a step, plus half a unit of the scales where they are quantised too; times 1 + 2^-10 for
// rounding the step to f16 when it was divided by. The extremes come from 256 elements at most, the
// largest block.
double ErrorBound(DType dtype, absl::Span<const float> block) {
  double low = 0, high = 0, magnitude = 0;
  for (const float x : block) {
    low = std::min<double>(low, x);
    high = std::max<double>(high, x);
    magnitude = std::max<double>(magnitude, std::abs(x));
  }
  const double f16 = 1 + std::ldexp(1.0, -10);
  switch (dtype) {
    case DType::kF32:
      return 0;
    case DType::kF16:
      return magnitude * std::ldexp(1.0, -11);
    case DType::kBF16:
      return magnitude * std::ldexp(1.0, -8);
    case DType::kF8E4M3:
      return magnitude < 0x1p-6 ? 0x1p-10 : magnitude / 16;
    case DType::kF8E4M3_128:
      return magnitude / 16 * (1 + 0x1p-22);
    case DType::kI32:
      return 0.5;
    case DType::kQ4_0:
      return f16 * magnitude / 7 / 2;
    case DType::kQ5_0:
      return f16 * magnitude / 15 / 2;
    case DType::kQ8_0:
      return f16 * magnitude / 127 / 2;
    // The minimum is rounded to f16 as well.
    case DType::kQ4_1:
      return f16 * ((high - low) / 15 / 2 + magnitude * std::ldexp(1.0, -11));
    case DType::kQ5_1:
      return f16 * ((high - low) / 31 / 2 + magnitude * std::ldexp(1.0, -11));
    // A scale that rounds down by half a 63rd cuts off the top level by `levels` times as much.
    case DType::kQ4_K:
    case DType::kQ5_K: {
      const int levels = dtype == DType::kQ4_K ? 15 : 31;
      return f16 * ((high - low) / levels / 2 + (high - low) / 63 / 2 - low / 63 / 2);
    }
    case DType::kQ6_K:
      return f16 * (magnitude / 31 / 2 + magnitude / 127 / 2);
  }
  return 0;
}

TEST(QuantizeTest, IsWithinAStepForEveryType) {
  const std::vector<float> values = TestValues(1024);
  for (const DTypeInfo& info : AllDTypes()) {
    std::vector<double> out(values.size());
    const absl::Status status =
        Dequantize(info.dtype, Quantize(info.dtype, values), absl::MakeSpan(out));
    ASSERT_TRUE(status.ok()) << status;
    for (size_t i = 0; i < values.size(); ++i) {
      const size_t begin = i / info.block_elements * info.block_elements;
      const double bound =
          ErrorBound(info.dtype, absl::MakeConstSpan(values).subspan(begin, info.block_elements));
      EXPECT_LE(std::abs(out[i] - values[i]), bound) << info.text << " element " << i;
    }
  }
}

TEST(QuantizeTest, ZerosStayZeros) {
  const std::vector<float> zeros(256);
  for (const DTypeInfo& info : AllDTypes()) {
    std::vector<double> out(zeros.size(), 1.0);
    ASSERT_TRUE(Dequantize(info.dtype, Quantize(info.dtype, zeros), absl::MakeSpan(out)).ok());
    for (const double value : out) EXPECT_EQ(value, 0.0) << info.text;
  }
}

}  // namespace
}  // namespace quire
