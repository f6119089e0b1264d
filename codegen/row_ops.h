// Which ops a row kernel computes: what the compiler may put into a row spec, and what emitters
// must know.
#ifndef QUIRE_CODEGEN_ROW_OPS_H_
#define QUIRE_CODEGEN_ROW_OPS_H_

#include "ir/op.h"

namespace quire {

// Each element of the result depends on the elements at its place in the operands alone.
bool IsPointwise(OpKind kind);
// The pointwise ops, and those with a loop or a view of their own.
bool HasRowKernel(OpKind kind);

}  // namespace quire

#endif  // QUIRE_CODEGEN_ROW_OPS_H_
