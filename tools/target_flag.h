// The value of --target: what a plan is lowered for, and which kernels' binaries it brings.
//
//   cuda:sm_90a,cuda:sm_80,cpu    lowered for two targets, with binaries for two architectures
#ifndef QUIRE_TOOLS_TARGET_FLAG_H_
#define QUIRE_TOOLS_TARGET_FLAG_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace quire {

struct TargetFlag {
  std::string name;                        // "cpu" or "cuda"
  std::vector<std::string> architectures;  // of cuda: those to build kernels for
};

// One for each name, in the order in which they stand. INVALID_ARGUMENT, with what is allowed.
absl::StatusOr<std::vector<TargetFlag>> ParseTargetFlag(absl::string_view text);

}  // namespace quire

#endif  // QUIRE_TOOLS_TARGET_FLAG_H_
