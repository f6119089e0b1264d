// Which kernels a linear has on a device, and which of them it launches, with what.
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "codegen/cuda/linear.h"
#include "codegen/cuda/linear_rope.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/codegen/cuda_linear_specs.h"

namespace quire {
namespace {

using testing::Describe;
using testing::FusedSpec;
using ::testing::HasSubstr;
using testing::Kernels;
using testing::kHopper;
using testing::Spec;

std::string Describe(const CudaLaunch& launch) {
  std::string text = absl::StrCat(launch.entry, " x", launch.grid, ":");
  for (const CudaArgument& argument : launch.arguments) {
    absl::StrAppend(&text, " ",
                    argument.kind == CudaArgument::Kind::kOperand      ? "operand "
                    : argument.kind == CudaArgument::Kind::kWorkspace  ? "workspace "
                    : argument.kind == CudaArgument::Kind::kTensorMap  ? "map "
                    : argument.kind == CudaArgument::Kind::kTokenSlots ? "slots "
                    : argument.kind == CudaArgument::Kind::kHeader     ? "header "
                    : argument.kind == CudaArgument::Kind::kPlan       ? "plan "
                                                                       : "",
                    argument.value);
  }
  return text;
}

TEST(CudaLinearLaunchTest, LaunchesOfAPlan) {
  LinearSpec spec = Spec(6144, 4096);
  spec.residual = true;
  const absl::StatusOr<std::unique_ptr<CudaKernel>> kernel = MakeCudaKernel(spec, kHopper);
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  ASSERT_EQ((*kernel)->entries().size(), 8u);
  EXPECT_EQ((*kernel)->entries()[0].entry, "linear_few_4");
  const struct {
    int64_t rows;
    const char* launch;
  } cases[] = {
      {1, "0 x132: operand 0 operand 1 operand -1 operand 2 operand 3 workspace 0 1 0"},
      {9, "1 x96: map 0 map 1 operand -1 operand 2 operand 3 workspace 0 9 96 6144 4096 0"},
      {64, "3 x96: map 0 map 1 operand -1 operand 2 operand 3 workspace 0 64 96 6144 4096 0"},
      {128, "4 x96: map 0 map 1 operand -1 operand 2 operand 3 workspace 0 128 96 6144 4096 0"},
      {512, "6 x128: map 0 map 1 operand -1 operand 2 operand 3 workspace 0 512 128 6144 4096 0"},
  };
  for (const auto& c : cases) {
    const CudaLaunches launches = (*kernel)->Launches(c.rows);
    ASSERT_EQ(launches.launches.size(), 1u);
    EXPECT_EQ(Describe(launches.launches[0]), c.launch);
  }
  // x's boxes have no more rows than it, in eights.
  const std::pair<int64_t, int> boxes[] = {{9, 16}, {33, 40}, {65, 72}, {96, 96}, {129, 128}};
  for (const auto& [rows, box_rows] : boxes) {
    EXPECT_EQ((*kernel)->Launches(rows).launches[0].tensor_maps[0].box_rows, box_rows) << rows;
  }
  const CudaLaunch many = (*kernel)->Launches(512).launches[0];
  ASSERT_EQ(many.tensor_maps.size(), 2u);
  EXPECT_EQ(many.tensor_maps[0].base.value, 0);
  EXPECT_EQ(many.tensor_maps[0].rows, 512);
  EXPECT_EQ(many.tensor_maps[0].box_rows, 128);
  EXPECT_EQ(many.tensor_maps[1].base.value, 1);
  EXPECT_EQ(many.tensor_maps[1].rows, 6144);
  EXPECT_EQ(many.tensor_maps[1].columns, 4096);
  EXPECT_EQ(many.tensor_maps[1].box_rows, 192);
  spec.k = 68;
  EXPECT_EQ(MakeCudaKernel(spec, kHopper).status().code(), absl::StatusCode::kUnimplemented);
}

// Slots and the first two layers come last; without columns of its own there is no y.
TEST(CudaLinearLaunchTest, LaunchesOfOneThatAppends) {
  LinearSpec spec = Spec(6144, 4096);
  spec.bias = true;
  spec.append = {3, 8, 128, 128, 16};
  const absl::StatusOr<std::unique_ptr<CudaKernel>> all = MakeCudaKernel(spec, kHopper);
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_EQ(Describe((*all)->Launches(1).launches[0]),
            "0 x132: operand 0 operand 1 operand 2 operand -1 operand -1 workspace 0 1 0 slots 0 "
            "operand 3 operand 4");
  EXPECT_EQ(Describe((*all)->Launches(512).launches[0]),
            "6 x128: map 0 map 1 operand 2 operand -1 operand -1 workspace 0 512 128 6144 4096 0 "
            "slots 0 operand 3 operand 4");
  spec.append->layers = 1;
  const absl::StatusOr<std::unique_ptr<CudaKernel>> one = MakeCudaKernel(spec, kHopper);
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_EQ(Describe((*one)->Launches(1).launches[0]),
            "0 x132: operand 0 operand 1 operand 2 operand -1 operand 4 workspace 0 1 0 slots 0 "
            "operand 3 operand 3");
  spec.y = DType::kF32;
  EXPECT_THAT(MakeCudaKernel(spec, kHopper).status().message(),
              HasSubstr("allowed: append with y=f16, bf16"));
}

// Where a library computes sums, a row kernel appends them, and the body the rest, from their rows'
// slots on.
TEST(CudaLinearLaunchTest, ALibrarysSumsAreAppended) {
  LinearSpec spec = Spec(512, 512);
  spec.append = {1, 2, 64, 64, 16};
  const absl::StatusOr<std::unique_ptr<CudaKernel>> kernel =
      MakeCudaKernel(spec, kHopper.Portable());
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  (*kernel)->UseLibrary();
  const std::vector<CudaLaunch> launches = (*kernel)->Launches(1100).launches;
  ASSERT_EQ(launches.size(), 5u);
  const auto slots = [](const CudaLaunch& launch) {
    for (const CudaArgument& argument : launch.arguments) {
      if (argument.kind == CudaArgument::Kind::kTokenSlots) return argument.offset;
    }
    return int64_t{-1};
  };
  EXPECT_EQ(slots(launches[1]), 0);
  EXPECT_EQ(slots(launches[3]), kCudaLibraryRows * 4);
  EXPECT_EQ(slots(launches[4]), 2 * kCudaLibraryRows * 4);
  // y has the first half of the columns.
  EXPECT_EQ(launches[4].arguments[4].offset, 2 * kCudaLibraryRows * 256 * 2);
  EXPECT_THAT(Describe(launches[3]), HasSubstr("operand 2 operand 2 operand 3 slots"));
}

// Turns of a step's rows come once for all launches; they are the last argument.
TEST(CudaLinearLaunchTest, LaunchesOfOneThatTurnsHeads) {
  LinearSpec spec = Spec(6144, 4096);
  spec.append = {1, 8, 128, 128, 16};
  spec.rope = {"theta=500000", DType::kF32};
  const absl::StatusOr<std::unique_ptr<CudaKernel>> kernel = MakeCudaKernel(spec, kHopper);
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  // x, weight, positions, factors, layer, y.
  EXPECT_EQ(Describe((*kernel)->Launches(1).launches[0]),
            "0 x132: operand 0 operand 1 operand -1 operand -1 operand 5 workspace 0 1 0 slots 0 "
            "operand 4 operand 4 plan 0");
  const CudaKernel::Preparation few = (*kernel)->Prepare(2, 2, 9);
  EXPECT_EQ(few.plan_bytes, 2 * 64 * 8);
  ASSERT_EQ(few.launches.size(), 1u);
  const size_t last = (*kernel)->entries().size() - 1;
  EXPECT_EQ(Describe(few.launches[0]),
            absl::StrCat(last, " x1: header 0 operand 2 operand 3 plan 0"));
  EXPECT_EQ((*kernel)->entries()[last].entry, "linear_turns");
  EXPECT_EQ((*kernel)->Prepare(8192, 2, 9).launches[0].grid, 264);
  const CudaRowOrder order = CudaLinearRowOrder(spec);
  EXPECT_EQ(order, (CudaRowOrder{40, 128}));
  EXPECT_EQ(order.RowAt(0), 0);
  EXPECT_EQ(order.RowAt(8), 64);
  EXPECT_EQ(order.RowAt(16 + 3), 8 + 3);
  EXPECT_EQ(order.RowAt(128 + 127), 128 + 127);
  EXPECT_EQ(order.RowAt(40 * 128 + 8), 40 * 128 + 8);
  spec.rope->attributes = "theta=500000,style=interleave";
  EXPECT_EQ(CudaLinearRowOrder(spec), CudaRowOrder());
}

// Where a library computes sums, a kernel of its own turns and appends them.
TEST(CudaLinearLaunchTest, ALibrarysSumsAreTurned) {
  LinearSpec spec = Spec(512, 512);
  spec.append = {1, 2, 64, 64, 16};
  spec.rope = {"theta=10000", std::nullopt};
  const absl::StatusOr<std::unique_ptr<CudaKernel>> kernel =
      MakeCudaKernel(spec, kHopper.Portable());
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  ASSERT_TRUE((*kernel)->LibraryCheck().has_value());
  (*kernel)->UseLibrary();
  const std::vector<CudaLaunch> launches = (*kernel)->Launches(1100).launches;
  ASSERT_EQ(launches.size(), 5u);
  EXPECT_EQ((*kernel)->entries()[launches[1].entry].entry, "linear_finish");
  const CudaLaunch& second = launches[3];
  EXPECT_EQ(second.grid, 128);
  EXPECT_EQ(second.arguments[2].offset, kCudaLibraryRows * 256 * 2);
  EXPECT_EQ(second.arguments[4].offset, kCudaLibraryRows * 4);
  EXPECT_EQ(second.arguments[6].value, kCudaLibraryRows * 32 * 8);
  EXPECT_EQ(launches[4].arguments.back().value, 2 * kCudaLibraryRows * 32 * 8);
}

// f32 without a residual is stored by the texts of 16-bit results, but of the body for few rows.
TEST(CudaLinearLaunchTest, LogitsHaveTextsOfOtherLinears) {
  LinearSpec spec = Spec(32000, 4096);
  spec.y = DType::kF32;
  const auto code = [](const CudaEntry& entry) {
    return entry.source.substr(entry.source.find('\n'));
  };
  const auto logits = MakeCudaKernel(spec, kHopper),
             other = MakeCudaKernel(Spec(4096, 4096), kHopper);
  ASSERT_TRUE(logits.ok() && other.ok());
  int shared = 0;
  for (const CudaEntry& a : (*logits)->entries()) {
    for (const CudaEntry& b : (*other)->entries()) shared += code(a) == code(b) ? 1 : 0;
  }
  EXPECT_EQ((*logits)->entries().size(), 5u);
  EXPECT_EQ(shared, 4);
  EXPECT_EQ(Describe((*logits)->Launches(128).launches[0]),
            "4 x132: map 0 map 1 operand -1 operand -1 operand 2 workspace 0 128 250 32000 4096 1");
  spec.residual = true;
  const auto added = MakeCudaKernel(spec, kHopper);
  ASSERT_TRUE(added.ok());
  EXPECT_EQ((*added)->Launches(128).launches[0].arguments.back().value, 0);
}

// Texts for the most rows of one that appends serve others of the plan, whose slots are null.
TEST(CudaLinearLaunchTest, LinearsTakeTextsOfOneThatAppends) {
  LinearSpec appending = Spec(6144, 4096);
  appending.append = {1, 8, 128, 128, 16};
  appending.rope = {"theta=10000", std::nullopt};
  LinearSpec spec = Spec(4096, 4096);
  spec.residual = true;
  const auto code = [](const CudaEntry& entry) {
    return entry.source.substr(entry.source.find('\n'));
  };
  const auto own = MakeCudaKernel(appending, kHopper),
             other = MakeCudaKernel(spec, kHopper, &appending);
  ASSERT_TRUE(own.ok() && other.ok());
  std::vector<std::string> shared;
  for (const CudaEntry& a : (*own)->entries()) {
    for (const CudaEntry& b : (*other)->entries()) {
      if (code(a) == code(b)) shared.push_back(a.entry);
    }
  }
  EXPECT_THAT(shared, ::testing::ElementsAre("linear_warpgroup_64", "linear_warpgroup_128",
                                             "linear_warpgroup_192", "linear_warpgroup_256"));
  const std::string ends = " operand -1 operand -1 operand -1 operand -1";
  EXPECT_TRUE(absl::EndsWith(Describe((*other)->Launches(4096).launches[0]), ends));
  EXPECT_FALSE(absl::EndsWith(Describe((*other)->Launches(64).launches[0]), ends));
  // Of other types each has its own.
  spec.bias = true;
  const auto apart = MakeCudaKernel(spec, kHopper, &appending);
  ASSERT_TRUE(apart.ok());
  EXPECT_FALSE(absl::EndsWith(Describe((*apart)->Launches(4096).launches[0]), ends));
  EXPECT_THAT((*apart)->entries()[5].source, HasSubstr("kMayAppend = false"));
}

// Few rows: one launch. More: the norm before; between few and many, the activation after.
TEST(CudaLinearLaunchTest, LaunchesOfANormAndAnActivation) {
  LinearSpec spec = FusedSpec();
  spec.bias = true;
  const absl::StatusOr<std::unique_ptr<CudaKernel>> kernel = MakeCudaKernel(spec, kHopper);
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  ASSERT_EQ((*kernel)->entries().size(), 8u);  // no activation by itself: all bodies have it
  EXPECT_THAT((*kernel)->entries()[7].source, HasSubstr("rms_norm"));
  const std::string parameters = " operand 2 operand -1 ";
  const struct {
    int64_t rows;
    std::vector<std::string> launches;
    int64_t workspace_bytes;
  } cases[] = {
      {4,
       {"0 x132: operand 0 operand 1" + parameters +
        "operand 4 workspace 0 4 0 operand 3 operand -1"},
       0},
      {16,
       {"7 x16: operand 0 operand 3 workspace 65536 16",
        "2 x115: map 0 map 1" + parameters + "operand 4 workspace 0 16 115 11008 4096 0"},
       65536 + 16 * 4096 * 2},
      {64,
       {"7 x64: operand 0 operand 3 workspace 65536 64",
        "4 x115: map 0 map 1" + parameters + "operand 4 workspace 0 64 115 11008 4096 0"},
       65536 + 64 * 4096 * 2},
      {128,
       {"7 x128: operand 0 operand 3 workspace 65536 128",
        "5 x115: map 0 map 1" + parameters + "operand 4 workspace 0 128 115 11008 4096 0"},
       65536 + 128 * 4096 * 2},
  };
  for (const auto& c : cases) {
    const CudaLaunches launches = (*kernel)->Launches(c.rows);
    std::vector<std::string> texts;
    for (const CudaLaunch& launch : launches.launches) texts.push_back(Describe(launch));
    EXPECT_EQ(texts, c.launches);
    EXPECT_EQ(launches.workspace_bytes, c.workspace_bytes);
  }
  const CudaLaunch many = (*kernel)->Launches(128).launches[1];
  EXPECT_EQ(many.tensor_maps[0].base.kind, CudaArgument::Kind::kWorkspace);
  EXPECT_EQ(many.tensor_maps[0].base.value, 65536);
  EXPECT_EQ(many.tensor_maps[1].rows, 22016);
  EXPECT_TRUE(many.tensor_maps[1].paired);
  EXPECT_EQ(many.tensor_maps[1].box_rows, 192);
  EXPECT_TRUE((*kernel)->Launches(16).launches[1].tensor_maps[1].paired);
  EXPECT_THAT((*kernel)->entries()[2].source, HasSubstr("whole_tiles, 2 * n, k, 0, y_is_f32}, x,"));
}

// One that is not gated, between few and many rows.
TEST(CudaLinearLaunchTest, AnActivationAfterTheProduct) {
  LinearSpec spec = Spec(12288, 4096);
  spec.act = LinearAct::kGelu;
  const absl::StatusOr<std::unique_ptr<CudaKernel>> kernel = MakeCudaKernel(spec, kHopper);
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  const CudaLaunches launches = (*kernel)->Launches(64);
  ASSERT_EQ(launches.launches.size(), 2u);
  EXPECT_EQ(Describe(launches.launches[0]),
            "4 x128: map 0 map 1 operand -1 operand -1 workspace 65536 workspace 0 64 128 12288 "
            "4096 0");
  EXPECT_EQ(Describe(launches.launches[1]).substr(0, 2), "7 ");
  EXPECT_EQ((*kernel)->Launches(512).launches.size(), 1u);
}

// Weights of blocks: up to 256 rows read them, each tile its own; more read elements that an entry
// of its own leaves in the workspace.
TEST(CudaLinearLaunchTest, LaunchesOfABlockQuantisedWeight) {
  LinearSpec spec = Spec(22016, 4096);
  spec.weight = DType::kQ4_K;
  EXPECT_EQ(Describe(Kernels(spec)),
            "few 8/4/4, few 16/2/4, narrow 64x192/8, narrow 128x128/8, warpgroup 128/6, "
            "warpgroup 192/5, warpgroup 224/4, warpgroup 256/4");
  // Tiles of 64 rows where those for 257 rows go round once, not where those for 128 do.
  for (const auto& [n, has_low] : {std::pair(2816, true), std::pair(2880, false)}) {
    LinearSpec low = Spec(n, 4096);
    low.weight = DType::kQ8_0;
    EXPECT_EQ(absl::StrContains(Describe(Kernels(low)), "warpgroup 64/8"), has_low) << n;
    EXPECT_FALSE(absl::StrContains(Describe(Kernels(low)), "warpgroup 96/7")) << n;
  }
  const absl::StatusOr<std::unique_ptr<CudaKernel>> kernel = MakeCudaKernel(spec, kHopper);
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  const std::string rest = " operand -1 operand -1 operand 2 workspace 0 ";
  const struct {
    int64_t rows;
    std::vector<std::string> launches;
  } cases[] = {
      {3, {"0 x132: operand 0 operand 1" + rest + "3 0"}},
      {30, {"2 x115: map 0 operand 1" + rest + "30 115 22016 4096 0"}},
      {256, {"3 x132: map 0 operand 1" + rest + "256 344 22016 4096 0"}},
      {4096,
       {"8 x1056: operand 1 workspace 65536",
        "7 x132: map 0 map 1" + rest + "4096 2752 22016 4096 0"}},
  };
  for (const auto& c : cases) {
    const CudaLaunches launches = (*kernel)->Launches(c.rows);
    std::vector<std::string> texts;
    for (const CudaLaunch& launch : launches.launches) texts.push_back(Describe(launch));
    EXPECT_EQ(texts, c.launches);
    EXPECT_EQ(launches.workspace_bytes,
              c.rows < 4096 ? 0 : kCudaZeroBytes + int64_t{22016} * 4096 * 2);
  }
  const CudaTensorMap weight = (*kernel)->Launches(4096).launches[1].tensor_maps[1];
  EXPECT_EQ(weight.base.kind, CudaArgument::Kind::kWorkspace);
  EXPECT_EQ(weight.base.value, kCudaZeroBytes);
}

}  // namespace
}  // namespace quire
