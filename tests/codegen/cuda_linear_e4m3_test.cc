// How linears of numbers of f8e4m3 on both sides are launched, by device and spec.
#include <memory>
#include <string>

#include "codegen/cuda/linear_e4m3.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/codegen/cuda_linear_specs.h"

namespace quire {
namespace {

using ::testing::HasSubstr;
using testing::kAda;
using testing::kHopper;

LinearSpec E4m3Spec(int64_t columns, bool row_scales) {
  LinearSpec spec = testing::FusedSpec();
  spec.weight = DType::kF8E4M3_128;
  spec.quantize = QuantizeSpec{columns};
  spec.row_scales = row_scales;
  return spec;
}

std::unique_ptr<CudaKernel> Make(const LinearSpec& spec, const CudaLimits& limits) {
  absl::StatusOr<std::unique_ptr<CudaKernel>> kernel = MakeCudaLinear(spec, limits);
  EXPECT_TRUE(kernel.ok()) << kernel.status();
  return kernel.ok() ? *std::move(kernel) : nullptr;
}

TEST(CudaLinearE4m3Test, OneEntryWritesNumbersForAllBodies) {
  const std::unique_ptr<CudaKernel> kernel = Make(E4m3Spec(0, true), kHopper);
  ASSERT_NE(kernel, nullptr);
  EXPECT_TRUE(kernel->splits_scales());
  for (const int64_t rows : {1, 17, 128, 129, 4096}) {
    const CudaLaunches launches = kernel->Launches(rows);
    ASSERT_EQ(launches.launches.size(), 2u) << rows;
    EXPECT_EQ(kernel->entries()[launches.launches[0].entry].entry, "linear_quantize");
    EXPECT_EQ(launches.launches[0].grid, rows);
    EXPECT_THAT(kernel->entries()[launches.launches[1].entry].entry, HasSubstr("linear_e4m3_"));
    // Pairs of numbers, one after another.
    ASSERT_EQ(launches.launches[1].tensor_maps.size(), 2u);
    EXPECT_EQ(launches.launches[1].tensor_maps[0].columns, 2048);
    EXPECT_GE(launches.workspace_bytes, kCudaZeroBytes + rows * 4096 + rows * 4);
  }
}

TEST(CudaLinearE4m3Test, OtherLinearsReadWhatARowKernelWrites) {
  const struct {
    LinearSpec spec;
    CudaLimits limits;
  } cases[] = {
      {E4m3Spec(0, true), kAda},
      {E4m3Spec(0, false), kHopper},  // a scale a row of x beside scales of blocks
      {E4m3Spec(64, true), kHopper},
  };
  for (const auto& c : cases) {
    const std::unique_ptr<CudaKernel> kernel = Make(c.spec, c.limits);
    ASSERT_NE(kernel, nullptr);
    EXPECT_FALSE(kernel->splits_scales());
    const CudaLaunches launches = kernel->Launches(3);
    EXPECT_THAT(kernel->entries()[launches.launches[0].entry].source, HasSubstr("Quantized("));
  }
}

// Rings hold what is begun at once.
TEST(CudaLinearE4m3Test, ConfigurationsFitTheirDevice) {
  for (const int64_t columns : {0, 128}) {
    const LinearSpec product = CudaE4m3Product(E4m3Spec(columns, columns == 0));
    for (const CudaLinearConfig& config : CudaE4m3Configs(product, kHopper)) {
      EXPECT_LE(CudaLinearSharedBytes(product, config), kHopper.shared_bytes);
      EXPECT_GE(config.stages, 4) << config.rows << " x " << config.tile_rows;
      EXPECT_EQ(CudaLinearPieces(config), 1);
    }
  }
}

}  // namespace
}  // namespace quire
