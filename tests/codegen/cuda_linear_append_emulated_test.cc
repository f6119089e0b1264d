// Linears whose last columns go to pages of the KV cache, their source run on the CPU: every body,
// against the arithmetic that codegen/cuda/linear.h states and the places that
// runtime/cuda/cuda_pages.h does.
#include "gtest/gtest.h"
#include "tests/codegen/cuda_emulator.h"
#include "tests/codegen/cuda_hopper_emulator.h"
#include "tests/codegen/cuda_linear_append_case.h"

namespace quire::emulated {

#define QUIRE_APPENDING(n, element, output, bias)             \
  using Element = element;                                    \
  using Output = output;                                      \
  constexpr int kN = n, kK = 256, kGrain = 16;                \
  constexpr bool kHasBias = bias, kHasResidual = false;       \
  constexpr bool kWeightIsWritten = false;                    \
  constexpr int kSharedBytes = 1 << 20, kArrivalBytes = 1024; \
  QUIRE_STAGES                                                \
  QUIRE_NO_ACT

// Queries; K and V of two sizes. Runs of columns end within heads, and tiles within a layer.
namespace queries {
QUIRE_APPENDING(40 + 2 * 3 * (16 + 8), Bf16, Bf16, true)
QUIRE_APPEND(2, 3, 16, 8, 16)
#include <linear_few.cuh>
#include <linear_narrow.cuh>
#include <linear_tile.cuh>
#include <linear_warpgroup.cuh>
}  // namespace queries
#include "tests/codegen/forget_linear_kernels.h"

// Nothing but what is appended; whole lines of 128 bytes; a page a token.
namespace pages_alone {
QUIRE_APPENDING(3 * 2 * 64, Bf16, F16, false)
QUIRE_APPEND(3, 1, 64, 64, 1)
#include <linear_few.cuh>
#include <linear_narrow.cuh>
#include <linear_tile.cuh>
#include <linear_warpgroup.cuh>
}  // namespace pages_alone
#include "tests/codegen/forget_linear_kernels.h"

// One layer, pages of a number of tokens that is no power of two.
namespace one_layer {
QUIRE_APPENDING(8 + 5 * 2 * 8, F16, F16, true)
QUIRE_APPEND(1, 5, 8, 8, 24)
#include <linear_few.cuh>
#include <linear_narrow.cuh>
#include <linear_tile.cuh>
#include <linear_warpgroup.cuh>
}  // namespace one_layer

namespace {

#define QUIRE_EVERY_BODY(space)                                                     \
  TEST(CudaLinearAppendEmulatedTest, space) {                                       \
    QUIRE_BODIES(space)                                                             \
    RunFew<space::LinearFew<4, 2, 3>>(Of({7}, kGeometry), 4);                       \
    RunTile<space::LinearTile<16, 1, 3>>(Of({21}, kGeometry), 16);                  \
    RunTile<space::LinearTile<128, 2, 3>>(Of({131}, kGeometry), 128);               \
    RunNarrow<space::LinearNarrow<16, 64, 3>>(Of({11}, kGeometry), 16);             \
    RunNarrow<space::LinearNarrow<64, 136, 2>>(Of({37}, kGeometry), 64);            \
    RunWarpgroup<space::LinearWarpgroup<64, 3, false>>(Of({131}, kGeometry), 64);   \
    RunWarpgroup<space::LinearWarpgroup<96, 3, false>>(Of({70}, kGeometry), 96);    \
    RunWarpgroup<space::LinearWarpgroup<128, 3, false>>(Of({131}, kGeometry), 128); \
    RunWarpgroup<space::LinearWarpgroup<192, 5, true>>(Of({131}, kGeometry), 192);  \
    RunWarpgroup<space::LinearWarpgroup<256, 4, false>>(Of({131}, kGeometry), 256); \
  }
QUIRE_EVERY_BODY(queries)
QUIRE_EVERY_BODY(pages_alone)
QUIRE_EVERY_BODY(one_layer)

}  // namespace
}  // namespace quire::emulated
