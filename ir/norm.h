// Which ops are norms: of both kinds, over the last axis.
#ifndef QUIRE_IR_NORM_H_
#define QUIRE_IR_NORM_H_

#include "ir/graph.h"

namespace quire {

inline bool IsNorm(const Op& op) { return op.Is(OpKind::kRmsNorm) || op.Is(OpKind::kLayerNorm); }

}  // namespace quire

#endif  // QUIRE_IR_NORM_H_
