// Linears of block-quantised weights that turn heads by rope, their source run on the CPU: blocks'
// rows come in the same order as others.
#include <vector>

#include "gtest/gtest.h"
#include "tests/codegen/cuda_hopper_emulator.h"
#include "tests/codegen/cuda_linear_append_case.h"
#include "tests/codegen/cuda_linear_blocks_case.h"

namespace quire::emulated {

// Of two heads of queries, one of K and one of V.
#define QUIRE_TURNING_BLOCKS(d, dv, page_tokens, distance, columns, grain)        \
  using Element = Bf16;                                                           \
  using Output = Bf16;                                                            \
  constexpr int kN = 3 * d + dv, kK = columns, kGrain = grain;                    \
  constexpr bool kHasBias = true, kHasResidual = false, kWeightIsWritten = false; \
  constexpr int kSharedBytes = 1 << 20, kArrivalBytes = 1024;                     \
  QUIRE_STAGES                                                                    \
  QUIRE_NO_ACT                                                                    \
  QUIRE_APPEND_TURNED(1, 1, d, dv, page_tokens, distance)

namespace halves {
QUIRE_TURNING_BLOCKS(48, 24, 7, 8, 256, 32)
#include <linear_blocks_ring.cuh>
#include <linear_few_blocks.cuh>
#include <linear_narrow.cuh>
}  // namespace halves
#include "tests/codegen/forget_linear_kernels.h"

namespace neighbours {
QUIRE_TURNING_BLOCKS(40, 40, 16, 1, 512, 256)
#include <linear_blocks_ring.cuh>
#include <linear_few_blocks.cuh>
#include <linear_narrow.cuh>
}  // namespace neighbours

namespace {

// A case whose weight is of blocks, which come in the order in which bodies read them.
template <typename TestCase>
struct Blocks {
  TestCase c;
  std::vector<uint8_t> bytes;

  Blocks(DType type, int rows, int64_t grain, const CudaRowOrder& order) : c{rows, grain} {
    const std::vector<uint8_t> blocks = DrawBlocks(type, int64_t{c.n()} * c.k());
    std::vector<double> values(c.weight.size());
    EXPECT_TRUE(Dequantize(type, blocks, absl::MakeSpan(values)).ok());
    for (size_t i = 0; i < values.size(); ++i) {
      c.weight[i] = FromFloat<Bf16>(static_cast<float>(values[i]));
    }
    const int64_t row_bytes = RowBytes(type, c.k());
    for (int at = 0; at < c.n(); ++at) {
      const auto row = blocks.begin() + order.RowAt(at) * row_bytes;
      bytes.insert(bytes.end(), row, row + row_bytes);
    }
  }
};

#define QUIRE_BLOCK_BODIES(space, type, row_tiles, copy_k, heads)                              \
  TEST(CudaLinearRopeBlocksEmulatedTest, space) {                                              \
    QUIRE_BODIES(space)                                                                        \
    const CudaRowOrder order = {heads, space::kKeyDim};                                        \
    const auto run = [&](int rows, int grid, int whole, int threads, size_t shared_bytes,      \
                         const auto& body) {                                                   \
      const Blocks<TestCase> blocks(DType::k##type, rows, space::kGrain, order);               \
      Of(blocks.c, kGeometry).Run(grid, whole, threads, shared_bytes, [&](Operands operands) { \
        operands.weight = reinterpret_cast<const Bf16*>(blocks.bytes.data());                  \
        body(operands);                                                                        \
      });                                                                                      \
    };                                                                                         \
    using Few = space::LinearFewBlocks<FoursOf##type<>, row_tiles, 8, 2, 3>;                   \
    run(7, 2, 0, Few::kThreads, size_t{Few::kRingBytes} + 128 * 1024,                          \
        [](const Operands& operands) { Few::Run(operands); });                                 \
    using Ring = space::LinearBlocksRing<FoursOf##type<true>, 64, 64, 3, copy_k>;              \
    using Narrow = space::LinearNarrow<64, 64, 3, Ring>;                                       \
    run(19, 2, 1, Narrow::kThreads, Narrow::kFlagsAt + 16, [](const Operands& operands) {      \
      Narrow::Run(operands, TensorMap{operands.x, operands.rows, space::kK, 24});              \
    });                                                                                        \
  }
QUIRE_BLOCK_BODIES(halves, Q8_0, 2, 64, 3)
QUIRE_BLOCK_BODIES(neighbours, Q4_K, 1, 256, 0)

}  // namespace
}  // namespace quire::emulated
