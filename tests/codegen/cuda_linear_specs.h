// Specs, devices and kernels of tests of CUDA linears.
#ifndef QUIRE_TESTS_CODEGEN_CUDA_LINEAR_SPECS_H_
#define QUIRE_TESTS_CODEGEN_CUDA_LINEAR_SPECS_H_

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "codegen/cuda/linear.h"
#include "gtest/gtest.h"

namespace quire::testing {

struct Device {
  const char* architecture;
  CudaLimits limits;
};
inline constexpr CudaLimits kHopper = {9, 0, 232448, 132}, kAda = {8, 9, 101376, 128};
inline constexpr Device kDevices[] = {
    {"sm_80", {8, 0, 166912, 108}}, {"sm_89", kAda}, {"sm_90a", kHopper}};

inline LinearSpec Spec(int64_t n, int64_t k, DType dtype = DType::kBF16) {
  LinearSpec spec;
  spec.n = n;
  spec.k = k;
  spec.weight = spec.x = spec.y = dtype;
  spec.layout = WeightLayout::kRows;
  return spec;
}

inline LinearSpec FusedSpec() {
  LinearSpec spec = Spec(11008, 4096);
  spec.norm.emplace();
  spec.norm->eps = 1e-5;
  spec.norm->weight = DType::kF16;
  spec.act = LinearAct::kSilu;
  spec.gated = true;
  return spec;
}

inline std::vector<CudaLinearKernel> Kernels(const LinearSpec& spec,
                                             const CudaLimits& limits = kHopper) {
  absl::StatusOr<std::vector<CudaLinearKernel>> kernels = CudaLinearKernels(spec, limits);
  EXPECT_TRUE(kernels.ok()) << kernels.status();
  return kernels.ok() ? *kernels : std::vector<CudaLinearKernel>();
}

// Body, rows or heights of tiles, stages of each.
inline std::string Describe(const std::vector<CudaLinearKernel>& kernels) {
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

}  // namespace quire::testing

#endif  // QUIRE_TESTS_CODEGEN_CUDA_LINEAR_SPECS_H_
