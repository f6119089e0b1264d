// Row functions that the CUDA row kernels are tested on: compiled at build time for the emulator
// (cuda_row_kernels.cc writes their texts), by NVRTC in tests.
#ifndef QUIRE_TESTS_CODEGEN_CUDA_ROW_CASES_H_
#define QUIRE_TESTS_CODEGEN_CUDA_ROW_CASES_H_

#include <string>
#include <vector>

#include "codegen/cuda/kernel.h"
#include "codegen/spec.h"

namespace quire::testing {

inline constexpr CudaLimits kRowLimits = {9, 0, 232448, 132};

// In a fixed order; the same at every call.
const std::vector<RowSpec>& CudaRowCases();

// One of random ops over random shapes.
RowSpec RandomRowCase(uint64_t seed);

}  // namespace quire::testing

#endif  // QUIRE_TESTS_CODEGEN_CUDA_ROW_CASES_H_
