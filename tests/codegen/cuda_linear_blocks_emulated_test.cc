// Linear kernels that read block-quantised weights, their source run on the CPU, against the
// reference's values of the blocks and the arithmetic that codegen/cuda/linear.h states.
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "ir/reference/dequantize.h"
#include "tests/codegen/cuda_emulator.h"
#include "tests/codegen/cuda_linear_case.h"

namespace quire::emulated {

// Types that read blocks, once; they depend on no constant of a linear.
#include <linear_fours.cuh>

#define QUIRE_BLOCKS(name, type, rows, columns, grain, element) \
  namespace name {                                              \
  using Fours = FoursOf##type;                                  \
  constexpr DType kType = DType::k##type;                       \
  using Element = element;                                      \
  using Output = F32;                                           \
  constexpr int kN = rows, kK = columns, kGrain = grain;        \
  constexpr bool kHasBias = false, kHasResidual = false;        \
  constexpr bool kWeightIsWritten = false;                      \
  constexpr int kSharedBytes = 1 << 20;                         \
  QUIRE_DERIVED                                                 \
  QUIRE_NO_ACT                                                  \
  }

QUIRE_BLOCKS(q4_0, Q4_0, 19, 2080, 32, Bf16)
namespace q4_0 {
#include <linear_dequantize.cuh>
#include <linear_few_blocks.cuh>
}  // namespace q4_0
#include "tests/codegen/forget_linear_kernels.h"

QUIRE_BLOCKS(q4_1, Q4_1, 17, 1056, 32, Bf16)
namespace q4_1 {
#include <linear_dequantize.cuh>
#include <linear_few_blocks.cuh>
}  // namespace q4_1
#include "tests/codegen/forget_linear_kernels.h"

QUIRE_BLOCKS(q5_0, Q5_0, 16, 1056, 32, F16)
namespace q5_0 {
#include <linear_dequantize.cuh>
#include <linear_few_blocks.cuh>
}  // namespace q5_0
#include "tests/codegen/forget_linear_kernels.h"

QUIRE_BLOCKS(q5_1, Q5_1, 16, 1024, 32, Bf16)
namespace q5_1 {
#include <linear_dequantize.cuh>
#include <linear_few_blocks.cuh>
}  // namespace q5_1
#include "tests/codegen/forget_linear_kernels.h"

QUIRE_BLOCKS(q8_0, Q8_0, 33, 576, 32, Bf16)
namespace q8_0 {
#include <linear_dequantize.cuh>
#include <linear_few_blocks.cuh>
}  // namespace q8_0
#include "tests/codegen/forget_linear_kernels.h"

QUIRE_BLOCKS(q4_k, Q4_K, 18, 1536, 256, Bf16)
namespace q4_k {
#include <linear_dequantize.cuh>
#include <linear_few_blocks.cuh>
}  // namespace q4_k
#include "tests/codegen/forget_linear_kernels.h"

QUIRE_BLOCKS(q5_k, Q5_K, 16, 1024, 256, F16)
namespace q5_k {
#include <linear_dequantize.cuh>
#include <linear_few_blocks.cuh>
}  // namespace q5_k
#include "tests/codegen/forget_linear_kernels.h"

QUIRE_BLOCKS(q6_k, Q6_K, 21, 1280, 256, Bf16)
namespace q6_k {
#include <linear_dequantize.cuh>
#include <linear_few_blocks.cuh>
}  // namespace q6_k

namespace {

// Any bytes, but for scales, which are numbers of a size near 2^-6.
std::vector<uint8_t> DrawBlocks(DType type, int64_t elements) {
  testing::Random random{DTypeText(type)};
  std::vector<uint8_t> bytes(static_cast<size_t>(RowBytes(type, elements)));
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random.Next());
  const auto block_bytes = static_cast<size_t>(InfoOf(type).block_bytes);
  const auto set = [&](size_t at) {
    const uint16_t scale = F32ToF16(static_cast<float>((random.Uniform() * 2 - 1) / 64));
    std::memcpy(&bytes[at], &scale, 2);
  };
  for (size_t block = 0; block < bytes.size(); block += block_bytes) {
    set(type == DType::kQ6_K ? block + 208 : block);
    if (type == DType::kQ4_1 || type == DType::kQ5_1 || type == DType::kQ4_K ||
        type == DType::kQ5_K) {
      set(block + 2);
    }
  }
  return bytes;
}

template <typename Element, int kN, int kK>
struct BlocksCase {
  Case<Element, F32, kN, kK, false, false> linear;
  std::vector<uint8_t> blocks;

  BlocksCase(DType type, int rows, int grain)
      : linear{rows, grain}, blocks(DrawBlocks(type, int64_t{kN} * kK)) {
    std::vector<double> values(static_cast<size_t>(kN) * kK);
    EXPECT_TRUE(Dequantize(type, blocks, absl::MakeSpan(values)).ok());
    for (size_t i = 0; i < values.size(); ++i) {
      linear.weight[i] = FromFloat<Element>(static_cast<float>(values[i]));
    }
  }
};

#define QUIRE_TEST_BLOCKS(name, space, rows, grid)                                               \
  TEST(CudaLinearBlocksEmulatedTest, name) {                                                     \
    const BlocksCase<space::Element, space::kN, space::kK> c(space::kType, rows, space::kGrain); \
    std::vector<space::Element> dense(c.linear.weight.size());                                   \
    RunGrid({3, 64},                                                                             \
            [&] { space::DequantizeWeight<space::Fours, 64>(c.blocks.data(), dense.data()); });  \
    for (size_t i = 0; i < dense.size(); ++i) {                                                  \
      ASSERT_EQ(ToFloat(dense[i]), ToFloat(c.linear.weight[i])) << i;                            \
    }                                                                                            \
    const auto run = [&](auto body, int first_row) {                                             \
      using Body = decltype(body);                                                               \
      c.linear.Run<space::LinearOperands>(                                                       \
          grid, 0, Body::kThreads, size_t{Body::kRingBytes} + 256 * 1024,                        \
          [&](space::LinearOperands operands) {                                                  \
            operands.weight = reinterpret_cast<const space::Element*>(c.blocks.data());          \
            Body::Run(operands);                                                                 \
          },                                                                                     \
          first_row);                                                                            \
    };                                                                                           \
    run(space::LinearFewBlocks<space::Fours, 2, 8, 2, 3>{}, rows > 8 ? rows - 8 : 0);            \
    run(space::LinearFewBlocks<space::Fours, 1, 16, 1, 4>{}, 0);                                 \
  }

QUIRE_TEST_BLOCKS(Q4_0, q4_0, 11, 1)
QUIRE_TEST_BLOCKS(Q4_1, q4_1, 1, 2)
QUIRE_TEST_BLOCKS(Q5_0, q5_0, 8, 1)
QUIRE_TEST_BLOCKS(Q5_1, q5_1, 2, 1)
QUIRE_TEST_BLOCKS(Q8_0, q8_0, 3, 2)
QUIRE_TEST_BLOCKS(Q4_K, q4_k, 5, 1)
QUIRE_TEST_BLOCKS(Q5_K, q5_k, 1, 1)
QUIRE_TEST_BLOCKS(Q6_K, q6_k, 9, 2)

}  // namespace
}  // namespace quire::emulated
