#include "ir/builder.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "ir/shape.h"
#include "ir/status.h"

namespace quire {

Op* Builder::Make(OpKind kind, std::vector<Op*> operands, AttrList attrs,
                  const std::optional<Type>& declared) {
  const std::string name = std::exchange(next_name_, "");
  if (!status_.ok()) return &placeholder_;
  auto op = std::make_unique<Op>();
  op->kind = kind;
  op->name = name;
  op->operands = std::move(operands);
  for (auto& [attr, value] : attrs) {
    // Left out when it says what its absence says, so that printing and parsing keep the graph as
    // it is.
    if (!op->def().Requires(attr) && value == DefaultOf(attr)) continue;
    op->Set(attr, std::move(value));
  }
  absl::StatusOr<Type> type = InferType(*op, declared);
  if (!type.ok()) {
    const std::string place = scope_.empty() ? absl::StrCat("@", func_->name()) : scope_;
    status_ = WithPrefix(type.status(), absl::StrCat(place, ": ", op->def().mnemonic));
    return &placeholder_;
  }
  op->type = *std::move(type);
  return func_->Insert(std::move(op), before_);
}

Op* Builder::Weight(absl::string_view tensor, const Type& type) {
  return Make(OpKind::kWeight, {}, {{AttrKind::kName, std::string(tensor)}}, type);
}

Op* Builder::Embed(Op* table, Op* ids, int64_t offset) {
  return Make(OpKind::kEmbed, {table, ids}, {{AttrKind::kOffset, offset}});
}

Op* Builder::Linear(Op* x, Op* w, Op* bias) {
  std::vector<Op*> operands = {x, w};
  if (bias != nullptr) operands.push_back(bias);
  return Make(OpKind::kLinear, std::move(operands));
}

Op* Builder::MatMul(Op* a, Op* b, bool transpose_b) {
  return Make(OpKind::kMatMul, {a, b}, {{AttrKind::kTransposeB, int64_t{transpose_b}}});
}

Op* Builder::RmsNorm(Op* x, Op* w, double eps, double weight_offset) {
  return Make(OpKind::kRmsNorm, {x, w},
              {{AttrKind::kEps, eps}, {AttrKind::kWeightOffset, weight_offset}});
}

Op* Builder::LayerNorm(Op* x, Op* w, Op* bias, double eps) {
  std::vector<Op*> operands = {x, w};
  if (bias != nullptr) operands.push_back(bias);
  return Make(OpKind::kLayerNorm, std::move(operands), {{AttrKind::kEps, eps}});
}

Op* Builder::Reshape(Op* x, Extents extents) {
  return Make(OpKind::kReshape, {x}, {}, Type{x->type.dtype, std::move(extents)});
}

Op* Builder::Transpose(Op* x, std::vector<int64_t> perm) {
  return Make(OpKind::kTranspose, {x}, {{AttrKind::kPerm, std::move(perm)}});
}

Op* Builder::Slice(Op* x, int64_t axis, int64_t begin, int64_t end) {
  return Make(OpKind::kSlice, {x},
              {{AttrKind::kAxis, axis}, {AttrKind::kBegin, begin}, {AttrKind::kEnd, end}});
}

Op* Builder::Concat(std::vector<Op*> xs, int64_t axis) {
  return Make(OpKind::kConcat, std::move(xs), {{AttrKind::kAxis, axis}});
}

Op* Builder::ExpandHeads(Op* x, int64_t group, absl::string_view order) {
  return Make(OpKind::kExpandHeads, {x},
              {{AttrKind::kGroup, group}, {AttrKind::kOrder, std::string(order)}});
}

Op* Builder::RelativeBias(Op* scores, Op* table, int64_t max_distance,
                          absl::string_view direction) {
  return Make(
      OpKind::kRelativeBias, {scores, table},
      {{AttrKind::kMaxDistance, max_distance}, {AttrKind::kDirection, std::string(direction)}});
}

}  // namespace quire
