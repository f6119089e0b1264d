// The kernel that reduces rows of logits to what a greedy choice needs of them. No part of a plan:
// a device adds it to the program's launches.
//
// Operands: logits f32 [rows, columns]; out [rows] of id i32, logit f32, is_sound i32
// (runtime/greatest_logit.h).
#ifndef QUIRE_CODEGEN_CUDA_GREATEST_H_
#define QUIRE_CODEGEN_CUDA_GREATEST_H_

#include <cstdint>
#include <memory>

#include "codegen/cuda/kernel.h"

namespace quire {

// REQUIRES: columns >= 1, below 2^31.
std::unique_ptr<CudaKernel> MakeCudaGreatest(int64_t columns);

}  // namespace quire

#endif  // QUIRE_CODEGEN_CUDA_GREATEST_H_
