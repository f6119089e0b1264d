#include "codegen/row_operands.h"

#include <cstddef>

namespace quire {

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
    }
    if (op->Is(OpKind::kTake)) operands.takes.push_back(argument(op->operand(1)));
    if (!op->Is(OpKind::kEmbed)) continue;
    const int64_t limit = op->operand(0)->type.extents[0].value() - op->Int(AttrKind::kOffset);
    operands.looks.push_back({argument(op->operand(1)), limit});
  }
  return operands;
}

}  // namespace quire
