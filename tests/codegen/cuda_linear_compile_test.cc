// Linear kernels as NVRTC compiles them.
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "codegen/cuda/linear.h"
#include "codegen/cuda/nvrtc.h"
#include "codegen/cuda/source.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/codegen/cuda_compile.h"
#include "tests/codegen/cuda_linear_specs.h"

namespace quire {
namespace {

using testing::Device;
using testing::FusedSpec;
using ::testing::HasSubstr;
using testing::kDevices;
using testing::Kernels;
using testing::kHopper;
using ::testing::Not;
using testing::Spec;

void ExpectNoSpills(const Nvrtc& nvrtc, const CudaEntry& entry, const char* architecture) {
  const absl::StatusOr<CudaBinary> binary =
      nvrtc.Compile(entry.entry + ".cu", entry.source, architecture, CudaKernelHeaders());
  ASSERT_TRUE(binary.ok()) << binary.status();
  const std::vector<KernelResources> resources = ParseResources(binary->log);
  ASSERT_EQ(resources.size(), 1u);
  EXPECT_EQ(resources[0].name, entry.entry);
  EXPECT_GT(resources[0].registers, 0);
  EXPECT_EQ(resources[0].stack_bytes, 0) << entry.source << architecture;
  EXPECT_EQ(resources[0].spill_store_bytes, 0) << entry.source << architecture;
  EXPECT_LE(resources[0].registers * entry.block_threads, 65536);
  // A warpgroup's products run one after another.
  EXPECT_THAT(binary->log, Not(HasSubstr("C75"))) << entry.source;
}

// All entries of a plan's kernel, for each device.
void ExpectNoSpillsOf(const Nvrtc& nvrtc, const LinearSpec& spec) {
  for (const Device& device : kDevices) {
    const auto kernel = MakeCudaKernel(spec, device.limits);
    ASSERT_TRUE(kernel.ok()) << kernel.status();
    for (const CudaEntry& entry : (*kernel)->entries()) {
      ExpectNoSpills(nvrtc, entry, device.architecture);
    }
  }
}

TEST(CudaLinearCompileTest, EveryConfigurationCompilesWithoutSpills) {
  const absl::StatusOr<const Nvrtc*> nvrtc = Nvrtc::Get();
  if (absl::IsUnavailable(nvrtc.status())) GTEST_SKIP() << nvrtc.status();
  ASSERT_TRUE(nvrtc.ok()) << nvrtc.status();
  std::vector<LinearSpec> specs = {Spec(4096, 14336), Spec(960, 576, DType::kF16), Spec(43, 208)};
  specs[0].residual = true;
  specs[1].bias = true;
  specs[1].y = DType::kF32;
  specs[2].bias = specs[2].residual = true;
  for (const LinearSpec& spec : specs) ExpectNoSpillsOf(**nvrtc, spec);
}

TEST(CudaLinearCompileTest, NormsAndActivationsCompileWithoutSpills) {
  const absl::StatusOr<const Nvrtc*> nvrtc = Nvrtc::Get();
  if (absl::IsUnavailable(nvrtc.status())) GTEST_SKIP() << nvrtc.status();
  ASSERT_TRUE(nvrtc.ok()) << nvrtc.status();
  std::vector<LinearSpec> specs(3, FusedSpec());
  specs[1] = Spec(43, 2120, DType::kF16);
  specs[1].norm = {NormSpec::Kind::kLayer, 0.5, 0, DType::kF32, DType::kBF16};
  specs[1].act = LinearAct::kGelu;
  specs[2].weight = DType::kQ4_0;
  for (const LinearSpec& spec : specs) {
    for (const Device& device : kDevices) {
      for (const CudaLinearKernel& kernel : Kernels(spec, device.limits)) {
        if (!kernel.config.norm && !kernel.config.act) continue;
        ExpectNoSpills(**nvrtc, {kernel.entry, kernel.source, kernel.block_threads},
                       device.architecture);
      }
    }
  }
}

TEST(CudaLinearCompileTest, AppendsCompileWithoutSpills) {
  const absl::StatusOr<const Nvrtc*> nvrtc = Nvrtc::Get();
  if (absl::IsUnavailable(nvrtc.status())) GTEST_SKIP() << nvrtc.status();
  ASSERT_TRUE(nvrtc.ok()) << nvrtc.status();
  // Of all layers' K and V; of queries, and heads of several sizes in pages of no power of two.
  std::vector<LinearSpec> specs = {Spec(24576, 1024), Spec(1024 + 2 * 3 * (64 + 40), 576),
                                   Spec(6144, 4096)};
  specs[0].bias = true;
  specs[0].append = {12, 16, 64, 64, 16};
  specs[1].append = {2, 3, 64, 40, 24};
  specs[2].append = {1, 8, 128, 128, 16};
  specs[2].weight = DType::kF8E4M3_128;
  specs[2].quantize = QuantizeSpec{128, 0, false};
  for (const LinearSpec& spec : specs) ExpectNoSpillsOf(**nvrtc, spec);
}

// Of 7B, and of heads of no power of two, blocks, and numbers of 8 bits on both sides.
std::vector<LinearSpec> RopeSpecs() {
  std::vector<LinearSpec> specs(5, Spec(3 * 4096, 4096));
  specs[0].append = specs[1].append = {1, 32, 128, 128, 16};
  specs[2] = Spec((8 + 2) * 80 + 2 * 80, 576, DType::kF16);
  specs[2].append = {1, 2, 80, 80, 24};
  specs[3] = specs[4] = Spec(6144, 4096);
  specs[3].append = specs[4].append = {1, 8, 128, 128, 16};
  specs[3].weight = DType::kQ4_K;
  specs[4].weight = DType::kF8E4M3_128;
  specs[4].quantize = QuantizeSpec{128, 0, false};
  for (size_t i = 0; i < specs.size(); ++i) {
    const bool is_half = i % 4 == 0;
    specs[i].bias = !is_half;
    specs[i].rope = {absl::StrCat("theta=10000", is_half ? "" : ",style=interleave"), std::nullopt};
  }
  return specs;
}

class CudaLinearRopeCompileTest : public ::testing::TestWithParam<LinearSpec> {};
INSTANTIATE_TEST_SUITE_P(Specs, CudaLinearRopeCompileTest, ::testing::ValuesIn(RopeSpecs()));

TEST_P(CudaLinearRopeCompileTest, HasNoSpills) {
  const absl::StatusOr<const Nvrtc*> nvrtc = Nvrtc::Get();
  if (absl::IsUnavailable(nvrtc.status())) GTEST_SKIP() << nvrtc.status();
  ASSERT_TRUE(nvrtc.ok()) << nvrtc.status();
  ExpectNoSpillsOf(**nvrtc, GetParam());
}

TEST(CudaLinearCompileTest, TurnsOfScaledFrequenciesCompileWithoutSpills) {
  const absl::StatusOr<const Nvrtc*> nvrtc = Nvrtc::Get();
  if (absl::IsUnavailable(nvrtc.status())) GTEST_SKIP() << nvrtc.status();
  ASSERT_TRUE(nvrtc.ok()) << nvrtc.status();
  LinearSpec scaled = RopeSpecs()[0];
  scaled.rope = {"theta=10000,scaling=dynamic,scale_factor=4,original_tokens=2048,magnitude=1.25",
                 DType::kBF16};
  const auto kernel = MakeCudaKernel(scaled, kHopper);
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  ASSERT_EQ((*kernel)->entries().back().entry, "linear_turns");
  ExpectNoSpills(**nvrtc, (*kernel)->entries().back(), "sm_90a");
}

TEST(CudaLinearCompileTest, BlockQuantisedWeightsCompileWithoutSpills) {
  const absl::StatusOr<const Nvrtc*> nvrtc = Nvrtc::Get();
  if (absl::IsUnavailable(nvrtc.status())) GTEST_SKIP() << nvrtc.status();
  ASSERT_TRUE(nvrtc.ok()) << nvrtc.status();
  size_t number = 0;
  for (const DTypeInfo& info : AllDTypes()) {
    if (!IsBlockType(info.dtype)) continue;
    // Each on one architecture; tiles of 8 rows, and of 16.
    const Device& device = kDevices[number++ % std::size(kDevices)];
    for (int64_t n : {4096, 22016}) {
      LinearSpec spec = Spec(n, 2816);
      spec.weight = info.dtype;
      const auto kernel = MakeCudaKernel(spec, device.limits);
      ASSERT_TRUE(kernel.ok()) << kernel.status();
      for (const CudaEntry& entry : (*kernel)->entries()) {
        if (!absl::StrContains(entry.source, "FoursOf")) continue;
        ExpectNoSpills(**nvrtc, entry, device.architecture);
      }
    }
  }
}

TEST(CudaLinearCompileTest, AWrongShareOfSharedMemoryDoesNotCompile) {
  for (const CudaLinearKernel& kernel : Kernels(Spec(4096, 4096))) {
    testing::ExpectSharedBytesAreChecked(kernel.source);
  }
}

}  // namespace
}  // namespace quire
