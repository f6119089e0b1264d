// Each launch of a plan beside what the lowered program says that it computes.
//
// A step runs launch by launch on its device. What each launch leaves is read, and the launch is
// computed again with the interpreter in double precision: from the program's IR, with weights as
// the checkpoint stores them, and with what the launches before it really left. So nothing but this
// launch's own arithmetic stands between the two, whatever the model makes of errors, and the
// allowed error is a bound on that (tools/error_bounds.h). What a kernel rounds inside is rounded
// alike: on a CPU, what goes into a product with block weights, to blocks of 32 numbers of 8 bits
// with a common scale (codegen/cpu/abi.h); with activations of 16 bits, what goes into a product,
// and weights.
//
// Since inputs are what was read when they were written, a launch that overwrites what another one
// still needs is seen, too; and attention reads keys and values that were read when they were
// appended.
#ifndef QUIRE_TOOLS_VERIFY_LAUNCHES_H_
#define QUIRE_TOOLS_VERIFY_LAUNCHES_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ir/graph.h"
#include "ir/plan_generated.h"
#include "ir/reference/interpreter.h"
#include "runtime/weights.h"
#include "tools/error_bounds.h"
#include "tools/launch_replay.h"
#include "tools/step_runner.h"

namespace quire {

// What a program was lowered from; nullptr where the module does not have it.
Func* FuncOf(const Module& lowered, const plan::ProgramT& program);

class LaunchVerifier : public StepWatcher {
 public:
  // What is off most beside what it may be: of all launches, or the first one that is off too far.
  struct Worst {
    std::string launch;  // "launch 12 of step, linear %q (model.layers.1.self_attn.q_proj.weight)"
    std::string where;   // "row 3, column 17 of %q"
    double got = 0, expected = 0;
    double error = 0, allowed = 0, ratio = 0;  // ratio: error / allowed, above 1 if it differs
    size_t different = 0, elements = 0;        // of the value
  };

  // The plan, its target and the files must outlive this.
  static absl::StatusOr<std::unique_ptr<LaunchVerifier>> Create(const plan::PlanT& plan,
                                                                const plan::TargetT& target,
                                                                const TensorFiles& files);

  absl::Status Begin(absl::string_view program, const Step& step) override;
  absl::Status After(size_t launch, const LaunchMemory& memory) override;

  int64_t launches() const { return launches_; }
  int64_t elements() const { return elements_; }
  const Worst& worst() const { return worst_; }
  // Launches that are off too far, the first ones.
  const std::vector<Worst>& different() const { return different_; }
  int64_t different_launches() const { return different_launches_; }

 private:
  // Class, `layer` attribute, slot.
  using CacheKey = std::tuple<std::string, int64_t, std::string>;
  struct Lowered {
    const plan::ProgramT* program = nullptr;
    const Func* func = nullptr;
    absl::flat_hash_set<std::string> computed;  // names of buffers
  };

  LaunchVerifier(const plan::PlanT& plan, const plan::TargetT& target, const TensorFiles& files)
      : plan_(plan), target_(target), files_(files) {}

  absl::StatusOr<reference::Tensor> WeightOf(const Op& expression, bool minimum) const;
  absl::StatusOr<reference::Tensor> ReadBuffer(const LaunchMemory& memory, uint32_t index) const;
  absl::StatusOr<reference::Tensor> ReadLayer(const LaunchMemory& memory,
                                              const CacheKey& key) const;
  // A launch computed again: values of its function and how far each may be off.
  struct Replay {
    std::map<const Op*, reference::Tensor> values, minimums;
    std::map<const Op*, std::vector<double>> errors;
  };
  static CacheKey KeyOf(const Op& op);
  std::string Describe(size_t index, const std::string& values, const LaunchFunc& made) const;
  absl::Status CheckLaunch(const plan::LaunchT& launch, const LaunchFunc& made,
                           const KernelArithmetic& arithmetic, const LaunchMemory& memory);
  absl::Status SetArguments(const LaunchFunc& made, Replay* replay);
  absl::Status CheckOutputs(const LaunchMemory& memory, const plan::LaunchT& launch,
                            const LaunchFunc& made, const Replay& replay);
  absl::Status CheckAppends(const LaunchMemory& memory, const LaunchFunc& made,
                            const Replay& replay);
  // `stored`: the type in which `got` lay in memory.
  void Compare(const std::string& name, DType stored, const reference::Tensor& got,
               const reference::Tensor& expected, const std::vector<double>& errors);
  bool IsOnCpu() const { return target_.name == "cpu"; }

  const plan::PlanT& plan_;
  const plan::TargetT& target_;
  const TensorFiles& files_;
  Module module_;
  std::vector<Lowered> programs_;

  // Of the step at hand.
  const Lowered* now_ = nullptr;
  int64_t t_ = 0, r_ = 0;
  absl::flat_hash_map<std::string, reference::Tensor> values_;
  // Of the sequence.
  std::map<CacheKey, reference::Tensor> caches_;

  std::string launch_name_;
  int64_t launches_ = 0, elements_ = 0, different_launches_ = 0;
  Worst worst_;
  std::vector<Worst> different_;
};

// Block types with a minimum that is added apart: the values of `bytes` with all numbers zero.
// False for other types.
bool MinimumsOf(DType dtype, absl::Span<const uint8_t> bytes, absl::Span<double> values);

// x [.., k] rounded to 8 bits, 32 columns at a time, as linear kernels of the CPU do it.
void QuantizeActivations(reference::Tensor* x);

}  // namespace quire

#endif  // QUIRE_TOOLS_VERIFY_LAUNCHES_H_
