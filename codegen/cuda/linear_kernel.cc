// A linear as the CUDA device runs it: one entry a body, chosen by the number of rows.
#include <algorithm>
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
    if (IsBlockType(spec_.weight)) {
      entries_.push_back(
          {kCudaDequantizeEntry, CudaDequantizeSource(spec_), kCudaDequantizeThreads});
    }
  }

  CudaLaunches Launches(int64_t rows) const override {
    const size_t chosen = ChooseCudaLinear(spec_, kernels_, rows, limits_.multiprocessors);
    const bool few = kernels_[chosen].config.body == CudaLinearConfig::kFew;
    const CudaLinearLaunch plan =
        PlanCudaLinear(spec_, kernels_[chosen], rows, limits_.multiprocessors);
    CudaLaunches launches{{}, plan.workspace_bytes};
    if (few) {
      // A few rows at a time.
      for (int64_t first = 0; first < rows; first += kernels_[chosen].max_rows) {
        launches.launches.push_back(Launch(chosen, plan.grid, {Kind::kOperand, 1}, rows, first));
      }
      return launches;
    }
    CudaArgument weight{Kind::kOperand, 1};
    if (IsBlockType(spec_.weight)) {
      weight = {Kind::kWorkspace, std::max<int64_t>(plan.workspace_bytes, kCudaZeroBytes)};
      launches.workspace_bytes = weight.value + spec_.n * spec_.k * 2;
      CudaLaunch dequantize;
      dequantize.entry = kernels_.size();
      dequantize.grid = 8 * limits_.multiprocessors;
      dequantize.arguments = {{Kind::kOperand, 1}, weight};
      launches.launches.push_back(std::move(dequantize));
    }
    launches.launches.push_back(Launch(chosen, plan.grid, weight, rows, plan.whole_tiles));
    return launches;
  }

 private:
  // `last`: the entry's last parameter.
  CudaLaunch Launch(size_t entry, int grid, const CudaArgument& weight, int64_t rows,
                    int64_t last) const {
    const CudaLinearConfig& config = kernels_[entry].config;
    CudaLaunch launch;
    launch.entry = entry;
    launch.grid = grid;
    const CudaArgument x{Kind::kOperand, 0};
    if (config.body == CudaLinearConfig::kWarpgroup) {
      launch.tensor_maps = {{x, rows, spec_.k, config.rows},
                            {weight, spec_.n, spec_.k, config.tile_rows}};
      launch.arguments = {{Kind::kTensorMap, 0}, {Kind::kTensorMap, 1}};
    } else {
      launch.arguments = {x, weight};
    }
    int64_t operand = 2;
    for (bool present : {spec_.bias, spec_.residual, true}) {
      launch.arguments.push_back({Kind::kOperand, present ? operand++ : int64_t{-1}});
    }
    launch.arguments.push_back({Kind::kWorkspace, 0});
    launch.arguments.push_back({Kind::kInt32, rows});
    launch.arguments.push_back({Kind::kInt32, last});
    return launch;
  }

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
