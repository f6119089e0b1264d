#include "codegen/cuda/target_kernels.h"

#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "codegen/spec.h"
#include "ir/status.h"

namespace quire {

absl::StatusOr<CudaKernels> MakeCudaKernels(const plan::TargetT& target, const CudaLimits& limits) {
  const auto of = [](size_t i) { return absl::StrCat("kernels[", i, "]"); };
  std::vector<KernelSpec> specs;
  for (size_t i = 0; i < target.kernels.size(); ++i) {
    absl::StatusOr<KernelSpec> spec = ParseSpec(target.kernels[i]->spec);
    if (!spec.ok()) return WithPrefix(spec.status(), of(i));
    specs.push_back(*std::move(spec));
  }
  const LinearSpec* appending = nullptr;
  for (const KernelSpec& spec : specs) {
    const auto* linear = std::get_if<LinearSpec>(&spec);
    if (linear != nullptr && linear->append.has_value()) appending = linear;
  }
  CudaKernels kernels;
  for (size_t i = 0; i < specs.size(); ++i) {
    absl::StatusOr<std::unique_ptr<CudaKernel>> kernel =
        MakeCudaKernel(specs[i], limits, appending);
    if (!kernel.ok()) return WithPrefix(kernel.status(), of(i));
    kernels.push_back(*std::move(kernel));
  }
  return kernels;
}

absl::Status AddPlanBinaries(const plan::TargetT& target, absl::string_view architecture,
                             const PlanFile& file, CudaKernelBuilder* builder) {
  for (const auto& kernel : target.kernels) {
    for (const auto& binary : kernel->binaries) {
      if (binary->architecture != architecture) continue;
      QUIRE_ASSIGN_OR_RETURN(const absl::Span<const uint8_t> bytes, file.BinaryBytes(*binary));
      builder->AddPlanBinary(binary->key, bytes);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::vector<BuiltEntry>>> BuildCudaKernels(const CudaKernels& kernels,
                                                                      CudaKernelBuilder* builder) {
  std::vector<const CudaEntry*> entries;
  for (const auto& kernel : kernels) {
    for (const CudaEntry& entry : kernel->entries()) entries.push_back(&entry);
  }
  QUIRE_ASSIGN_OR_RETURN(std::vector<BuiltEntry> built, builder->Build(entries));
  std::vector<std::vector<BuiltEntry>> by_kernel;
  auto next = std::make_move_iterator(built.begin());
  for (const auto& kernel : kernels) {
    const auto end = next + static_cast<ptrdiff_t>(kernel->entries().size());
    by_kernel.emplace_back(next, end);
    next = end;
  }
  return by_kernel;
}

}  // namespace quire
