#include "codegen/cuda/kernel.h"

#include <variant>

#include "codegen/cuda/attention.h"
#include "codegen/cuda/linear.h"
#include "codegen/cuda/row.h"

namespace quire {

absl::StatusOr<std::unique_ptr<CudaKernel>> MakeCudaKernel(const KernelSpec& spec,
                                                           const CudaLimits& limits,
                                                           const LinearSpec* appending) {
  if (const auto* linear = std::get_if<LinearSpec>(&spec)) {
    return MakeCudaLinear(*linear, limits, appending);
  }
  if (const auto* attention = std::get_if<AttentionSpec>(&spec)) {
    return MakeCudaAttention(*attention, limits);
  }
  return MakeCudaRow(std::get<RowSpec>(spec), limits);
}

}  // namespace quire
