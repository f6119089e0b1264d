#include "codegen/row_func.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "codegen/row_ops.h"
#include "ir/status.h"
#include "ir/text.h"

namespace quire {
namespace {

constexpr int64_t kMaxRowElements = int64_t{1} << 28;

absl::Status Refuse(absl::string_view backend, const Op& op, absl::string_view what) {
  return absl::UnimplementedError(
      absl::StrCat(backend, ": row kernel: %", op.name, ": ", op.def().mnemonic, ": ", what));
}

absl::Status CheckOp(const Op& op, char rows, absl::string_view backend) {
  if (!HasRowKernel(op.kind)) return Refuse(backend, op, "no row kernel computes this op");
  const Type& type = op.Is(OpKind::kKvAppend) ? op.operand(0)->type : op.type;
  if (!HasRowExtent(type) || type.extents[0].letter() != rows) {
    return Refuse(
        backend, op,
        absl::StrCat(type.ToString(), " is not one row of ", std::string(1, rows), " rows"));
  }
  for (size_t i = 1; i < type.extents.size(); ++i) {
    if (type.extents[i].is_letter()) return Refuse(backend, op, "a letter after the first extent");
  }
  const bool joins_rows =
      (op.Is(OpKind::kConcat) || op.Is(OpKind::kSlice)) && op.Int(AttrKind::kAxis) == 0;
  if (joins_rows) return Refuse(backend, op, "axis=0 is the rows");
  const bool is_norm = op.Is(OpKind::kRmsNorm) || op.Is(OpKind::kLayerNorm);
  if ((is_norm || op.Is(OpKind::kQuantize)) && type.rank() < 2)
    return Refuse(backend, op, "over the rows");
  // Row numbers are checked by the caller, who sees arguments alone.
  const bool looks = op.Is(OpKind::kEmbed) || op.Is(OpKind::kTake);
  if (looks && !(op.operand(0)->Is(OpKind::kArg) && op.operand(1)->Is(OpKind::kArg))) {
    return Refuse(backend, op, "reads rows that are not an argument's, or by such numbers");
  }
  if (op.Is(OpKind::kEmbed) && HasRowExtent(op.operand(0)->type)) {
    return Refuse(backend, op, "the table has rows of the step");
  }
  if ((op.Is(OpKind::kKvAppend) || op.Is(OpKind::kQuantize)) && op.num_operands() > 1) {
    const Extent count = op.Is(OpKind::kKvAppend) ? op.type.extents[1] : Extent(1);
    const Type wanted = {DType::kF32, {count}};
    if (!op.operand(1)->Is(OpKind::kArg) || op.operand(1)->type != wanted) {
      return Refuse(backend, op, absl::StrCat("the scale is no argument of ", wanted.ToString()));
    }
  }
  // Elements of a row stay in a cache, or at the least in memory.
  QUIRE_ASSIGN_OR_RETURN(const int64_t count,
                         Product(absl::MakeConstSpan(type.extents).subspan(1)));
  if (count > kMaxRowElements) {
    return Refuse(backend, op,
                  absl::StrCat(count, " elements a row\n  allowed: ", kMaxRowElements));
  }
  return absl::OkStatus();
}

}  // namespace

bool HasRowExtent(const Type& type) { return type.rank() > 0 && type.extents[0].is_letter(); }

std::vector<int64_t> InnerExtents(const Type& type) {
  std::vector<int64_t> extents;
  for (size_t i = HasRowExtent(type) ? 1 : 0; i < type.extents.size(); ++i) {
    extents.push_back(type.extents[i].value());
  }
  return extents;
}

int64_t CountOf(const std::vector<int64_t>& extents) {
  int64_t count = 1;
  for (int64_t extent : extents) count *= extent;
  return count;
}

int64_t ElementsOf(const Op& op) { return CountOf(InnerExtents(op.type)); }

int64_t ElementsFrom(const Op& op, int64_t axis) {
  int64_t count = 1;
  for (size_t i = static_cast<size_t>(axis); i < op.type.extents.size(); ++i) {
    count *= op.type.extents[i].value();
  }
  return count;
}

char RowLetter(const Func& func) { return func.returns()[0]->type.extents[0].letter(); }

absl::StatusOr<Module> ParseRowFunc(const RowSpec& spec, absl::string_view backend) {
  QUIRE_ASSIGN_OR_RETURN(Module module, Parse(spec.func, "kernel spec"));
  if (module.funcs.size() != 1) {
    return absl::InvalidArgumentError("kernel spec: a row kernel is one function");
  }
  const Func& func = *module.funcs[0];
  if (func.returns().empty() || !HasRowExtent(func.returns()[0]->type)) {
    return absl::UnimplementedError(
        absl::StrCat(backend, ": row kernel: no value with rows is returned"));
  }
  for (const auto& arg : func.args()) {
    for (size_t i = 1; i < arg->type.extents.size(); ++i) {
      if (arg->type.extents[i].is_letter()) {
        return Refuse(backend, *arg, "a letter after the first extent");
      }
    }
  }
  for (const Op* value : func.returns()) {
    if (!HasRowExtent(value->type) || value->type.extents[0].letter() != RowLetter(func)) {
      return Refuse(backend, *value, "returned without the rows");
    }
  }
  for (const auto& op : func.ops()) {
    QUIRE_RETURN_IF_ERROR(CheckOp(*op, RowLetter(func), backend));
  }
  return module;
}

}  // namespace quire
