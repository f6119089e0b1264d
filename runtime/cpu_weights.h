// Weights of a target as CPU kernels read them, laid out once at load.
#ifndef QUIRE_RUNTIME_CPU_WEIGHTS_H_
#define QUIRE_RUNTIME_CPU_WEIGHTS_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "ir/plan_generated.h"
#include "runtime/thread_pool.h"
#include "runtime/weights.h"

namespace quire {

class CpuWeights {
 public:
  // Loads every slot of `target`; layouts are made by all threads together.
  static absl::StatusOr<CpuWeights> Load(const plan::TargetT& target, const WeightSource& source,
                                         ThreadPool& threads);

  // The slot in its layout; 64-byte aligned when the layout is rows16, as the file has it when it
  // is rows.
  const void* Data(uint32_t slot) const { return slots_[slot].data; }
  // A slot of rank 1 as f32, padded with zeros to a multiple of 16.
  const float* Bias(uint32_t slot) const { return slots_[slot].bias.data(); }

 private:
  struct Slot {
    const void* data = nullptr;
    std::shared_ptr<const void> owner;
    std::vector<float> bias;
  };
  static absl::StatusOr<Slot> LoadSlot(const plan::WeightSlotT& slot, const WeightSource& source);

  std::vector<Slot> slots_;
};

}  // namespace quire

#endif  // QUIRE_RUNTIME_CPU_WEIGHTS_H_
