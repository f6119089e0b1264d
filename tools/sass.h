// A cubin as the GPU's instructions, by NVIDIA's disassembler.
#ifndef QUIRE_TOOLS_SASS_H_
#define QUIRE_TOOLS_SASS_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace quire {

// By nvdisasm or cuobjdump from $PATH, $CUDA_HOME/bin or /usr/local/cuda/bin. UNAVAILABLE where
// there is neither; INTERNAL when it fails.
absl::StatusOr<std::string> Disassemble(absl::string_view cubin);

}  // namespace quire

#endif  // QUIRE_TOOLS_SASS_H_
