#include "ir/reference/stored_tensor.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/random_tensor.h"

namespace quire::testing {
namespace {

using reference::Tensor;
using reference::TensorFromBytes;
using ::testing::ElementsAre;

TEST(StoredTensorTest, ReadsLittleEndianRows) {
  const uint8_t f32[] = {0, 0, 0x80, 0x3f, 0, 0, 0x20, 0xc1};
  EXPECT_THAT(TensorFromBytes({DType::kF32, {2, 1}}, f32)->values, ElementsAre(1, -10));
  const uint8_t bf16[] = {0x80, 0x3f, 0x20, 0xc1};
  const auto tensor = TensorFromBytes({DType::kBF16, {1, 2}}, bf16);
  EXPECT_THAT(tensor->values, ElementsAre(1, -10));
  EXPECT_THAT(tensor->extents, ElementsAre(1, 2));
  EXPECT_THAT(TensorFromBytes({DType::kF16, {}}, absl::MakeConstSpan(bf16, 2))->values,
              ElementsAre(1.875));
}

TEST(StoredTensorTest, RefusesAnotherNumberOfBytes) {
  const std::vector<uint8_t> bytes(36, 0);
  const Type types[] = {
      {DType::kF32, {2, 5}},   {DType::kF32, {int64_t{1} << 40, int64_t{1} << 40}},
      {DType::kQ4_0, {64, 1}}, {DType::kQ4_0, {32, 2}},
      {DType::kQ4_0, {3, 32}},
  };
  for (const Type& type : types) {
    EXPECT_FALSE(TensorFromBytes(type, bytes).ok()) << type.ToString();
  }
  EXPECT_EQ(TensorFromBytes(types[0], bytes).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(TensorFromBytes(types[1], bytes).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(TensorFromBytes({DType::kQ4_0, {2, 32}}, bytes).ok());
  EXPECT_FALSE(TensorFromBytes({DType::kF32, {Extent::Letter('T')}}, bytes).ok());
}

TEST(RandomTensorTest, BytesAreThoseOfTheTensor) {
  const Tensor want = RandomTensor("w", {8, 256});
  for (DType dtype : {DType::kF16, DType::kBF16}) {
    Tensor rounded = want;
    reference::RoundAll(dtype, absl::MakeSpan(rounded.values));
    const Type type = {dtype, {8, 256}};
    EXPECT_EQ(TensorFromBytes(type, RandomBytes("w", type))->values, rounded.values);
  }
  EXPECT_NE(RandomTensor("v", {8, 256}).values, want.values);
}

// Whatever the type, a product with activations of deviation 1 has about deviation 1.
TEST(RandomTensorTest, EveryTypeHasTheDeviationOfAProjection) {
  for (const DTypeInfo& info : AllDTypes()) {
    if (info.dtype == DType::kI32) continue;
    const Type type = {info.dtype, {64, 256}};
    const auto tensor = TensorFromBytes(type, RandomBytes("w", type));
    ASSERT_TRUE(tensor.ok()) << tensor.status();
    double squares = 0;
    for (double value : tensor->values) squares += value * value;
    EXPECT_GT(squares / 64, 0.3) << info.text;
    EXPECT_LT(squares / 64, 10) << info.text;
  }
}

}  // namespace
}  // namespace quire::testing
