// Kernels' binaries for a GPU architecture as sections of the plan that is being written, so that
// it runs where NVRTC is not, and loads without compiling where it is.
//
// Errors: INVALID_ARGUMENT for an architecture that is not known; UNAVAILABLE without NVRTC;
//         UNIMPLEMENTED when a kernel of the target has no CUDA kernel.
#ifndef QUIRE_TOOLS_ADD_BINARIES_H_
#define QUIRE_TOOLS_ADD_BINARIES_H_

#include <string>

#include "absl/status/status.h"
#include "ir/plan_io.h"

namespace quire {

// Each kernel of `target` gets the binaries of its entries; the last one also those of the kernel
// that a device adds, for greedy choices among `vocabulary` logits.
absl::Status AddCudaBinaries(const std::string& architecture, int64_t vocabulary,
                             plan::TargetT* target, PlanWriter* writer);

}  // namespace quire

#endif  // QUIRE_TOOLS_ADD_BINARIES_H_
