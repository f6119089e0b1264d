// Row kernels as functions on the CPU, called with their arguments as words.
#ifndef QUIRE_TESTS_CODEGEN_CUDA_ROW_EMULATED_H_
#define QUIRE_TESTS_CODEGEN_CUDA_ROW_EMULATED_H_

#include <cstdint>

#include "tests/codegen/cuda_emulated_calls.h"

namespace quire::emulated {

#include <row.cuh>
#include <step.cuh>

using RowCall = void (*)(const uint64_t* words);
// In the order of testing::CudaRowCases().
extern const RowCall kRowCalls[];

}  // namespace quire::emulated

#endif  // QUIRE_TESTS_CODEGEN_CUDA_ROW_EMULATED_H_
