// select-kernels and plan-memory: each fused function becomes a program of the plan.
//
//   SelectKernels  each group => one launch of one kernel spec; values between groups => buffers;
//                  weights => slots; caches => KV layers
//   PlaceBuffers   buffers => offsets in the arena
// Errors: UNIMPLEMENTED, naming the op, for a group that no kernel computes; INVALID_ARGUMENT for
// weights that disagree with the checkpoint.
#ifndef QUIRE_COMPILER_LOWER_H_
#define QUIRE_COMPILER_LOWER_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "codegen/target.h"
#include "compiler/weight_slots.h"
#include "ir/graph.h"
#include "ir/plan_generated.h"

namespace quire {

// The target with a program for each function, whose buffers have sizes but no places yet.
// REQUIRES: fuse ran on `module`.
absl::StatusOr<plan::TargetT> SelectKernels(const Module& module, const TensorTable& tensors,
                                            const Target& target);

// Sets the offset of each buffer, and the arena.
absl::Status PlaceBuffers(plan::ProgramT& program);

}  // namespace quire

#endif  // QUIRE_COMPILER_LOWER_H_
