// What a plan must satisfy beyond being a FlatBuffer: everything that a reader may then rely on
// without looking again.
//
// Invariants of a checked plan:
//   (1) no table is null where the schema's text does not say so; every dtype, extent and
//   layout-free
//       text parses; extents are positive and their products do not overflow;
//   (2) a tensor lies inside its file, and its bytes are what its type there takes; the tensor of
//       its scales has as many as it wants;
//   (3) a weight slot's parts are rows of tensors of its own dtype and trailing extents, and add up
//   to
//       its rows; a packed slot's bytes are one section of the file;
//   (4) a kernel's binaries are sections of the file, each of another key;
//   (5) every operand of a launch exists and is of a kind that may stand there; a buffer is written
//       before it is read; buffers lie inside the arena for all T >= R >= 1;
//   (6) a program "step" has arguments among ids i32[T], pos i32[T] and rows i32[R], and one
//   result,
//       f32[R,V]; a program "encode" has arguments among ids and pos, and no result.
// What a kernel's spec asks of its operands is checked by codegen/plan_check.h.
// Errors: DATA_LOSS that names the place, "targets[0].programs[0].launches[3]: ...".
#ifndef QUIRE_IR_PLAN_CHECK_H_
#define QUIRE_IR_PLAN_CHECK_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "ir/plan_generated.h"
#include "ir/plan_io.h"
#include "ir/type.h"

namespace quire {

// Rows of one step at most. Offsets and sizes stay below 2^63 for them.
inline constexpr int64_t kMaxStepRows = int64_t{1} << 20;

absl::Status CheckPlan(const plan::PlanT& plan, absl::Span<const PlanSection> sections);

// (5) and (6) for one program of `target`, whose weights and layers were checked.
absl::Status CheckProgram(const plan::ProgramT& program, const plan::TargetT& target,
                          int64_t vocabulary);

// The section of that kind at that place, or nullptr. `sections` are in file order.
const PlanSection* FindSection(absl::Span<const PlanSection> sections, PlanSection::Kind kind,
                               uint64_t offset, uint64_t bytes);

// DATA_LOSS with "<table>[index]: ".
absl::Status PlanError(absl::string_view table, size_t index, absl::string_view reason);

// The type that a dtype and integer extents describe, with at most 8 axes. INVALID_ARGUMENT.
absl::StatusOr<Type> TypeOfTensor(absl::string_view dtype, absl::Span<const int64_t> extents);
// Likewise for a value of a program, whose first extent may be "T" or "R".
absl::StatusOr<Type> TypeOfValue(const plan::ValueT& value);
// A tensor's type as its file has it.
absl::StatusOr<Type> StoredTypeOf(const plan::TensorT& tensor);
// Bytes of a tensor of this type. REQUIRES: TypeOfTensor accepted it.
uint64_t BytesOfTensor(const Type& type);

// The value of a linear form. REQUIRES: of a checked plan, rows within kMaxStepRows.
int64_t Evaluate(const plan::Linear& form, int64_t T, int64_t R);

}  // namespace quire

#endif  // QUIRE_IR_PLAN_CHECK_H_
