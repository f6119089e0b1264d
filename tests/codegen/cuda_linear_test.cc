#include <string>
#include <vector>

#include "codegen/cuda/linear.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/codegen/cuda_linear_specs.h"

namespace quire {
namespace {

using testing::Describe;
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
      "constexpr int kAppendLayers = 0, kKvHeads = 1, kKeyDim = 8, kValueDim = 8, "
      "kPageTokens = 1, kPairDistance = 0;\n"
      "constexpr bool kMayAppend = false;\n"
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
            "few 4/2/11, few 8/2/9, narrow 16x192/8, narrow 32x192/7, narrow 64x192/6" + acting +
                ", warpgroup 224/4");
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
      {22016, 4096, 512, 224, 396, 396},  // three rounds
      {28672, 4096, 512, 128, 896, 896},  // seven rounds
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
