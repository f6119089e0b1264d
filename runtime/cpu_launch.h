// One launch of a program on the CPU: how its work is cut into pieces, and how a thread does its
// share.
#ifndef QUIRE_RUNTIME_CPU_LAUNCH_H_
#define QUIRE_RUNTIME_CPU_LAUNCH_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "codegen/cpu/abi.h"
#include "codegen/cpu/kernel.h"
#include "ir/plan_generated.h"
#include "runtime/cpu_pages.h"
#include "runtime/cpu_weights.h"
#include "runtime/device.h"
#include "runtime/thread_pool.h"

namespace quire {

// Hands out the numbers 0, 1, ... of a launch's pieces. Each has a cache line of its own.
struct alignas(64) PieceCounter {
  std::atomic<int64_t> next{0};
};

// What the launches of one step share.
struct CpuStep {
  const Step* step = nullptr;
  int64_t t_rows = 0, r_rows = 0;
  uint8_t* pages = nullptr;  // of the pool
  const PageLayout* layout = nullptr;
  RowStep row_step = {};                  // for T rows
  std::vector<void*> arguments, buffers;  // as in the program
  // Quantised activations of the launch at hand, [rows, k / 32].
  ActivationBlock* blocks = nullptr;
  int threads = 1;
};

// Memory of one thread, reused by every launch.
struct ThreadScratch {
  std::vector<uint8_t> bytes;
  void* Get(int64_t wanted);
};

class CpuLaunch {
 public:
  virtual ~CpuLaunch() = default;
  // Before the threads start: cuts this step's work.
  virtual void Prepare(const CpuStep& step) = 0;
  // On every thread. `pool` is for barriers inside a launch.
  virtual void Run(const CpuStep& step, ThreadPool& pool, ThreadScratch& scratch) = 0;
  // Activation blocks that a step of `rows` rows wants in CpuStep::blocks.
  virtual int64_t activation_blocks(int64_t) const { return 0; }
  // Whether the launch walks the R rows with logits instead of all T.
  bool over_logit_rows = false;
  int64_t scratch_bytes = 0;

 protected:
  int64_t RowsOf(const CpuStep& step) const { return over_logit_rows ? step.r_rows : step.t_rows; }
};

// REQUIRES: `launch` is of a checked plan. `target` and `weights` must outlive the result.
absl::StatusOr<std::unique_ptr<CpuLaunch>> MakeCpuLaunch(const plan::LaunchT& launch,
                                                         const plan::TargetT& target,
                                                         const CpuKernel& kernel,
                                                         const CpuWeights& weights);

// The families, for MakeCpuLaunch.
std::unique_ptr<CpuLaunch> MakeLinearLaunch(const plan::LaunchT& launch, const CpuKernel& kernel,
                                            const CpuWeights& weights);
std::unique_ptr<CpuLaunch> MakeAttentionLaunch(const plan::LaunchT& launch,
                                               const CpuKernel& kernel);
absl::StatusOr<std::unique_ptr<CpuLaunch>> MakeRowLaunch(const plan::LaunchT& launch,
                                                         const CpuKernel& kernel,
                                                         const CpuWeights& weights);

// Where an argument or buffer operand lies in this step.
inline void* PlaceOf(const plan::Operand& operand, const CpuStep& step) {
  return operand.kind() == plan::OperandKind::Argument ? step.arguments[operand.index()]
                                                       : step.buffers[operand.index()];
}

}  // namespace quire

#endif  // QUIRE_RUNTIME_CPU_LAUNCH_H_
