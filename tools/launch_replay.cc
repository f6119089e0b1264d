#include "tools/launch_replay.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ir/norm.h"
#include "ir/status.h"

namespace quire {
namespace {

bool HasLetters(const Type& type) {
  return std::any_of(type.extents.begin(), type.extents.end(),
                     [](const Extent& extent) { return extent.is_letter(); });
}

bool IsNarrow(DType dtype) { return dtype == DType::kF16 || dtype == DType::kBF16; }

bool IsCached(const Op& op) { return op.Is(OpKind::kKvAppend) || op.Is(OpKind::kKvRead); }

Type Wide(Type type) {
  if (type.dtype != DType::kI32) type.dtype = DType::kF32;
  return type;
}

void CollectTensors(const Op& expression, std::vector<std::string>* names) {
  if (expression.Is(OpKind::kWeight)) names->push_back(expression.Text(AttrKind::kName));
  for (const Op* operand : expression.operands) CollectTensors(*operand, names);
}

Op* CloneExpression(const Op& op, Func* func, std::map<const Op*, Op*>* clones) {
  Op*& made = (*clones)[&op];
  if (made != nullptr) return made;
  auto clone = std::make_unique<Op>(op);
  clone->group = -1;
  clone->type = Wide(clone->type);
  for (Op*& operand : clone->operands) operand = CloneExpression(*operand, func, clones);
  return (*clones)[&op] = func->Insert(std::move(clone));
}

class Maker {
 public:
  Maker(const Func& lowered, int group, const absl::flat_hash_set<std::string>& computed,
        const LaunchRounding& rounding)
      : lowered_(lowered), group_(group), computed_(computed), rounding_(rounding) {}

  absl::StatusOr<LaunchFunc> Make() {
    made_.func = std::make_unique<Func>("launch");
    for (const auto& op : lowered_.ops()) {
      if (op->group == group_) ops_.push_back(op.get());
    }
    if (ops_.empty()) return absl::InternalError(absl::StrCat("group ", group_, " is empty"));
    const bool has_linear =
        std::any_of(ops_.begin(), ops_.end(), [](const Op* op) { return op->Is(OpKind::kLinear); });
    const bool is_alone = ops_.back()->Is(OpKind::kLinear);
    const auto has = [this](OpKind kind) {
      return std::any_of(ops_.begin(), ops_.end(), [&](const Op* op) { return op->Is(kind); });
    };
    const bool appends = has(OpKind::kKvAppend), turns = has(OpKind::kRope);
    for (const Op* op : ops_) {
      QUIRE_RETURN_IF_ERROR(Copy(*op));
      if (has_linear && IsNorm(*op)) Round(op, rounding_.norm);
      if (op->Is(OpKind::kLinear)) {
        made_.linear = op;
        made_.is_8bit = op->operand(0)->Is(OpKind::kQuantize) && op->operand(0)->group == group_;
        // Nothing but a sum with a residual, and what is appended as it is, is rounded once.
        const bool has_act = !is_alone && !ops_.back()->Is(OpKind::kAdd) && !appends;
        if (has_act || turns) Round(op, rounding_.product);
      }
      if (op->Is(OpKind::kAttention)) made_.attention = op;
      if (op->Is(OpKind::kKvAppend)) made_.appends.push_back(op);
    }
    std::vector<Op*> returns;
    for (const auto& op : made_.func->ops()) returns.push_back(op.get());
    made_.func->set_returns(std::move(returns));
    for (const Op* op : ops_) made_.copies[op] = unrounded_.at(op);
    return std::move(made_);
  }

 private:
  absl::Status Copy(const Op& op) {
    auto clone = std::make_unique<Op>(op);
    clone->group = -1;
    const DType dtype = op.type.dtype;
    clone->type = Wide(op.type);
    for (size_t i = 0; i < clone->operands.size(); ++i) {
      if (op.Is(OpKind::kLinear) && i == 0 && rounding_.quantizes &&
          IsIntegerBlockType(op.operand(1)->type.dtype)) {
        QUIRE_ASSIGN_OR_RETURN(clone->operands[0], Quantized(*op.operand(0)));
        continue;
      }
      QUIRE_ASSIGN_OR_RETURN(Op * operand, Resolve(*op.operands[i]));
      // A product with numbers of 8 bits is of numbers of 8 bits.
      const bool is_8bit = op.operand(0)->Is(OpKind::kQuantize) && op.operand(0)->group == group_;
      if (op.Is(OpKind::kLinear) && i == 1 && !is_8bit) operand = Cast(operand, rounding_.weights);
      clone->operands[i] = operand;
    }
    unrounded_[&op] = copies_[&op] = made_.func->Insert(std::move(clone));
    // What is cached is compared as it is stored.
    if (IsNarrow(dtype) && !op.Is(OpKind::kKvAppend)) Round(&op, dtype);
    return absl::OkStatus();
  }

  // What reads `op` from here on reads it rounded.
  void Round(const Op* op, DType dtype) { copies_[op] = Cast(copies_.at(op), dtype); }

  // Rounded to a narrow type, and f32 again, as all values of the function are.
  Op* Cast(Op* value, DType dtype) {
    if (!IsNarrow(dtype)) return value;
    for (const DType to : {dtype, DType::kF32}) {
      auto cast = std::make_unique<Op>();
      cast->kind = OpKind::kCast;
      cast->name = absl::StrCat(value->name, ".", DTypeText(to));
      cast->type = Type{to, value->type.extents};
      cast->operands = {value};
      value = made_.func->Insert(std::move(cast));
    }
    return value;
  }

  absl::StatusOr<Op*> Quantized(const Op& x) {
    const Op* stored = &x;
    while (stored->Is(OpKind::kReshape)) stored = stored->operand(0);
    if (!stored->Is(OpKind::kArg) &&
        (stored->group == group_ || !computed_.contains(stored->name))) {
      return absl::InternalError(
          absl::StrCat("%", x.name, " is rounded to 8 bits, but not stored"));
    }
    Op* arg =
        made_.func->AddArg(made_.func->UniqueName(absl::StrCat(x.name, ".8bit")), Wide(x.type));
    made_.quantized.emplace_back(arg, stored);
    return arg;
  }

  absl::StatusOr<Op*> Resolve(const Op& value) {
    const auto known = copies_.find(&value);
    if (known != copies_.end()) return known->second;
    const auto argument = [&](std::vector<std::pair<const Op*, const Op*>>* list) {
      Op* arg = made_.func->AddArg(made_.func->UniqueName(value.name), Wide(value.type));
      list->emplace_back(arg, &value);
      return copies_[&value] = arg;
    };
    if (value.Is(OpKind::kArg)) return argument(&made_.values);
    if (!HasLetters(value.type)) {
      CollectTensors(value, &made_.tensors);
      return argument(&made_.weights);
    }
    if (IsCached(value)) return argument(&made_.caches);
    // A reshape is another form of what was computed, also where a launch leaves a copy of it.
    const bool is_reshape = value.Is(OpKind::kReshape);
    if (!is_reshape && value.group != group_ && computed_.contains(value.name)) {
      return argument(&made_.values);
    }
    if (!is_reshape) {
      return absl::InternalError(
          absl::StrCat("group ", group_, " reads %", value.name, ", which no launch computes"));
    }
    auto clone = std::make_unique<Op>(value);
    clone->group = -1;
    clone->type = Wide(clone->type);
    QUIRE_ASSIGN_OR_RETURN(clone->operands[0], Resolve(*value.operand(0)));
    return copies_[&value] = made_.func->Insert(std::move(clone));
  }

  const Func& lowered_;
  const int group_;
  const absl::flat_hash_set<std::string>& computed_;
  const LaunchRounding rounding_;
  std::vector<const Op*> ops_;
  std::map<const Op*, Op*> copies_, unrounded_;
  LaunchFunc made_;
};

}  // namespace

absl::StatusOr<LaunchFunc> MakeLaunchFunc(const Func& lowered, int group,
                                          const absl::flat_hash_set<std::string>& computed,
                                          const LaunchRounding& rounding) {
  return Maker(lowered, group, computed, rounding).Make();
}

std::unique_ptr<Func> MakeWeightFunc(const Op& expression) {
  auto func = std::make_unique<Func>("weight");
  std::map<const Op*, Op*> clones;
  func->set_returns({CloneExpression(expression, func.get(), &clones)});
  return func;
}

}  // namespace quire
