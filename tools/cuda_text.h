// The code of CUDA kernels, for people.
#ifndef QUIRE_TOOLS_CUDA_TEXT_H_
#define QUIRE_TOOLS_CUDA_TEXT_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "codegen/cuda/nvrtc.h"
#include "ir/plan_io.h"
#include "nlohmann/json.hpp"

namespace quire {

// One entry of a kernel.
struct CudaEntryText {
  std::string entry;
  std::string code;
  int block_threads = 0, dynamic_shared_bytes = 0;
  std::optional<KernelResources> resources;  // none where there is no compiler to ask
};

// "// linear_few_8 for sm_90a: 256 threads, 96 registers, no spills, 201872 bytes of shared memory"
std::string ResourcesText(const CudaEntryText& entry, absl::string_view architecture);
nlohmann::ordered_json ResourcesJson(const CudaEntryText& entry, absl::string_view architecture);

// The architecture that a target's kernels are shown for, unless one is named: that of the plan's
// binaries, else sm_90a.
std::string ShownArchitecture(const plan::TargetT& target);

// [i][j] is entry j of kernel i. `emit` is "cuda", the text for NVRTC; "ptx"; or "sass", from the
// plan's binary where it has one.
// Errors: UNAVAILABLE without what `emit` needs; those of MakeCudaKernels and CudaKernelBuilder.
absl::StatusOr<std::vector<std::vector<CudaEntryText>>> CudaKernelTexts(
    const PlanFile& file, const plan::TargetT& target, absl::string_view emit,
    const std::string& architecture);

}  // namespace quire

#endif  // QUIRE_TOOLS_CUDA_TEXT_H_
