// Linear kernels that read block-quantised weights, their source run on the CPU, against the
// reference's values of the blocks and the arithmetic that codegen/cuda/linear.h states.
#include <vector>

#include "gtest/gtest.h"
#include "tests/codegen/cuda_linear_blocks_case.h"

namespace quire::emulated {

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

#include "tests/codegen/forget_linear_kernels.h"

QUIRE_BLOCKS(f8e4m3_128, F8E4M3_128, 19, 640, 128, Bf16)
namespace f8e4m3_128 {
#include <linear_dequantize.cuh>
#include <linear_few_blocks.cuh>
}  // namespace f8e4m3_128

namespace {

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
QUIRE_TEST_BLOCKS(F8E4M3_128, f8e4m3_128, 4, 1)

}  // namespace
}  // namespace quire::emulated
