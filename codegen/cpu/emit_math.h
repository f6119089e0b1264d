// Elementary functions as vector code: the same operations on every instruction set, so the same
// bits. Operands are f32 vectors of any lanes.
//
// Errors against double precision, measured over the stated ranges by tests/codegen/math_test.cc:
//   exp      2 ulp, [-87.3, 88.3]; 0 below, +inf above
//   tanh     3 ulp            sigmoid  3 ulp above -87
//   erf      2e-7 absolute    sine, cosine  1.5e-7 absolute for angles to 1e7
#ifndef QUIRE_CODEGEN_CPU_EMIT_MATH_H_
#define QUIRE_CODEGEN_CPU_EMIT_MATH_H_

#include "codegen/cpu/llvm_text.h"
#include "ir/dtype.h"

namespace quire {

LlvmValue EmitExp(LlvmWriter& w, const LlvmValue& x);
LlvmValue EmitTanh(LlvmWriter& w, const LlvmValue& x);
LlvmValue EmitSigmoid(LlvmWriter& w, const LlvmValue& x);
LlvmValue EmitErf(LlvmWriter& w, const LlvmValue& x);
// Of a vector of f64 angles, as f32.
struct SinCos {
  LlvmValue sine, cosine;
};
SinCos EmitSinCos(LlvmWriter& w, const LlvmValue& angle);

// The bits of an f32 vector rounded to f16 ("half") or bf16 ("i16"), ties to even; f32 unchanged.
LlvmValue EmitNarrow(LlvmWriter& w, DType dtype, const LlvmValue& x);
// Rounded to a float dtype, still f32.
LlvmValue EmitRound(LlvmWriter& w, DType dtype, const LlvmValue& x);
// Loads `lanes` values of a float dtype as f32.
LlvmValue EmitLoad(LlvmWriter& w, DType dtype, const LlvmValue& pointer, int lanes);

// A float splat of the lanes of `like`.
LlvmValue Constant(LlvmWriter& w, const LlvmValue& like, double value);

}  // namespace quire

#endif  // QUIRE_CODEGEN_CPU_EMIT_MATH_H_
