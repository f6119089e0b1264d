// What `quire dump` shows of a plan, each as text and as JSON.
//
// Errors: FAILED_PRECONDITION when the plan was lowered by another build and the output is about
//         lowered programs; INVALID_ARGUMENT for a target that the plan does not have.
#ifndef QUIRE_TOOLS_DUMP_H_
#define QUIRE_TOOLS_DUMP_H_

#include <string>

#include "absl/status/statusor.h"
#include "ir/plan_io.h"
#include "nlohmann/json.hpp"

namespace quire {

struct DumpOptions {
  std::string target;            // "": the first
  std::string architecture;      // of CUDA kernels; "": that of the plan's binaries, else sm_90a
  std::string phase = "raised";  // of the IR: raised or lowered
  std::string emit = "spec";     // of kernels: spec; llvm or asm; cuda, ptx or sass
};

struct Dumped {
  std::string text;
  nlohmann::ordered_json json;
};

using DumpFn = absl::StatusOr<Dumped> (*)(const PlanFile& file, const DumpOptions& options);

absl::StatusOr<Dumped> DumpSummary(const PlanFile& file, const DumpOptions& options);
absl::StatusOr<Dumped> DumpMetadata(const PlanFile& file, const DumpOptions& options);
// Tensors of the checkpoint, and how kernels see them.
absl::StatusOr<Dumped> DumpWeights(const PlanFile& file, const DumpOptions& options);
// Buffers and their place in the arena as functions of T and R, KV layers, totals.
absl::StatusOr<Dumped> DumpMemory(const PlanFile& file, const DumpOptions& options);
absl::StatusOr<Dumped> DumpIr(const PlanFile& file, const DumpOptions& options);
// Runs the pipeline again on the plan's IR, and says what each pass did.
absl::StatusOr<Dumped> DumpPasses(const PlanFile& file, const DumpOptions& options);
absl::StatusOr<Dumped> DumpKernels(const PlanFile& file, const DumpOptions& options);

// The target that has what --emit shows; "" where any target's kernels will do.
absl::string_view TargetOfEmit(absl::string_view emit);

// The target that the options name.
absl::StatusOr<const plan::TargetT*> TargetToDump(const PlanFile& file, const DumpOptions& options);

}  // namespace quire

#endif  // QUIRE_TOOLS_DUMP_H_
