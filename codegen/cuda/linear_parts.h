// How linear kernels cut K (kernels/linear.cuh), for what plans them.
#ifndef QUIRE_CODEGEN_CUDA_LINEAR_PARTS_H_
#define QUIRE_CODEGEN_CUDA_LINEAR_PARTS_H_

#include <cstdint>

#include "codegen/cuda/tensor_core_model.h"

namespace quire::cuda_linear {

constexpr int kParts = 4;
constexpr int kStageK = 64;  // of a stage of a ring

constexpr int64_t DivideUp(int64_t a, int64_t b) { return (a + b - 1) / b; }
// K up to whole steps.
constexpr int64_t PaddedK(int64_t k) { return DivideUp(k, kTensorCoreStep) * kTensorCoreStep; }
// Where a part begins, a multiple of `grain`.
constexpr int64_t PartBegin(int64_t k, int64_t grain, int64_t part) {
  return DivideUp(k, grain) * part / kParts * grain;
}

}  // namespace quire::cuda_linear

#endif  // QUIRE_CODEGEN_CUDA_LINEAR_PARTS_H_
