// Integer dot products of bytes, exact on every instruction set.
#ifndef QUIRE_CODEGEN_CPU_EMIT_DOT_H_
#define QUIRE_CODEGEN_CPU_EMIT_DOT_H_

#include "codegen/cpu/jit.h"
#include "codegen/cpu/llvm_text.h"

namespace quire {

// sums + for each of 16 lanes the four products of its bytes: unsigned bytes of `u`, signed bytes
// of `s`. All operands <16 x i32>.
LlvmValue EmitDot(LlvmWriter& w, Isa::Dot dot, const LlvmValue& sums, const LlvmValue& u,
                  const LlvmValue& s);

}  // namespace quire

#endif  // QUIRE_CODEGEN_CPU_EMIT_DOT_H_
