#include "codegen/row_ops.h"

namespace quire {

bool IsPointwise(OpKind kind) {
  switch (kind) {
    case OpKind::kAdd:
    case OpKind::kMul:
    case OpKind::kScale:
    case OpKind::kSoftcap:
    case OpKind::kSilu:
    case OpKind::kGelu:
    case OpKind::kRelu:
    case OpKind::kTanh:
    case OpKind::kSigmoid:
    case OpKind::kCast:
      return true;
    default:
      return false;
  }
}

bool HasRowKernel(OpKind kind) {
  switch (kind) {
    case OpKind::kEmbed:
    case OpKind::kRmsNorm:
    case OpKind::kLayerNorm:
    case OpKind::kQuantize:
    case OpKind::kRope:
    case OpKind::kReshape:
    case OpKind::kSlice:
    case OpKind::kConcat:
    case OpKind::kTake:
    case OpKind::kExpandHeads:
    case OpKind::kKvAppend:
      return true;
    default:
      return IsPointwise(kind);
  }
}

}  // namespace quire
