// Collects the weights that kernels read as the plan's weight slots: rows of checkpoint tensors,
// joined, in a layout.
//
// Equal rows in an equal layout share one slot. A tensor that a linear reads keeps the linear's
// layout for every reader, so that a tied embedding is in memory once.
#ifndef QUIRE_COMPILER_WEIGHT_SLOTS_H_
#define QUIRE_COMPILER_WEIGHT_SLOTS_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "codegen/spec.h"
#include "codegen/target.h"
#include "ir/graph.h"
#include "ir/plan_generated.h"

namespace quire {

// The checkpoint's tensors, as the plan lists them.
using TensorTable = std::vector<std::unique_ptr<plan::TensorT>>;

class WeightSlots {
 public:
  // Reads every weight expression of the module; `tensors` must outlive the slots. INVALID_ARGUMENT
  // when a weight is not in `tensors` or has another type there; UNIMPLEMENTED when an expression
  // is not rows of tensors.
  static absl::StatusOr<WeightSlots> Create(const Module& module, const TensorTable& tensors,
                                            const TargetTraits& traits);

  // The layout in which `weight` is kept: the target's for matrices when any linear reads the same
  // rows as its weight, and always for block types, which kernels know in no other form.
  // REQUIRES: a weight expression, here and below.
  WeightLayout LayoutOf(const Op* weight) const;
  // Whether `weight` is of 8-bit floats whose scales are apart, and not more than one a row.
  bool HasRowScales(const Op* weight) const;
  // Index of the slot, made at the first call.
  uint32_t SlotOf(const Op* weight);
  bool Contains(const Op* weight) const { return parts_.contains(weight); }

  std::vector<std::unique_ptr<plan::WeightSlotT>> TakeSlots() { return std::move(slots_); }

 private:
  using Parts = std::vector<plan::WeightPartT>;
  static std::string KeyOf(const Parts& parts);

  const TensorTable* tensors_ = nullptr;
  WeightLayout matrix_layout_ = WeightLayout::kRows;
  absl::flat_hash_map<const Op*, Parts> parts_;
  absl::flat_hash_map<std::string, WeightLayout> layouts_;  // by KeyOf; absent: rows
  absl::flat_hash_map<std::string, uint32_t> index_;
  std::vector<std::unique_ptr<plan::WeightSlotT>> slots_;
};

}  // namespace quire

#endif  // QUIRE_COMPILER_WEIGHT_SLOTS_H_
