// Specs, devices and kernels of tests of CUDA attention.
#ifndef QUIRE_TESTS_CODEGEN_CUDA_ATTENTION_SPECS_H_
#define QUIRE_TESTS_CODEGEN_CUDA_ATTENTION_SPECS_H_

#include <memory>

#include "codegen/cuda/attention.h"
#include "gtest/gtest.h"

namespace quire::attention_testing {

struct Device {
  const char* architecture;
  CudaLimits limits;
};
inline constexpr Device kAmpere = {"sm_80", {8, 0, 166912, 108}},
                        kAda = {"sm_89", {8, 9, 101376, 128}},
                        kHopper = {"sm_90a", {9, 0, 232448, 132}};

inline AttentionSpec Spec(int64_t hq, int64_t hkv, int64_t d, DType dtype = DType::kBF16,
                          int64_t page = 16) {
  AttentionSpec spec;
  spec.hq = hq, spec.hkv = hkv, spec.d = spec.dv = d;
  spec.kv = spec.x = dtype;
  spec.page_tokens = page;
  spec.scale = 0.125;
  return spec;
}

inline std::unique_ptr<CudaKernel> Make(const AttentionSpec& spec, const CudaLimits& limits) {
  absl::StatusOr<std::unique_ptr<CudaKernel>> kernel = MakeCudaAttention(spec, limits);
  EXPECT_TRUE(kernel.ok()) << kernel.status();
  return kernel.ok() ? *std::move(kernel) : nullptr;
}

}  // namespace quire::attention_testing

#endif  // QUIRE_TESTS_CODEGEN_CUDA_ATTENTION_SPECS_H_
