#include "codegen/cuda/kernel.h"

#include <type_traits>
#include <variant>

#include "absl/strings/str_cat.h"
#include "codegen/cuda/attention.h"
#include "codegen/cuda/linear.h"

namespace quire {

absl::StatusOr<std::unique_ptr<CudaKernel>> MakeCudaKernel(const KernelSpec& spec,
                                                           const CudaLimits& limits) {
  if (const auto* linear = std::get_if<LinearSpec>(&spec)) return MakeCudaLinear(*linear, limits);
  if (const auto* attention = std::get_if<AttentionSpec>(&spec)) {
    return MakeCudaAttention(*attention, limits);
  }
  return absl::UnimplementedError(
      absl::StrCat("cuda: ", SpecText(spec), "\n  allowed: linear, attention"));
}

}  // namespace quire
