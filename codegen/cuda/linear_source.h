// The texts of linear kernels.
#ifndef QUIRE_CODEGEN_CUDA_LINEAR_SOURCE_H_
#define QUIRE_CODEGEN_CUDA_LINEAR_SOURCE_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "codegen/cuda/linear.h"

namespace quire {

// "few", "tile", "warpgroup": linear_....cuh.
absl::string_view CudaLinearBodyText(CudaLinearConfig::Body body);
// Whether the body's text, if the linear appends, serves others, too (linear.cuh's kMayAppend).
bool CudaLinearMayAppend(const LinearSpec& spec, CudaLinearConfig::Body body);

// The name of a type in kernels.
absl::string_view CudaElementText(DType dtype);

// The norm of x, in constants of linear_norm.cuh.
std::string CudaNormText(const LinearSpec& spec);

// What parts of K begin at multiples of: a tensor-core step, or the weight's block.
int64_t CudaLinearGrain(DType weight);

// Whether no part of K ends within a stage of a ring.
bool CudaLinearHasWholeStages(const LinearSpec& spec);

// k of a stage of blocks that linear_blocks_ring.cuh copies: no part ends within it.
int64_t CudaLinearCopyK(const LinearSpec& spec);

// The constants of what finishes sums, bodies' of any number of rows.
std::string CudaFinishText(const LinearSpec& spec);

// The text of a kernel whose other fields are set.
std::string CudaLinearSource(const LinearSpec& spec, const CudaLinearKernel& kernel);

}  // namespace quire

#endif  // QUIRE_CODEGEN_CUDA_LINEAR_SOURCE_H_
