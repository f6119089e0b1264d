#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "codegen/cuda/attention.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/codegen/cuda_attention_specs.h"

namespace quire {
namespace {

using attention_testing::Device;
using attention_testing::kAda;
using attention_testing::kAmpere;
using attention_testing::kHopper;
using attention_testing::Make;
using attention_testing::Spec;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(CudaAttentionTest, SourceOfASpec) {
  AttentionSpec spec = Spec(32, 8, 128);
  spec.sinks = true;
  const auto kernel = Make(spec, kHopper.limits);
  ASSERT_EQ(kernel->entries().size(), 4u);
  EXPECT_EQ(kernel->entries()[0].entry, "attention_few");
  EXPECT_EQ(
      kernel->entries()[0].source,
      "// attention hq=32 hkv=8 d=128 dv=128 kv=bf16 page=16 mask=causal window=0 "
      "scale=0.125 cap=0 "
      "alibi=0 x=bf16 sinks=1\n"
      "#include \"e4m3.cuh\"\n"
      "using Element = Bf16;\n"
      "using KvElement = Element;\n"
      "constexpr bool kIsBf16 = true, kKeyScales = false, kValueScales = false;\n"
      "constexpr int kHq = 32, kHkv = 8, kD = 128, kDv = 128, kPageTokens = 16;\n"
      "constexpr bool kCausal = true, kAlibi = false, kSinks = true;\n"
      "constexpr int kWindow = 0, kBiasDistances = 0, kTreeWords = 0;\n"
      "constexpr double kScale = 0.125, kCap = 0;\n"
      "__device__ constexpr float kAlibiSlopes[] = {0};\n"
      "constexpr bool kFew = true;\n"
      "constexpr int kThreads = 128, kManyRows = 128, kStages = 6, kResident = 2, kSharedBytes "
      "= "
      "107600;\n"
      "#include \"attention_few.cuh\"\n"
      "extern \"C\" __global__ void __launch_bounds__(kThreads, kResident)\n"
      "attention_few(const Element* q, const KvElement* layer, const float* sinks, Element* y,\n"
      "    const int* pages, uint8_t* plan) {\n"
      "  Attention::Run({q, layer, nullptr, nullptr, nullptr, sinks, nullptr, y, pages, plan});\n"
      "}\n");
  EXPECT_EQ(kernel->entries()[3].entry, "attention_short");
  EXPECT_EQ(kernel->entries()[3].shared_bytes, 0);
  EXPECT_THAT(kernel->entries()[3].source, HasSubstr("kResident = 2, kSharedBytes = 0;\n"
                                                     "#include \"attention_short.cuh\"\n"));
  EXPECT_THAT(
      kernel->entries()[3].source,
      HasSubstr(
          "  AttentionShort::Run({q, layer, nullptr, nullptr, nullptr, sinks, nullptr, y, pages, "
          "plan});\n"));
  EXPECT_EQ(kernel->entries()[1].entry, "attention_many");
  EXPECT_EQ(kernel->entries()[1].block_threads, 384);
  EXPECT_THAT(kernel->entries()[1].source,
              HasSubstr("#include \"attention_warpgroup.cuh\"\n"
                        "extern \"C\" __global__ void __launch_bounds__(kThreads, kResident)\n"
                        "attention_many(const __grid_constant__ TensorMap layer_map, "
                        "const __grid_constant__ TensorMap query_map, const Element* q, const "
                        "KvElement* layer, const float* sinks, Element* y,\n"
                        "    const int* pages, uint8_t* plan) {\n"
                        "  AttentionWarpgroup::Run({q, layer, nullptr, nullptr, nullptr, sinks, "
                        "nullptr, y, pages, plan}, layer_map, query_map);\n"));
  EXPECT_EQ(kernel->entries()[2].entry, "attention_plan");
}

TEST(CudaAttentionTest, KeysAndValuesInBytes) {
  AttentionSpec spec = Spec(32, 8, 128);
  spec.kv = DType::kF8E4M3, spec.k_scale = spec.v_scale = true;
  const auto kernel = Make(spec, kHopper.limits);
  for (const CudaEntry& entry : kernel->entries()) {
    EXPECT_THAT(entry.source, HasSubstr("using KvElement = E4m3;\nconstexpr bool kIsBf16 = true, "
                                        "kKeyScales = true, kValueScales = true;\n"));
  }
  EXPECT_THAT(kernel->entries()[0].source,
              HasSubstr("const KvElement* layer, const float* key_scales, "
                        "const float* value_scales, Element* y,"));
  // q, layer, scales, y, pages, plan
  EXPECT_EQ(kernel->Launches(1).launches[0].arguments.size(), 7u);
  // Tensor copies take two bytes for an element.
  EXPECT_THAT(kernel->entries()[1].source, HasSubstr("#include \"attention_warpgroup.cuh\""));
  const CudaTensorMap& map = kernel->Launches(99).launches[0].tensor_maps[0];
  EXPECT_EQ(map.columns, 64);
  EXPECT_FALSE(map.grouped);
  // Of wide heads, tiles of many rows are summed by warps.
  spec.d = spec.dv = 256;
  EXPECT_THAT(Make(spec, kHopper.limits)->entries()[1].source,
              HasSubstr("#include \"attention_body.cuh\""));
  spec.d = spec.dv = 72;
  EXPECT_EQ(MakeCudaAttention(spec, kHopper.limits).status().code(),
            absl::StatusCode::kUnimplemented);
}

// The device unrolls the table when it loads it: the kernel's table is by distance.
TEST(CudaAttentionTest, BiasesByBucketsAreReadByDistance) {
  AttentionSpec spec = Spec(4, 4, 64);
  spec.buckets = 32, spec.max_distance = 128;
  for (const bool causal : {true, false}) {
    spec.causal = causal, spec.both_directions = !causal;
    const auto kernel = Make(spec, kHopper.limits);
    const std::string& source = kernel->entries()[0].source;
    EXPECT_THAT(source, HasSubstr(causal ? "kBiasDistances = 129," : "kBiasDistances = 257,"));
    EXPECT_THAT(source, HasSubstr("const float* bias, Element* y"));
    EXPECT_THAT(source, HasSubstr(" buckets=32 distance=128 direction="));
    // q, layer, bias, y, pages, plan
    EXPECT_EQ(kernel->Launches(1).launches[0].arguments.size(), 6u);
  }
  spec.causal = true, spec.tree_words = 1;
  EXPECT_EQ(MakeCudaAttention(spec, kHopper.limits).status().code(),
            absl::StatusCode::kUnimplemented);
}

// Launches say nothing of the batch but its bucket, and which sequences they have work for.
TEST(CudaAttentionTest, LaunchesAndPlanOfAStep) {
  AttentionSpec spec = Spec(32, 8, 128);
  spec.bias_distances = 128;
  spec.tree_words = 1;
  spec.bias_distances = 0;
  const auto kernel = Make(spec, kHopper.limits);
  const CudaLaunches step = kernel->Launches(8);
  ASSERT_EQ(step.launches.size(), 2u);  // 8 rows of 4 heads are few
  const std::vector<CudaLaunch> launches = kernel->Launches(9).launches;
  ASSERT_EQ(launches.size(), 3u);
  EXPECT_EQ(launches[0].grid, 132);
  // Of sequences of so many rows and tokens.
  const auto have_work = [&](int64_t rows, int64_t tokens) {
    std::vector<bool> have;
    for (const CudaLaunch& launch : launches) have.push_back(launch.work.HasWork(rows, tokens));
    return have;
  };
  EXPECT_THAT(have_work(8, 65), ElementsAre(false, true, false));
  EXPECT_THAT(have_work(8, 64), ElementsAre(false, false, true));
  EXPECT_THAT(have_work(8, 0), ElementsAre(false, false, true));
  EXPECT_THAT(have_work(9, 9), ElementsAre(true, false, false));
  EXPECT_EQ(step.launches[0].grid, 264);
  EXPECT_EQ(step.workspace_bytes, 0);
  using Kind = CudaArgument::Kind;
  // Keys and values of all pages, 16 tokens at a time.
  const CudaLaunch& many = launches[0];
  ASSERT_EQ(many.tensor_maps.size(), 2u);
  EXPECT_EQ(many.arguments[0].kind, Kind::kTensorMap);
  EXPECT_EQ(many.tensor_maps[0].base.value, 1);
  EXPECT_EQ(many.tensor_maps[0].columns, 128);
  EXPECT_EQ(many.tensor_maps[0].box_rows, 16);
  EXPECT_TRUE(many.tensor_maps[0].grouped);
  // q of the step's nine rows: 64 at a time, the four heads of sixteen tokens.
  EXPECT_EQ(many.arguments[1].kind, Kind::kTensorMap);
  EXPECT_EQ(many.tensor_maps[1].base.value, 0);
  EXPECT_EQ(many.tensor_maps[1].rows, 9 * 32);
  EXPECT_EQ(many.tensor_maps[1].block_rows, 32);
  EXPECT_EQ(many.tensor_maps[1].box_rows, 64);
  EXPECT_EQ(many.tensor_maps[1].box_block_rows, 4);
  // Wide heads' contexts have one entry, short or long.
  const auto wide = Make(Spec(8, 8, 192), kHopper.limits);
  EXPECT_EQ(wide->entries().size(), 3u);
  ASSERT_EQ(wide->Launches(64).launches.size(), 2u);
  EXPECT_TRUE(wide->Launches(64).launches[1].work.HasWork(1, 1));
  const std::vector<CudaArgument>& arguments = step.launches[0].arguments;
  ASSERT_EQ(arguments.size(), 6u);  // q, layer, tree, y, pages, plan
  EXPECT_EQ(arguments[3].kind, Kind::kOperand);
  EXPECT_EQ(arguments[3].value, 3);
  EXPECT_EQ(arguments[4].kind, Kind::kPages);
  EXPECT_EQ(arguments[5].kind, Kind::kPlan);
  const CudaKernel::Preparation preparation = kernel->Prepare(128, 16, 4096);
  ASSERT_EQ(preparation.launches.size(), 1u);
  EXPECT_EQ(preparation.launches[0].grid, 1);
  // 264 blocks, 32 + 20 tiles, 32 x 8 pairs and a ticket, 2 x 272 x 8 chunks of 16 rows.
  EXPECT_EQ(preparation.plan_bytes, 48 + 264 * 112 + (32 + 20) * 48 + 1040 + 4352 * 16 * 132 * 4);
}

// More heads a group than a warp has rows: one block of eight warps, of four where rings would be
// too short.
TEST(CudaAttentionTest, WarpsOfManyHeadsAGroup) {
  const auto threads = [](const AttentionSpec& spec, const Device& device) {
    const auto kernel = Make(spec, device.limits);
    EXPECT_EQ(kernel->entries()[2].block_threads, kernel->entries()[0].block_threads);
    return kernel->entries()[0].block_threads;
  };
  EXPECT_EQ(threads(Spec(16, 1, 128), kHopper), 128);
  EXPECT_EQ(threads(Spec(17, 1, 128), kHopper), 256);
  EXPECT_EQ(threads(Spec(9, 1, 256), kHopper), 256);
  EXPECT_EQ(threads(Spec(32, 1, 128), kAda), 256);
  EXPECT_EQ(threads(Spec(32, 1, 256), kAda), 128);
}

// Elsewhere the body of warps serves.
TEST(CudaAttentionTest, WarpgroupsWhereTheyFit) {
  const auto threads = [](const AttentionSpec& spec, const Device& device) {
    return Make(spec, device.limits)->entries()[1].block_threads;
  };
  EXPECT_EQ(threads(Spec(8, 2, 64, DType::kF16, 8), kHopper), 384);
  EXPECT_EQ(threads(Spec(8, 2, 128, DType::kBF16, 24), kHopper), 384);
  EXPECT_EQ(threads(Spec(8, 2, 128), kAmpere), 256);
  EXPECT_EQ(threads(Spec(8, 2, 128, DType::kBF16, 12), kHopper), 256);
  EXPECT_EQ(threads(Spec(8, 2, 80), kHopper), 384);
  EXPECT_EQ(threads(Spec(8, 2, 8), kHopper), 384);
  EXPECT_EQ(threads(Spec(8, 2, 192), kHopper), 384);
  EXPECT_EQ(threads(Spec(8, 2, 256, DType::kF16, 8), kHopper), 384);
  EXPECT_EQ(threads(Spec(8, 2, 136), kHopper), 256);
  EXPECT_EQ(threads(Spec(8, 2, 256, DType::kBF16, 12), kHopper), 256);
  AttentionSpec spec = Spec(8, 2, 128);
  spec.dv = 64;
  EXPECT_EQ(threads(spec, kHopper), 256);
  // Whole tokens of q come by tensor copies, others do not.
  EXPECT_EQ(Make(Spec(8, 2, 128), kHopper.limits)->Launches(99).launches[0].tensor_maps.size(), 2u);
  EXPECT_EQ(Make(Spec(6, 2, 128), kHopper.limits)->Launches(99).launches[0].tensor_maps.size(), 1u);
}

TEST(CudaAttentionTest, EveryHeadSizeFitsEveryDevice) {
  for (const Device& device : {kAmpere, kAda, kHopper}) {
    for (int64_t d = 8; d <= 256; d += 8) {
      for (int64_t dv : {d, 8l, 128l, 256l}) {
        AttentionSpec spec = Spec(71, 1, d);
        spec.dv = dv;
        const auto kernel = Make(spec, device.limits);
        ASSERT_NE(kernel, nullptr);
        EXPECT_LE(kernel->entries()[0].shared_bytes, device.limits.shared_bytes);
      }
    }
  }
}

TEST(CudaAttentionTest, RefusesWhatNoKernelComputes) {
  std::vector<AttentionSpec> specs(7, Spec(8, 2, 64));
  specs[0].kv = DType::kF32;
  specs[1].x = DType::kF32;
  specs[2].d = 264;
  specs[3].dv = 12;
  specs[4].hkv = 3;
  specs[5].page_tokens = int64_t{1} << 40;
  specs[6].tree_words = 1, specs[6].window = 7;
  for (const AttentionSpec& spec : specs) {
    const absl::Status status = MakeCudaAttention(spec, kHopper.limits).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << SpecText(spec);
    EXPECT_THAT(std::string(status.message()), HasSubstr("allowed: "));
  }
  EXPECT_EQ(MakeCudaAttention(Spec(8, 2, 256), {9, 0, 48 * 1024, 60}).status().code(),
            absl::StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace quire
