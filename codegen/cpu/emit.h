// Kernel specs to LLVM IR text, one emitter for each family; abi.h has the entry points.
//
// The text depends on the spec and on isa.dot alone, and kernels of one spec give the same bits
// for every Isa. Errors: UNIMPLEMENTED when the spec is legal but has no kernel here.
#ifndef QUIRE_CODEGEN_CPU_EMIT_H_
#define QUIRE_CODEGEN_CPU_EMIT_H_

#include <string>

#include "absl/status/statusor.h"
#include "codegen/cpu/jit.h"
#include "codegen/row_operands.h"
#include "codegen/spec.h"

namespace quire {

struct EmittedKernel {
  std::string ir;
  int64_t scratch_bytes = 0;  // that each call needs
  RowOperands rows = {};      // of a row kernel
};
absl::StatusOr<EmittedKernel> EmitKernel(const KernelSpec& spec, const Isa& isa);

// Families.
EmittedKernel EmitQuantLinear(const LinearSpec& spec, const Isa& isa);
EmittedKernel EmitFloatLinear(const LinearSpec& spec);
EmittedKernel EmitAttention(const AttentionSpec& spec);
absl::StatusOr<EmittedKernel> EmitRows(const RowSpec& spec);

}  // namespace quire

#endif  // QUIRE_CODEGEN_CPU_EMIT_H_
