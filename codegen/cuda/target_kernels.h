// All kernels of a plan's target, made from their specs and built: what compile puts into a plan,
// what a device loads, what dump and check look at.
//
// Errors:  UNIMPLEMENTED, naming kernel and place, when a spec has no CUDA kernel; those of
//          CudaKernelBuilder.
#ifndef QUIRE_CODEGEN_CUDA_TARGET_KERNELS_H_
#define QUIRE_CODEGEN_CUDA_TARGET_KERNELS_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "codegen/cuda/kernel.h"
#include "codegen/cuda/kernel_builder.h"
#include "ir/plan_generated.h"
#include "ir/plan_io.h"

namespace quire {

// By index of the plan's kernels.
using CudaKernels = std::vector<std::unique_ptr<CudaKernel>>;
absl::StatusOr<CudaKernels> MakeCudaKernels(const plan::TargetT& target, const CudaLimits& limits);

// Hands the target's binaries for this architecture to a builder, which `file` must outlive.
// DATA_LOSS when one is corrupt.
absl::Status AddPlanBinaries(const plan::TargetT& target, absl::string_view architecture,
                             const PlanFile& file, CudaKernelBuilder* builder);

// [i][j] is entry j of kernel i.
absl::StatusOr<std::vector<std::vector<BuiltEntry>>> BuildCudaKernels(const CudaKernels& kernels,
                                                                      CudaKernelBuilder* builder);

}  // namespace quire

#endif  // QUIRE_CODEGEN_CUDA_TARGET_KERNELS_H_
