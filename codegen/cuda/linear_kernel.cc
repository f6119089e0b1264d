// A linear as the CUDA device runs it: one entry a body, chosen by the number of rows.
#include <utility>

#include "codegen/cuda/linear.h"
#include "ir/status.h"

namespace quire {
namespace {

using Kind = CudaArgument::Kind;

class CudaLinear : public CudaKernel {
 public:
  CudaLinear(const LinearSpec& spec, const CudaLimits& limits,
             std::vector<CudaLinearKernel> kernels)
      : spec_(spec), limits_(limits), kernels_(std::move(kernels)) {
    for (const CudaLinearKernel& kernel : kernels_) {
      entries_.push_back({kernel.entry, kernel.source, kernel.block_threads, kernel.shared_bytes});
    }
  }

  CudaLaunches Launches(int64_t rows) const override {
    size_t chosen = 0;
    while (kernels_[chosen].max_rows < rows) ++chosen;
    const CudaLinearLaunch plan =
        PlanCudaLinear(spec_, kernels_[chosen], rows, limits_.multiprocessors);
    CudaLaunch launch;
    launch.entry = chosen;
    launch.grid = plan.grid;
    int64_t operand = 0;
    const auto next = [&](bool present) {
      launch.arguments.push_back({Kind::kOperand, present ? operand++ : int64_t{-1}});
    };
    next(true);  // x
    next(true);  // weight
    next(spec_.bias);
    next(spec_.residual);
    next(true);  // y
    launch.arguments.push_back({Kind::kWorkspace, 0});
    launch.arguments.push_back({Kind::kInt32, rows});
    launch.arguments.push_back({Kind::kInt32, plan.whole_tiles});
    return {{std::move(launch)}, plan.workspace_bytes};
  }

 private:
  const LinearSpec spec_;
  const CudaLimits limits_;
  const std::vector<CudaLinearKernel> kernels_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<CudaKernel>> MakeCudaLinear(const LinearSpec& spec,
                                                           const CudaLimits& limits) {
  QUIRE_ASSIGN_OR_RETURN(std::vector<CudaLinearKernel> kernels, CudaLinearKernels(spec, limits));
  return std::make_unique<CudaLinear>(spec, limits, std::move(kernels));
}

}  // namespace quire
