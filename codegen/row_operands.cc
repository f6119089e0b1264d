#include "codegen/row_operands.h"

#include <cstddef>
#include <variant>

namespace quire {

namespace {

// The last input of a linear that has one.
size_t ScaleInput(const LinearSpec& spec) {
  const bool has_norm = spec.norm.has_value();
  return 2u + (spec.bias ? 1 : 0) + (spec.residual ? 1 : 0) +
         (has_norm && spec.norm->weight.has_value() ? 1 : 0) +
         (has_norm && spec.norm->bias.has_value() ? 1 : 0);
}

}  // namespace

RowOperands RowOperandsOf(const Func& func) {
  RowOperands operands;
  const auto argument = [&](const Op* operand) {
    for (size_t i = 0; i < func.args().size(); ++i) {
      if (func.args()[i].get() == operand) return static_cast<int>(i);
    }
    return -1;
  };
  for (const auto& op : func.ops()) {
    if (op->Is(OpKind::kKvAppend)) {
      operands.append_is_v.push_back(op->Text(AttrKind::kSlot) == "v");
      if (op->num_operands() > 1) {
        operands.scales.push_back({argument(op->operand(1)), op->type.extents[1].value()});
      }
    }
    if (op->Is(OpKind::kQuantize) && op->num_operands() > 1) {
      operands.scales.push_back({argument(op->operand(1)), 1});
    }
    if (op->Is(OpKind::kTake)) operands.takes.push_back(argument(op->operand(1)));
    if (!op->Is(OpKind::kEmbed)) continue;
    const int64_t limit = op->operand(0)->type.extents[0].value() - op->Int(AttrKind::kOffset);
    operands.looks.push_back({argument(op->operand(1)), limit});
  }
  return operands;
}

int64_t KvScaleHeads(const KernelSpec& spec, const RowOperands& rows, size_t i) {
  if (const auto* attention = std::get_if<AttentionSpec>(&spec)) {
    const size_t end = 2u + (attention->k_scale ? 1 : 0) + (attention->v_scale ? 1 : 0);
    return i >= 2 && i < end ? attention->hkv : 0;
  }
  if (const auto* linear = std::get_if<LinearSpec>(&spec)) {
    return linear->quantize.has_value() && linear->quantize->has_scale && i == ScaleInput(*linear)
               ? 1
               : 0;
  }
  for (const RowOperands::Scale& scale : rows.scales) {
    if (scale.argument == static_cast<int>(i)) return scale.heads;
  }
  return 0;
}

}  // namespace quire
