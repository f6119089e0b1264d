#include "compiler/row_wise.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"

namespace quire {
namespace {

bool Mentions(const Type& type, char letter) {
  return std::any_of(type.extents.begin(), type.extents.end(), [letter](const Extent& extent) {
    return extent.is_letter() && extent.letter() == letter;
  });
}

// The letter stands nowhere, or on axis 0 only.
bool RowsOnlyOnFirstAxis(const Type& type, char letter) {
  const auto count = std::count(type.extents.begin(), type.extents.end(), Extent::Letter(letter));
  return count == 0 || (count == 1 && HasRows(type, letter));
}

}  // namespace

bool HasRows(const Type& type, char letter) {
  return type.rank() > 0 && type.extents[0] == Extent::Letter(letter);
}

bool HasLetters(const Type& type) {
  return std::any_of(type.extents.begin(), type.extents.end(),
                     [](const Extent& extent) { return extent.is_letter(); });
}

std::string Describe(const Op& op, absl::string_view what) {
  return absl::StrCat("%", op.name, ": ", op.def().mnemonic, ": ", what);
}

absl::Status CheckRowWise(const Op& op, char letter) {
  auto mixes = [&op](absl::string_view how) {
    return absl::InvalidArgumentError(Describe(op, absl::StrCat("mixes rows: ", how)));
  };
  const std::string rows(1, letter);
  bool meets_letter = Mentions(op.type, letter);
  for (const Op* operand : op.operands) {
    if (!RowsOnlyOnFirstAxis(operand->type, letter)) {
      return mixes(
          absl::StrCat("%", operand->name, " has ", rows, " on another axis than the first"));
    }
    meets_letter = meets_letter || Mentions(operand->type, letter);
  }
  if (!meets_letter) return absl::OkStatus();
  if (!RowsOnlyOnFirstAxis(op.type, letter) || !HasRows(op.type, letter)) {
    return mixes(
        absl::StrCat("its result ", op.type.ToString(), " does not keep ", rows, " as axis 0"));
  }
  // What is left keeps rows as axis 0. A product over rows does not: it would have the letter on
  // another axis of an operand or of the result.
  switch (op.kind) {
    case OpKind::kAttention:
    case OpKind::kKvAppend:
      return mixes("it reads the whole context");
    case OpKind::kCausalMask:
    case OpKind::kAlibi:
    case OpKind::kRelativeBias:
      return mixes("it depends on where a row stands");
    case OpKind::kTake:
      if (HasRows(op.operand(0)->type, letter)) return mixes("it picks rows by number");
      return absl::OkStatus();
    case OpKind::kRmsNorm:
    case OpKind::kLayerNorm:
    case OpKind::kSoftmax:
    case OpKind::kQuantize:
      if (op.type.rank() < 2) return mixes("it sums over its only axis");
      return absl::OkStatus();
    case OpKind::kEmbed:
      if (HasRows(op.operand(0)->type, letter)) return mixes("its table has rows");
      return absl::OkStatus();
    default:
      return absl::OkStatus();
  }
}

OpSet WeightExpressionsOf(const Func& func) {
  OpSet weights;
  for (const auto& op : func.ops()) {
    const bool moves_rows =
        op->Is(OpKind::kConcat) || op->Is(OpKind::kSlice) || op->Is(OpKind::kTranspose);
    if (op->Is(OpKind::kWeight) ||
        (moves_rows && std::all_of(op->operands.begin(), op->operands.end(),
                                   [&](const Op* operand) { return weights.contains(operand); }))) {
      weights.insert(op.get());
    }
  }
  return weights;
}

const Op* Storage(const Op* op) {
  while (op->Is(OpKind::kReshape) && op->type.rank() > 0 && op->operand(0)->type.rank() > 0 &&
         op->type.extents[0] == op->operand(0)->type.extents[0]) {
    op = op->operand(0);
  }
  return op;
}

std::vector<Op*> KeptBy(Op* x, DType dtype) {
  if (!x->Is(OpKind::kKvScale)) return {x};
  if (dtype == DType::kF8E4M3) return {x->operand(0), x->operand(1)};
  return {x->operand(0)};
}

}  // namespace quire
