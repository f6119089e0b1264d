// Which passes a definition cannot be lowered without.
#ifndef QUIRE_COMPILER_NEEDED_PASSES_H_
#define QUIRE_COMPILER_NEEDED_PASSES_H_

#include <vector>

#include "absl/status/statusor.h"
#include "compiler/compile.h"

namespace quire {

// `passes` and those that CompileTarget needs beside them, in the order of the default pipeline;
// of passes that stand for each other the first. Compiles the module some times. Errors: what
// CompileTarget says of the default pipeline.
absl::StatusOr<std::vector<const PassDef*>> WithNeededPasses(
    const Module& raised, const Target& target, const std::vector<const PassDef*>& passes,
    const TensorTable& tensors);

}  // namespace quire

#endif  // QUIRE_COMPILER_NEEDED_PASSES_H_
