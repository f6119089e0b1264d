// The kernel spec of a fused group of row-wise ops: the group as a function of the IR with
// canonical names, so that equal groups of different layers have equal text and share one kernel.
//
//   func @row(%0: f32[T,64], %1: f32[64]) {
//     %v0 = rms_norm %0, %1 {eps=0.00001} : f32[T,64]
//     return %v0
//   }
//
// Arguments: values of other groups and of the program in order of use, then weights in order of
// use; a weight kept in layout rows16 has the suffix .rows16. A value that is read under another
// shape is reshaped inside. A value that is stored in another type than f32 is an argument of that
// type, is cast to f32 where something computes with it, and is cast back before it is returned; a
// change of shape, a slice and a take alone are done to it as it is. Returns: every value that
// another group reads. kv_append's layers are numbered 0, 1, ... in order of appearance; its result
// is not returned. A group that only appends returns what it appends, since a function returns
// something. Rows are written T, also where they are R, unless the group takes R of T rows: a
// kernel does not know which rows it computes.
#ifndef QUIRE_COMPILER_ROW_SPEC_H_
#define QUIRE_COMPILER_ROW_SPEC_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "codegen/spec.h"
#include "codegen/target.h"
#include "compiler/row_wise.h"
#include "compiler/storage_types.h"
#include "compiler/weight_slots.h"
#include "ir/graph.h"

namespace quire {

struct RowGroup {
  RowSpec spec;
  std::vector<const Op*> inputs;   // arguments but weights, as Storage()
  std::vector<const Op*> weights;  // weight expressions
  std::vector<const Op*> appends;  // kv_append ops
  std::vector<const Op*> outputs;  // returns
};

// `ops`: the group in program order. `read_outside`: values, as Storage(), that other groups or the
// program's results read. UNIMPLEMENTED, naming the op, for one that no row kernel computes.
absl::StatusOr<RowGroup> MakeRowGroup(absl::Span<const Op* const> ops, const OpSet& read_outside,
                                      const WeightSlots& slots, const StorageTypes& types,
                                      const Target& target);

}  // namespace quire

#endif  // QUIRE_COMPILER_ROW_SPEC_H_
