#include "ir/verify.h"

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "ir/shape.h"
#include "ir/status.h"
#include "ir/text.h"

namespace quire {
namespace {

absl::Status VerifyArg(const Op& arg) {
  for (const Extent& extent : arg.type.extents) {
    if (!extent.is_letter() && (extent.value() < 0 || extent.value() > kMaxExtent)) {
      return absl::InvalidArgumentError(
          absl::StrCat("extent ", extent.ToString(), " is out of range"));
    }
  }
  return DeclaredRule(arg, arg.type).status();
}

absl::Status VerifyOp(const Op& op, const absl::flat_hash_set<const Op*>& defined) {
  for (const Op* operand : op.operands) {
    if (!defined.contains(operand)) {
      return absl::InvalidArgumentError(
          absl::StrCat("operand %", operand->name, " is not defined before"));
    }
  }
  if (op.Is(OpKind::kArg)) return absl::InvalidArgumentError("an argument stands among the ops");
  QUIRE_RETURN_IF_ERROR(VerifyArg(op));
  QUIRE_ASSIGN_OR_RETURN(Type type, InferType(op, op.type));
  if (type != op.type) {
    return absl::InvalidArgumentError(absl::StrCat("type ", op.type.ToString(), " is declared, ",
                                                   type.ToString(), " is computed"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Verify(const Func& func) {
  absl::flat_hash_set<const Op*> defined;
  absl::flat_hash_set<absl::string_view> names;
  auto place = [&func](const Op& op) {
    return absl::StrCat("@", func.name(), ": %", op.name, ": ", op.def().mnemonic);
  };
  for (const auto& arg : func.args()) {
    QUIRE_RETURN_IF_ERROR(WithPrefix(VerifyArg(*arg), place(*arg)));
    defined.insert(arg.get());
    names.insert(arg->name);
  }
  for (const auto& op : func.ops()) {
    QUIRE_RETURN_IF_ERROR(WithPrefix(VerifyOp(*op, defined), place(*op)));
    defined.insert(op.get());
    if (!names.insert(op->name).second) {
      return absl::InvalidArgumentError(absl::StrCat(place(*op), ": the name is taken"));
    }
  }
  if (func.returns().empty()) {
    return absl::InvalidArgumentError(absl::StrCat("@", func.name(), ": returns nothing"));
  }
  for (const Op* result : func.returns()) {
    if (!defined.contains(result)) {
      return absl::InvalidArgumentError(
          absl::StrCat("@", func.name(), ": returns a value that is not defined"));
    }
  }
  return absl::OkStatus();
}

absl::Status Verify(const Module& module) {
  absl::flat_hash_set<absl::string_view> names;
  for (const auto& func : module.funcs) {
    QUIRE_RETURN_IF_ERROR(Verify(*func));
    if (!names.insert(func->name()).second) {
      return absl::InvalidArgumentError(absl::StrCat("@", func->name(), ": the name is taken"));
    }
  }
  return absl::OkStatus();
}

}  // namespace quire
