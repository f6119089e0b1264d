// The attention kernels over keys and values of f8e4m3, and their conversions, run on the CPU.
#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "tests/codegen/cuda_attention_constants.h"
#include "tests/codegen/cuda_attention_emulated.h"

#undef QUIRE_MANY_THREADS
#define QUIRE_MANY_THREADS 256
namespace quire::emulated {

namespace e4m3_few {  // three heads a group, rows padded to other banks, three tensor-core steps
QUIRE_KV_ATTENTION(Bf16, E4m3, true, 6, 2, 48, 32, 16, 5, true)
QUIRE_PLAIN_MASKS
#include <attention_few.cuh>
#include <attention_plan.cuh>
#include <attention_short.cuh>
}  // namespace e4m3_few
#include "tests/codegen/cuda_attention_again.h"
namespace e4m3_many {
QUIRE_KV_ATTENTION(Bf16, E4m3, true, 6, 2, 48, 32, 16, 3, false)
QUIRE_PLAIN_MASKS
#include <attention_body.cuh>
}  // namespace e4m3_many
#include "tests/codegen/cuda_attention_again.h"

namespace e4m3_paged_few {  // the same over pages of 5 tokens
QUIRE_KV_ATTENTION(Bf16, E4m3, true, 6, 2, 48, 32, 5, 2, true)
QUIRE_PLAIN_MASKS
#include <attention_few.cuh>
#include <attention_plan.cuh>
#include <attention_short.cuh>
}  // namespace e4m3_paged_few
#include "tests/codegen/cuda_attention_again.h"
namespace e4m3_paged_many {
QUIRE_KV_ATTENTION(Bf16, E4m3, true, 6, 2, 48, 32, 5, 2, false)
QUIRE_PLAIN_MASKS
#include <attention_body.cuh>
}  // namespace e4m3_paged_many
#include "tests/codegen/cuda_attention_again.h"

namespace e4m3_windowed_few {  // everything that goes with a window; no scales; pages of one token
QUIRE_KV_ATTENTION(F16, E4m3, false, 8, 1, 16, 128, 1, 3, true)
QUIRE_ALIBI_MASKS
#include <attention_few.cuh>
#include <attention_plan.cuh>
#include <attention_short.cuh>
}  // namespace e4m3_windowed_few
#include "tests/codegen/cuda_attention_again.h"
namespace e4m3_windowed_many {
QUIRE_KV_ATTENTION(F16, E4m3, false, 8, 1, 16, 128, 1, 1, false)
QUIRE_ALIBI_MASKS
#include <attention_body.cuh>
}  // namespace e4m3_windowed_many
#include "tests/codegen/cuda_attention_again.h"

namespace e4m3_wide_few {  // columns for two warps, over the whole context
QUIRE_KV_ATTENTION(Bf16, E4m3, true, 2, 2, 128, 144, 32, 9, true)
QUIRE_BIAS_MASKS
#include <attention_few.cuh>
#include <attention_plan.cuh>
#include <attention_short.cuh>
}  // namespace e4m3_wide_few
#include "tests/codegen/cuda_attention_again.h"
// Keys and values become elements in turn: 64 rows of q, stages of bytes, and 64 rows of values.
#undef QUIRE_SHARED_BYTES
#define QUIRE_SHARED_BYTES (64 * 256 + 3 * 64 * (128 + 144) + 64 * 304 + 256)
namespace e4m3_wide_many {
QUIRE_KV_ATTENTION(Bf16, E4m3, true, 2, 2, 128, 144, 32, 3, false)
QUIRE_BIAS_MASKS
#include <attention_body.cuh>
static_assert(!kBothWide);
}  // namespace e4m3_wide_many
#undef QUIRE_SHARED_BYTES
#define QUIRE_SHARED_BYTES (1 << 20)
#include "tests/codegen/cuda_attention_again.h"

namespace e4m3_grouped_few {  // so many heads a group that two warps share tiles
QUIRE_KV_ATTENTION(Bf16, E4m3, true, 20, 1, 32, 48, 16, 11, true)
QUIRE_PLAIN_MASKS
#include <attention_few.cuh>
#include <attention_plan.cuh>
#include <attention_short.cuh>
}  // namespace e4m3_grouped_few
#include "tests/codegen/cuda_attention_again.h"
namespace e4m3_grouped_many {
QUIRE_KV_ATTENTION(Bf16, E4m3, true, 20, 1, 32, 48, 16, 3, false)
QUIRE_PLAIN_MASKS
#include <attention_body.cuh>
}  // namespace e4m3_grouped_many
#include "tests/codegen/cuda_attention_again.h"

// Warpgroups read Elements that three warps write: of one panel of bytes, of rows that do not fill
// panels, of two panels of Elements; and warps have the same over other pages.
namespace e4m3_body_few {
QUIRE_KV_ATTENTION(Bf16, E4m3, true, 6, 2, 64, 64, 5, 2, true)
QUIRE_PLAIN_MASKS
#include <attention_few.cuh>
#include <attention_plan.cuh>
#include <attention_short.cuh>
}  // namespace e4m3_body_few
#include "tests/codegen/cuda_attention_again.h"
namespace e4m3_body_many {
QUIRE_KV_ATTENTION(Bf16, E4m3, true, 6, 2, 64, 64, 5, 3, false)
QUIRE_PLAIN_MASKS
#include <attention_body.cuh>
}  // namespace e4m3_body_many
#include "tests/codegen/cuda_attention_again.h"
#undef QUIRE_MANY_THREADS
#define QUIRE_MANY_THREADS 384
namespace e4m3_warpgroup_few {
QUIRE_KV_ATTENTION(Bf16, E4m3, true, 6, 2, 64, 64, 16, 2, true)
QUIRE_PLAIN_MASKS
#include <attention_few.cuh>
#include <attention_plan.cuh>
#include <attention_short.cuh>
}  // namespace e4m3_warpgroup_few
#include "tests/codegen/cuda_attention_again.h"
namespace e4m3_warpgroup_many {
QUIRE_KV_ATTENTION(Bf16, E4m3, true, 6, 2, 64, 64, 16, 3, false)
QUIRE_PLAIN_MASKS
#include <attention_warpgroup.cuh>
}  // namespace e4m3_warpgroup_many
#include "tests/codegen/cuda_attention_again.h"
namespace e4m3_warpgroup_padded_few {
QUIRE_KV_ATTENTION(Bf16, E4m3, true, 2, 1, 48, 48, 8, 2, true)
QUIRE_PLAIN_MASKS
#include <attention_few.cuh>
#include <attention_plan.cuh>
#include <attention_short.cuh>
}  // namespace e4m3_warpgroup_padded_few
#include "tests/codegen/cuda_attention_again.h"
namespace e4m3_warpgroup_padded_many {
QUIRE_KV_ATTENTION(Bf16, E4m3, true, 2, 1, 48, 48, 8, 3, false)
QUIRE_PLAIN_MASKS
#include <attention_warpgroup.cuh>
}  // namespace e4m3_warpgroup_padded_many
#include "tests/codegen/cuda_attention_again.h"
namespace e4m3_warpgroup_windowed_few {
QUIRE_KV_ATTENTION(F16, E4m3, false, 8, 1, 112, 112, 24, 2, true)
QUIRE_WINDOW_MASKS
#include <attention_few.cuh>
#include <attention_plan.cuh>
#include <attention_short.cuh>
}  // namespace e4m3_warpgroup_windowed_few
#include "tests/codegen/cuda_attention_again.h"
namespace e4m3_warpgroup_windowed_many {
QUIRE_KV_ATTENTION(F16, E4m3, false, 8, 1, 112, 112, 24, 3, false)
QUIRE_WINDOW_MASKS
#include <attention_warpgroup.cuh>
}  // namespace e4m3_warpgroup_windowed_many
#include "tests/codegen/cuda_attention_again.h"

namespace {

QUIRE_KERNEL(e4m3)
QUIRE_KERNEL(e4m3_paged)
QUIRE_KERNEL(e4m3_windowed)
QUIRE_KERNEL(e4m3_wide)
QUIRE_KERNEL(e4m3_grouped)
QUIRE_KERNEL(e4m3_body)
QUIRE_WARPGROUP_KERNEL(e4m3_warpgroup)
QUIRE_WARPGROUP_KERNEL(e4m3_warpgroup_padded)
QUIRE_WARPGROUP_KERNEL(e4m3_warpgroup_windowed)

template <typename T>
void ExpectWidened(uint32_t bits, uint32_t element) {
  const float want = F8E4M3ToF32(static_cast<uint8_t>(bits));
  const float got = ToFloat(T{static_cast<uint16_t>(element)});
  if (std::isnan(want)) {
    EXPECT_TRUE(std::isnan(got)) << bits;
  } else {
    EXPECT_EQ(Bits(got), Bits(want)) << bits;
  }
}

template <typename T>
void ExpectAllWidened() {
  for (uint32_t i = 0; i < 256; ++i) {
    const uint32_t bytes[4] = {i, i * 7 & 255, i * 91 & 255, 255 - i};
    const uint32_t word = bytes[0] | bytes[1] << 8 | bytes[2] << 16 | bytes[3] << 24;
    uint32_t first, second;
    WidenHalves<T>(word, first, second);
    ExpectWidened<T>(bytes[0], first);
    ExpectWidened<T>(bytes[1], first >> 16);
    ExpectWidened<T>(bytes[2], second);
    ExpectWidened<T>(bytes[3], second >> 16);
    WidenInTurn<T>(word, first, second);
    ExpectWidened<T>(bytes[0], first);
    ExpectWidened<T>(bytes[2], first >> 16);
    ExpectWidened<T>(bytes[1], second);
    ExpectWidened<T>(bytes[3], second >> 16);
  }
}

TEST(CudaE4m3Test, EveryNumberIsTheSameElement) {
  ExpectAllWidened<Bf16>();
  ExpectAllWidened<F16>();
}

TEST(CudaE4m3Test, RoundsAsTheHostDoes) {
  testing::Random random(1);
  for (int i = 0; i < 100000; ++i) {
    float x[4];
    uint32_t want = 0;
    for (int j = 0; j < 4; ++j) {
      x[j] = FromBits(static_cast<uint32_t>(random.Next()));
      if (i % 2 == 0)
        x[j] = static_cast<float>(random.Normal() * std::exp2(random.Uniform() * 20 - 10));
      want |= static_cast<uint32_t>(F32ToF8E4M3(x[j])) << (8 * j);
    }
    ASSERT_EQ(PackFours(x[0], x[1], x[2], x[3]), want);
  }
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(PackFours(infinity, -infinity, std::nanf(""), -0.0f), 0x807ffe7eu);
}

const std::vector<Part> kMixed = {{1, 1, 300}, {2, 1, 1},    {3, 5, 70}, {4, 90, 90},
                                  {5, 1, 513}, {6, 30, 290}, {7, 1, 64}, {8, 4, 257}};

TEST(CudaAttentionE4m3EmulatedTest, MixedStep) {
  const Rows rows = RunStep<e4m3_kernel>(kMixed, 2);
  ExpectClose<e4m3_kernel>(kMixed, rows);
  ExpectSame(RunStep<e4m3_kernel>(kMixed, 7, 3), rows, "other blocks");
  ExpectSame(RunStep<e4m3_paged_kernel>(kMixed, 1), rows, "other pages");
  for (const Part& part : {kMixed[0], kMixed[4], kMixed[5], kMixed[7]}) {
    ExpectSame(RunStep<e4m3_kernel>({part}, 3), rows, "alone");
  }
}

TEST(CudaAttentionE4m3EmulatedTest, APromptInChunksOfAnySize) {
  const Rows whole = RunStep<e4m3_kernel>({{1, 330, 330}}, 3);
  for (int context : {1, 64, 65, 256, 257, 330}) {
    ExpectSame(RunStep<e4m3_kernel>({{1, 1, context}}, 2), whole, "one token");
  }
  for (const Part& part : {Part{1, 7, 260}, Part{1, 10, 322}, Part{1, 11, 330}, Part{1, 64, 300}}) {
    ExpectSame(RunStep<e4m3_kernel>({part}, 2), whole, "chunk");
  }
}

TEST(CudaAttentionE4m3EmulatedTest, ALongContextOverManyBlocks) {
  const std::vector<Part> parts = {{1, 1, 2000}, {2, 5, 4000}};
  const Rows rows = RunStep<e4m3_paged_kernel>(parts, 40);
  ExpectClose<e4m3_paged_kernel>(parts, rows);
  ExpectSame(RunStep<e4m3_paged_kernel>(parts, 1), rows, "fewer blocks");
}

TEST(CudaAttentionE4m3EmulatedTest, WarpgroupsHaveTheBitsOfWarps) {
  const Rows rows = RunStep<e4m3_body_kernel>(kMixed, 2);
  ExpectClose<e4m3_body_kernel>(kMixed, rows);
  ExpectSame(RunStep<e4m3_warpgroup_kernel>(kMixed, 3), rows, "many blocks");
  ExpectSame(RunStep<e4m3_warpgroup_kernel>(kMixed, 1, 3), rows, "one block, other pages");
  for (const Part& part : {kMixed[3], kMixed[5], Part{4, 30, 80}}) {
    ExpectSame(RunStep<e4m3_warpgroup_kernel>({part}, 2), rows, "alone");
  }
}

TEST(CudaAttentionE4m3EmulatedTest, WarpgroupsWithPanelsMasksAndTerms) {
  const std::vector<Part> parts = {{1, 1, 300}, {2, 20, 150}, {3, 140, 290}, {4, 50, 51}};
  ExpectClose<e4m3_warpgroup_padded_kernel>(parts, RunStep<e4m3_warpgroup_padded_kernel>(parts, 2));
  const Rows rows = RunStep<e4m3_warpgroup_windowed_kernel>(parts, 2);
  ExpectClose<e4m3_warpgroup_windowed_kernel>(parts, rows);
  ExpectSame(RunStep<e4m3_warpgroup_windowed_kernel>({{2, 4, 150}}, 1), rows, "fewer rows");
}

TEST(CudaAttentionE4m3EmulatedTest, WindowsWideHeadsAndLargeGroups) {
  const std::vector<Part> parts = {{1, 1, 300}, {2, 20, 150}, {3, 1, 99}, {4, 3, 257}, {5, 2, 2}};
  ExpectClose<e4m3_windowed_kernel>(parts, RunStep<e4m3_windowed_kernel>(parts, 2));
  ExpectClose<e4m3_wide_kernel>(parts, RunStep<e4m3_wide_kernel>(parts, 2));
  const Rows rows = RunStep<e4m3_grouped_kernel>(parts, 1);
  ExpectClose<e4m3_grouped_kernel>(parts, rows);
  ExpectSame(RunStep<e4m3_grouped_kernel>(parts, 9), rows, "a chunk a block");
}

}  // namespace
}  // namespace quire::emulated
