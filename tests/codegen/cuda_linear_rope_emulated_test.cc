// Linears that turn heads by rope, their source run on the CPU: every body, against the arithmetic
// that codegen/cuda/linear.h states and then a row kernel's functions (row.cuh).
#include <vector>

#include "gtest/gtest.h"
#include "tests/codegen/cuda_emulator.h"
#include "tests/codegen/cuda_hopper_emulator.h"
#include "tests/codegen/cuda_linear_append_case.h"

namespace quire::emulated {

// Of `queries` heads beside `heads` of K [d] and V [dv].
#define QUIRE_TURNING(queries, heads, d, dv, page_tokens, distance, element, bias) \
  using Element = element;                                                         \
  using Output = element;                                                          \
  constexpr int kN = (queries + heads) * d + heads * dv, kK = 256, kGrain = 16;    \
  constexpr bool kHasBias = bias, kHasResidual = false;                            \
  constexpr bool kWeightIsWritten = false;                                         \
  constexpr int kSharedBytes = 1 << 20, kArrivalBytes = 1024;                      \
  QUIRE_STAGES                                                                     \
  QUIRE_NO_ACT                                                                     \
  QUIRE_APPEND_TURNED(1, heads, d, dv, page_tokens, distance)

// Tiles and runs of columns end within heads; the last sixteen columns are not whole.
namespace halves_80 {
QUIRE_TURNING(2, 1, 80, 24, 7, 8, Bf16, true)
#include <linear_few.cuh>
#include <linear_finish.cuh>
#include <linear_narrow.cuh>
#include <linear_tile.cuh>
#include <linear_warpgroup.cuh>
}  // namespace halves_80
#include "tests/codegen/forget_linear_kernels.h"

namespace neighbours_80 {
QUIRE_TURNING(2, 1, 80, 24, 16, 1, F16, false)
#include <linear_few.cuh>
#include <linear_finish.cuh>
#include <linear_narrow.cuh>
#include <linear_tile.cuh>
#include <linear_warpgroup.cuh>
}  // namespace neighbours_80
#include "tests/codegen/forget_linear_kernels.h"

namespace halves_64 {
QUIRE_TURNING(4, 2, 64, 64, 16, 8, F16, false)
#include <linear_few.cuh>
#include <linear_finish.cuh>
#include <linear_narrow.cuh>
#include <linear_tile.cuh>
#include <linear_warpgroup.cuh>
}  // namespace halves_64
#include "tests/codegen/forget_linear_kernels.h"

// Keys alone are turned: nothing is y's.
namespace halves_96 {
QUIRE_TURNING(0, 3, 96, 96, 1, 8, Bf16, false)
#include <linear_few.cuh>
#include <linear_finish.cuh>
#include <linear_narrow.cuh>
#include <linear_tile.cuh>
#include <linear_warpgroup.cuh>
}  // namespace halves_96
#include "tests/codegen/forget_linear_kernels.h"

namespace halves_128 {
QUIRE_TURNING(2, 1, 128, 128, 16, 8, Bf16, true)
#include <linear_few.cuh>
#include <linear_finish.cuh>
#include <linear_narrow.cuh>
#include <linear_tile.cuh>
#include <linear_warpgroup.cuh>
}  // namespace halves_128
#include "tests/codegen/forget_linear_kernels.h"

namespace neighbours_128 {
QUIRE_TURNING(2, 1, 128, 128, 7, 1, Bf16, true)
#include <linear_few.cuh>
#include <linear_finish.cuh>
#include <linear_narrow.cuh>
#include <linear_tile.cuh>
#include <linear_warpgroup.cuh>
}  // namespace neighbours_128
#include "tests/codegen/forget_linear_kernels.h"

namespace halves_256 {
QUIRE_TURNING(1, 1, 256, 256, 1, 8, F16, true)
#include <linear_few.cuh>
#include <linear_finish.cuh>
#include <linear_narrow.cuh>
#include <linear_tile.cuh>
#include <linear_warpgroup.cuh>
}  // namespace halves_256

namespace {

// Sums as bodies have them, of a library.
template <typename Of, typename Finish>
void RunFinish(const Of& of, Finish finish) {
  std::vector<float> sums;
  for (int row = 0; row < of.c.rows; ++row) {
    for (int at = 0; at < of.c.n(); ++at) {
      sums.push_back(CudaLinearSum(TypeOf<typename Of::Element>(),
                                   &of.c.x[static_cast<size_t>(row * of.c.k())].bits,
                                   &of.weight[static_cast<size_t>(at * of.c.k())].bits, of.c.k()));
    }
  }
  of.Run(3, 0, 64, 0, [&](const auto& operands) { finish(sums.data(), operands, 64); });
}

#define QUIRE_EVERY_BODY(space)                                                     \
  TEST(CudaLinearRopeEmulatedTest, space) {                                         \
    QUIRE_BODIES(space)                                                             \
    RunFew<space::LinearFew<4, 2, 3>>(Of({7}, kGeometry), 4);                       \
    RunFew<space::LinearFew<8, 2, 3>>(Of({8}, kGeometry), 0);                       \
    RunTile<space::LinearTile<16, 1, 3>>(Of({21}, kGeometry), 16);                  \
    RunTile<space::LinearTile<128, 2, 3>>(Of({70}, kGeometry), 128);                \
    RunNarrow<space::LinearNarrow<16, 96, 3>>(Of({11}, kGeometry), 16);             \
    RunNarrow<space::LinearNarrow<32, 64, 3>>(Of({17}, kGeometry), 32);             \
    RunNarrow<space::LinearNarrow<64, 160, 2>>(Of({37}, kGeometry), 64);            \
    RunWarpgroup<space::LinearWarpgroup<64, 3, false>>(Of({19}, kGeometry), 64);    \
    RunWarpgroup<space::LinearWarpgroup<96, 3, false>>(Of({70}, kGeometry), 96);    \
    RunWarpgroup<space::LinearWarpgroup<128, 3, false>>(Of({131}, kGeometry), 128); \
    RunWarpgroup<space::LinearWarpgroup<192, 5, true>>(Of({70}, kGeometry), 192);   \
    RunWarpgroup<space::LinearWarpgroup<224, 4, false>>(Of({65}, kGeometry), 224);  \
    RunWarpgroup<space::LinearWarpgroup<256, 4, false>>(Of({40}, kGeometry), 256);  \
    RunFinish(Of({19}, kGeometry), space::FinishSums);                              \
  }
QUIRE_EVERY_BODY(halves_80)
QUIRE_EVERY_BODY(neighbours_80)
QUIRE_EVERY_BODY(halves_64)
QUIRE_EVERY_BODY(halves_96)
QUIRE_EVERY_BODY(halves_128)
QUIRE_EVERY_BODY(neighbours_128)
QUIRE_EVERY_BODY(halves_256)

}  // namespace
}  // namespace quire::emulated
