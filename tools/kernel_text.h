// The code of one CPU kernel, for people, and where it would come from.
#ifndef QUIRE_TOOLS_KERNEL_TEXT_H_
#define QUIRE_TOOLS_KERNEL_TEXT_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace quire {

// `emit` is "llvm", the IR as generated, or "asm", what this machine would run. UNAVAILABLE in a
// build without the CPU backend.
absl::StatusOr<std::string> KernelText(absl::string_view spec, absl::string_view emit);

// Whether a load on this machine finds it in the cache, or has to compile it. `cache_dir` is that
// of OpenOptions. UNAVAILABLE as above.
absl::StatusOr<bool> IsInKernelCache(absl::string_view spec, const std::string& cache_dir);

}  // namespace quire

#endif  // QUIRE_TOOLS_KERNEL_TEXT_H_
