// Weights as the CPU's kernels read them.
//
// A slot in layout rows16, and every table of a block type whatever its layout, is packed
// (codegen/cpu/pack.h); packed bytes of the plan are used where they lie, until a program has
// copied them (runtime/cpu/background_copy.h). Float rows are used where they lie too.
#ifndef QUIRE_RUNTIME_CPU_CPU_WEIGHTS_H_
#define QUIRE_RUNTIME_CPU_CPU_WEIGHTS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "ir/plan_generated.h"
#include "runtime/weights.h"

namespace quire {

struct CpuWeight {
  const uint8_t* data = nullptr;
  std::shared_ptr<const void> owner;  // of bytes that are used where they lie
};

// Room that the slot's packed form takes, or 0 when its bytes are used where they lie.
absl::StatusOr<int64_t> PackedRoom(const plan::WeightSlotT& slot);
// Packs into `room`, of PackedRoom bytes.
absl::StatusOr<CpuWeight> LoadCpuWeight(const plan::WeightSlotT& slot, const WeightSource& source,
                                        absl::Span<uint8_t> room);

// A bias as linear kernels read it: f32, padded to a multiple of 16.
absl::StatusOr<std::vector<float>> LoadBias(const plan::WeightSlotT& slot,
                                            const WeightSource& source);

}  // namespace quire

#endif  // QUIRE_RUNTIME_CPU_CPU_WEIGHTS_H_
