#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "codegen/cuda/linear.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/codegen/cuda_linear_specs.h"

namespace quire {
namespace {

using testing::Device;
using testing::FusedSpec;
using ::testing::HasSubstr;
using testing::kAda;
using testing::kDevices;
using testing::Kernels;
using testing::kHopper;
using testing::Spec;

TEST(CudaLinearTest, SourceOfASpec) {
  LinearSpec spec = Spec(6144, 4096);
  spec.y = DType::kF32;
  spec.residual = true;
  const CudaLinearKernel kernel = MakeCudaLinearKernel(spec, {CudaLinearConfig::kFew, 8, 2, 8, 16});
  EXPECT_EQ(
      kernel.source,
      "// linear n=6144 k=4096 w=bf16 x=bf16 y=f32 bias=0 residual=1 layout=rows\n"
      "#include \"prelude.cuh\"\n"
      "using Element = Bf16;\n"
      "using Output = F32;\n"
      "constexpr int kGrain = 16, kSharedBytes = 201872;\n"
      "constexpr bool kHasBias = false, kHasResidual = true, kWholeStages = true, "
      "kWeightIsWritten = false;\n"
      "constexpr int kN = 6144, kK = 4096;\n"
      "constexpr bool kHasAct = false, kGated = false;\n"
      "DEVICE float Act(float x) { return x; }\n"
      "#include \"linear_few.cuh\"\n"
      "using Body = LinearFew<8, 2, 8>;\n"
      "static_assert(Body::kThreads == 256);\n"
      "extern \"C\" __global__ void __launch_bounds__(Body::kThreads, 1)\n"
      "linear_few_8(const Element* x, const Element* weight, const float* bias,\n"
      "    const Output* residual, Output* y, uint8_t* workspace, int rows, int first_row) {\n"
      "  Body::Run({x, weight, bias, residual, y, workspace, rows, 0, kN, kK, first_row});\n"
      "}\n");
  EXPECT_EQ(kernel.entry, "linear_few_8");
  EXPECT_EQ(kernel.block_threads, 256);
  EXPECT_EQ(kernel.shared_bytes, 201872);
}

TEST(CudaLinearTest, SourceOfANormAndAnActivation) {
  const CudaLinearKernel kernel = Kernels(FusedSpec())[0];
  for (const char* text :
       {"norm_w=f16 norm_b=none act=silu gated=1\n#include \"prelude.cuh\"\n#include "
        "\"math.cuh\"\n",
        "constexpr int kN = 11008, kK = 4096;\n",
        "constexpr bool kHasAct = true, kGated = true;\n"
        "DEVICE float Act(float x) { return Silu(x); }\n"
        "using NormWeight = F16;\nusing NormBias = F32;\n"
        "constexpr bool kNormHasWeight = true, kNormHasBias = false, kNormCentres = false;\n"
        "constexpr float kNormPerElement = 0.000244140625f, kNormEps = 9.99999975e-06f, "
        "kNormOffset = 0.0f;\n"
        "#include \"linear_norm.cuh\"\n#include \"linear_few.cuh\"\n"
        "using Body = LinearFew<4, 2, 11, NormedRows>;\n",
        "int rows, int first_row,\n    const void* norm_weight, const void* norm_bias) "
        "{\n"}) {
    EXPECT_THAT(kernel.source, HasSubstr(text));
  }
  // Sums of 16 groups of chunks and of all, of elements and of squares, of four rows.
  EXPECT_EQ(kernel.shared_bytes, Kernels(Spec(22016, 4096))[0].shared_bytes + 2 * 4 * 17 * 4);
}

// A text for many rows has neither n nor k, and a residual that may be absent.
TEST(CudaLinearTest, LinearsOfTheSameTypesShareTheirKernelsForManyRows) {
  const auto sources = [](const LinearSpec& spec) {
    std::vector<std::string> texts;
    for (const CudaLinearKernel& kernel : Kernels(spec)) {
      if (kernel.config.rows >= 64) texts.push_back(kernel.source);
    }
    return texts;
  };
  const std::vector<std::string> shared = sources(Spec(4096, 11008));
  EXPECT_EQ(shared.size(), 5u);
  EXPECT_EQ(shared, sources(Spec(4104, 11008)));
  LinearSpec with_residual = Spec(4096, 11008);
  with_residual.residual = true;
  EXPECT_EQ(shared, sources(with_residual));
  LinearSpec normed = FusedSpec();
  normed.act = LinearAct::kNone;
  normed.gated = false;
  EXPECT_EQ(sources(Spec(11008, 4096)), sources(normed));
  // What decides on code is in the text: parts that end within a stage, rows of y that begin at any
  // byte, an activation, types, a bias.
  std::vector<LinearSpec> others(5, Spec(4096, 11008));
  others[0].k = 576;
  others[1].n = 4097;
  others[2].act = LinearAct::kSilu;
  others[3].y = DType::kF32;
  others[4].bias = true;
  for (const LinearSpec& other : others) EXPECT_NE(shared, sources(other)) << SpecText(other);
}

std::string Describe(const std::vector<CudaLinearKernel>& kernels) {
  std::string text;
  for (const CudaLinearKernel& kernel : kernels) {
    const CudaLinearConfig& config = kernel.config;
    absl::StrAppend(&text, text.empty() ? "" : ", ");
    if (config.body == CudaLinearConfig::kWarpgroup) {
      absl::StrAppend(&text, "warpgroup ", config.tile_rows, "/", config.stages);
    } else if (config.body == CudaLinearConfig::kNarrow) {
      absl::StrAppend(&text, "narrow ", config.rows, "x", config.tile_rows, "/", config.stages);
    } else {
      absl::StrAppend(&text, config.body == CudaLinearConfig::kFew ? "few " : "tile ", config.rows,
                      "/", config.groups, "/", config.stages);
    }
  }
  return text;
}

// The height of narrow tiles: parts of 32 tiles that go round once; one round, or what is left.
TEST(CudaLinearTest, NarrowTilesGoRoundOnce) {
  const std::pair<int64_t, int> cases[] = {{1024, 128}, {4096, 128},  {6144, 64},   {8192, 64},
                                           {12288, 96}, {22016, 192}, {32000, 128}, {128256, 128}};
  for (const auto& [n, tile_rows] : cases) {
    const std::vector<CudaLinearKernel> kernels = Kernels(Spec(n, 4096));
    EXPECT_EQ(kernels[2].config.body, CudaLinearConfig::kNarrow);
    EXPECT_EQ(kernels[2].config.tile_rows, tile_rows) << n;
  }
  const struct {
    int64_t n, rows;
    int grid, whole_tiles;
  } launches[] = {{4096, 16, 128, 0},     // 128 parts
                  {6144, 64, 96, 96},     //
                  {12288, 32, 128, 128},  //
                  {22016, 64, 115, 115},  //
                  {4096, 128, 128, 0},    // 128 halves
                  {6144, 128, 96, 96},    //
                  {32000, 64, 132, 250}};
  for (const auto& c : launches) {
    const LinearSpec spec = Spec(c.n, 4096);
    const std::vector<CudaLinearKernel> kernels = Kernels(spec);
    const CudaLinearKernel& kernel = kernels[ChooseCudaLinear(spec, kernels, c.rows, 132)];
    EXPECT_EQ(kernel.config.rows, c.rows);
    const CudaLinearLaunch launch = PlanCudaLinear(spec, kernel, c.rows, 132);
    EXPECT_EQ(launch.grid, c.grid) << c.n;
    EXPECT_EQ(launch.whole_tiles, c.whole_tiles) << c.n;
  }
}

// x of few rows stays in shared memory beside the ring: long k leave room for fewer rows, then
// none.
TEST(CudaLinearTest, ConfigurationsByLengthOfRowsAndDevice) {
  const std::string acting = ", warpgroup 192/5";
  const std::string many = ", warpgroup 128/6, warpgroup 192/5, warpgroup 256/4";
  const std::string rest =
      "narrow 16x96/15, narrow 32x96/13, narrow 64x96/10, warpgroup 96/7" + many;
  EXPECT_EQ(Describe(Kernels(Spec(12288, 4096))), "few 4/2/11, " + rest);
  EXPECT_EQ(Describe(Kernels(Spec(12288, 11008))), "few 2/2/11, " + rest);
  EXPECT_EQ(Describe(Kernels(Spec(12288, 14336))), "few 2/2/10, " + rest);
  EXPECT_EQ(Describe(Kernels(Spec(12288, 131072))), rest);
  // A gated activation in the body that has the product; another one not in narrow tiles.
  EXPECT_EQ(Describe(Kernels(FusedSpec())),
            "few 4/2/11, few 8/2/9, narrow 16x192/8, narrow 32x192/7, narrow 64x192/6" + acting);
  LinearSpec act = FusedSpec();
  act.gated = false;
  EXPECT_EQ(Describe(Kernels(act)),
            "few 4/2/11, few 8/2/9, few 16/2/5, narrow 32x96/13, narrow 64x96/10, warpgroup 96/7" +
                acting);
  // Parts that end within a stage.
  EXPECT_EQ(Describe(Kernels(Spec(12288, 576))),
            "few 4/2/12, few 8/2/12, few 16/2/12, tile 32/1/10, tile 64/2/8, tile 128/2/6");
  EXPECT_EQ(Describe(Kernels(Spec(12288, 4096), kAda)),
            "few 4/2/3, tile 16/1/5, tile 32/1/4, tile 64/2/4, tile 128/2/3");
}

TEST(CudaLinearTest, ConfigurationsFitTheirDevice) {
  for (const Device& device : kDevices) {
    for (int64_t k : {16, 80, 576, 4096, 11008, 14336, 28672, 53248}) {
      int64_t rows = 0;
      for (const CudaLinearKernel& kernel : Kernels(Spec(4096, k), device.limits)) {
        EXPECT_LE(kernel.shared_bytes, device.limits.shared_bytes) << kernel.source;
        EXPECT_GE(kernel.max_rows, rows);
        rows = kernel.max_rows;
      }
      EXPECT_GE(rows, 1 << 20);
    }
  }
}

TEST(CudaLinearTest, AFewRowLaunchGivesEveryBlockWork) {
  const LinearSpec spec = Spec(4096, 4096);
  const CudaLinearLaunch launch = PlanCudaLinear(spec, Kernels(spec)[0], 8, 132);
  EXPECT_EQ(launch.grid, 128);  // 256 tiles of 16 rows for groups in twos
  EXPECT_EQ(launch.workspace_bytes, 0);
}

struct Plan {
  int64_t n;
  int tokens, rows;
  int grid, whole_tiles;
  int64_t cut_tiles;
};

// Each row is the better one of those measured on an H200 (tools/bench/cuda_linear.py).
TEST(CudaLinearTest, TilesAreCutWhereThatShortensTheLongestBlock) {
  for (const Plan& plan : {
           Plan{4096, 64, 64, 128, 0, 32},       // 128 parts, one each
           Plan{6144, 64, 64, 132, 0, 48},       // 192 parts, two each at most
           Plan{12288, 64, 64, 96, 96, 0},       // three parts each are no gain on a tile
           Plan{22016, 64, 64, 132, 132, 40},    // one tile each, and parts of 40 others
           Plan{28672, 64, 64, 132, 224, 0},     //
           Plan{4096, 128, 512, 128, 128, 0},    //
           Plan{6144, 128, 512, 132, 132, 60},   //
           Plan{22016, 128, 512, 132, 660, 28},  //
           Plan{12288, 128, 512, 132, 384, 0},
       }) {
    const LinearSpec spec = Spec(plan.n, 4096);
    const CudaLinearKernel kernel = MakeCudaLinearKernel(
        spec, {CudaLinearConfig::kTile, plan.tokens, 2, plan.tokens == 64 ? 8 : 6});
    const CudaLinearLaunch launch = PlanCudaLinear(spec, kernel, plan.rows, 132);
    EXPECT_EQ(launch.grid, plan.grid) << plan.n << " " << plan.rows;
    EXPECT_EQ(launch.whole_tiles, plan.whole_tiles) << plan.n << " " << plan.rows;
    EXPECT_EQ(
        launch.workspace_bytes,
        plan.cut_tiles == 0 ? 0 : kCudaZeroBytes + plan.cut_tiles * 4 * plan.tokens * 128 * 4);
  }
}

TEST(CudaLinearTest, ShortPartsAreNotCut) {
  const LinearSpec spec = Spec(6144, 256);  // parts of one stage
  const CudaLinearKernel kernel = MakeCudaLinearKernel(spec, {CudaLinearConfig::kTile, 64, 2, 8});
  EXPECT_EQ(PlanCudaLinear(spec, kernel, 64, 132).whole_tiles, 48);
}

TEST(CudaLinearTest, RefusesWhatNoKernelComputes) {
  std::vector<LinearSpec> specs(7, Spec(64, 64));
  specs[0].k = 68;
  specs[1].weight = DType::kF32;
  specs[2].x = DType::kF32;
  specs[3].layout = WeightLayout::kRows16;
  specs[4].k = int64_t{1} << 30;
  specs[5].n = int64_t{1} << 40;
  specs[6].act = LinearAct::kRelu;
  specs[6].residual = true;
  for (const LinearSpec& spec : specs) {
    EXPECT_EQ(CudaLinearKernels(spec, kHopper).status().code(), absl::StatusCode::kUnimplemented)
        << SpecText(spec);
  }
  EXPECT_EQ(CudaLinearKernels(Spec(64, 64), {8, 6, 48 * 1024, 60}).status().code(),
            absl::StatusCode::kUnimplemented);
}

TEST(CudaLinearTest, WarpgroupsTileByTheRoundsThatTilesTake) {
  const struct {
    int64_t n, k, rows;
    int tile_rows;
    int64_t tiles, whole_tiles;
  } cases[] = {
      {4096, 11008, 128, 64, 64, 0},      // 128 halves, one each
      {6144, 4096, 128, 64, 96, 96},      // one round
      {12288, 4096, 128, 96, 128, 128},   // one round
      {22016, 4096, 128, 192, 115, 115},  // one round
      {12288, 4096, 512, 192, 256, 256},  // two rounds
      {22016, 4096, 512, 192, 460, 396},  // three rounds, and halves of 64 tiles
      {4096, 4096, 512, 128, 128, 128},   // one round
      {4096, 11008, 4096, 256, 512, 512},
      {12288, 4096, 4096, 256, 1536, 1536},
      {12288, 4096, 16384, 256, 6144, 6144},
      {1024, 1024, 945, 64, 128, 128},  // one round, which is sooner stored than one of 64 tiles
      {1024, 4096, 945, 128, 64, 0},    // 128 halves, whose products take longer than their store
  };
  for (const auto& c : cases) {
    const LinearSpec spec = Spec(c.n, c.k);
    const std::vector<CudaLinearKernel> kernels = Kernels(spec);
    const CudaLinearKernel& kernel = kernels[ChooseCudaLinear(spec, kernels, c.rows, 132)];
    EXPECT_EQ(kernel.config.tile_rows, c.tile_rows) << c.n << " " << c.k << " " << c.rows;
    EXPECT_EQ(CudaLinearTiles(spec, kernel, c.rows), c.tiles);
    EXPECT_EQ(PlanCudaLinear(spec, kernel, c.rows, 132).whole_tiles, c.whole_tiles)
        << c.n << " " << c.k << " " << c.rows;
  }
}

std::string Describe(const CudaLaunch& launch) {
  std::string text = absl::StrCat(launch.entry, " x", launch.grid, ":");
  for (const CudaArgument& argument : launch.arguments) {
    absl::StrAppend(&text, " ",
                    argument.kind == CudaArgument::Kind::kOperand     ? "operand "
                    : argument.kind == CudaArgument::Kind::kWorkspace ? "workspace "
                    : argument.kind == CudaArgument::Kind::kTensorMap ? "map "
                                                                      : "",
                    argument.value);
  }
  return text;
}

TEST(CudaLinearTest, LaunchesOfAPlan) {
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
      {9, "1 x96: map 0 map 1 operand -1 operand 2 operand 3 workspace 0 9 96 6144 4096"},
      {64, "3 x96: map 0 map 1 operand -1 operand 2 operand 3 workspace 0 64 96 6144 4096"},
      {128, "4 x96: map 0 map 1 operand -1 operand 2 operand 3 workspace 0 128 96 6144 4096"},
      {512, "6 x128: map 0 map 1 operand -1 operand 2 operand 3 workspace 0 512 128 6144 4096"},
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

// Few rows: one launch. More: the norm before; between few and many, the activation after.
TEST(CudaLinearTest, LaunchesOfANormAndAnActivation) {
  LinearSpec spec = FusedSpec();
  spec.bias = true;
  const absl::StatusOr<std::unique_ptr<CudaKernel>> kernel = MakeCudaKernel(spec, kHopper);
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  ASSERT_EQ((*kernel)->entries().size(), 7u);  // no activation by itself: all bodies have it
  EXPECT_THAT((*kernel)->entries()[6].source, HasSubstr("rms_norm"));
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
       {"6 x16: operand 0 operand 3 workspace 65536 16",
        "2 x115: map 0 map 1" + parameters + "operand 4 workspace 0 16 115 11008 4096"},
       65536 + 16 * 4096 * 2},
      {64,
       {"6 x64: operand 0 operand 3 workspace 65536 64",
        "4 x115: map 0 map 1" + parameters + "operand 4 workspace 0 64 115 11008 4096"},
       65536 + 64 * 4096 * 2},
      {128,
       {"6 x128: operand 0 operand 3 workspace 65536 128",
        "5 x115: map 0 map 1" + parameters + "operand 4 workspace 0 128 115 11008 4096"},
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
  EXPECT_THAT((*kernel)->entries()[2].source, HasSubstr("whole_tiles, 2 * n, k}, x,"));
}

// One that is not gated, between few and many rows.
TEST(CudaLinearTest, AnActivationAfterTheProduct) {
  LinearSpec spec = Spec(12288, 4096);
  spec.act = LinearAct::kGelu;
  const absl::StatusOr<std::unique_ptr<CudaKernel>> kernel = MakeCudaKernel(spec, kHopper);
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  const CudaLaunches launches = (*kernel)->Launches(64);
  ASSERT_EQ(launches.launches.size(), 2u);
  EXPECT_EQ(Describe(launches.launches[0]),
            "4 x128: map 0 map 1 operand -1 operand -1 workspace 65536 workspace 0 64 128 12288 "
            "4096");
  EXPECT_EQ(Describe(launches.launches[1]).substr(0, 2), "7 ");
  EXPECT_EQ((*kernel)->Launches(512).launches.size(), 1u);
}

// Weights of blocks: up to 256 rows read them, each tile its own; more read elements that an entry
// of its own leaves in the workspace.
TEST(CudaLinearTest, LaunchesOfABlockQuantisedWeight) {
  LinearSpec spec = Spec(22016, 4096);
  spec.weight = DType::kQ4_K;
  EXPECT_EQ(Describe(Kernels(spec)),
            "few 8/4/4, few 16/2/4, narrow 64x192/8, narrow 128x128/8, warpgroup 128/6, "
            "warpgroup 192/5, warpgroup 256/4");
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
      {30, {"2 x115: map 0 operand 1" + rest + "30 115 22016 4096"}},
      {256, {"3 x132: map 0 operand 1" + rest + "256 344 22016 4096"}},
      {4096,
       {"7 x1056: operand 1 workspace 65536",
        "6 x132: map 0 map 1" + rest + "4096 2752 22016 4096"}},
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

TEST(CudaLinearTest, SumsFourPartsFromLeftToRight) {
  // Steps per part of 9: 2, 2, 2, 3. Each step's products sum to a power of two of its own.
  std::vector<uint16_t> x(144), w(144, F32ToBF16(1));
  const float big = 16777216;  // 2^24: adding 1 to it in f32 is lost
  x[0] = F32ToBF16(1);
  x[2 * 16] = F32ToBF16(big);
  x[4 * 16] = F32ToBF16(-big);
  x[6 * 16] = F32ToBF16(3);
  EXPECT_EQ(CudaLinearSum(DType::kBF16, x.data(), w.data(), 144), 3);  // ((1 + big) - big) + 3
  x[0] = F32ToBF16(0);
  x[5 * 16] = F32ToBF16(1);  // inside the third part's chain: -big + 1 is exact
  EXPECT_EQ(CudaLinearSum(DType::kBF16, x.data(), w.data(), 144), 4);
}

}  // namespace
}  // namespace quire
