// A plan's program bound to the CPU: every launch resolved to a kernel, its weights and its places
// in memory.
//
// All threads walk the launches together, with a barrier after each; inside a launch, threads take
// pieces of work from a counter. Which thread computes a piece never changes its bits.
#ifndef QUIRE_RUNTIME_CPU_PROGRAM_H_
#define QUIRE_RUNTIME_CPU_PROGRAM_H_

#include <memory>

#include "absl/status/statusor.h"
#include "codegen/cpu/kernel.h"
#include "ir/plan_generated.h"
#include "runtime/device.h"
#include "runtime/thread_pool.h"
#include "runtime/weights.h"

namespace quire {

// Builds the program's kernels and lays out its weights. `target`, `kernels` and `threads` must
// outlive the result.
absl::StatusOr<std::unique_ptr<Program>> LoadCpuProgram(const plan::TargetT& target,
                                                        const plan::ProgramT& program,
                                                        const WeightSource& weights,
                                                        KernelBuilder& kernels,
                                                        ThreadPool& threads);

}  // namespace quire

#endif  // QUIRE_RUNTIME_CPU_PROGRAM_H_
