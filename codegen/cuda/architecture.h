// The GPU architectures that kernels are built for, by NVRTC's names.
//
// A plan's kernels depend on what the device gives (CudaLimits): on a machine with a GPU it is
// asked, elsewhere this table answers, so that a plan can be built for a GPU that is not here. On a
// device of other limits a kernel's source may differ; it is compiled there then.
#ifndef QUIRE_CODEGEN_CUDA_ARCHITECTURE_H_
#define QUIRE_CODEGEN_CUDA_ARCHITECTURE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "codegen/cuda/kernel.h"

namespace quire {

// "sm_80", "sm_90a", ... in ascending order.
std::vector<std::string> CudaArchitectures();

// What the known devices of this architecture give, the most usual one first; they differ in
// multiprocessors. INVALID_ARGUMENT, with the list, on a name that is not of it.
absl::StatusOr<std::vector<CudaLimits>> DevicesOfArchitecture(absl::string_view name);
// The first of them.
absl::StatusOr<CudaLimits> LimitsOfArchitecture(absl::string_view name);

// The name to compile under for a device of this compute capability: the table's, or else what
// NVRTC would call it.
std::string ArchitectureOf(int major, int minor);

}  // namespace quire

#endif  // QUIRE_CODEGEN_CUDA_ARCHITECTURE_H_
