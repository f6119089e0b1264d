// The code of one CPU kernel, for people.
#ifndef QUIRE_TOOLS_KERNEL_TEXT_H_
#define QUIRE_TOOLS_KERNEL_TEXT_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace quire {

// `emit` is "llvm", the IR as generated, or "asm", what this machine would run. UNAVAILABLE in a
// build without the CPU backend.
absl::StatusOr<std::string> KernelText(absl::string_view spec, absl::string_view emit);

}  // namespace quire

#endif  // QUIRE_TOOLS_KERNEL_TEXT_H_
