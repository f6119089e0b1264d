#include "compiler/row_spec.h"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "codegen/row_func.h"
#include "codegen/row_ops.h"
#include "ir/builder.h"
#include "ir/status.h"
#include "ir/text.h"
#include "ir/verify.h"

namespace quire {
namespace {

absl::Status Refuse(const Op& op, absl::string_view where = "") {
  std::string allowed = "linear, attention";
  for (const OpDef& def : AllOps()) {
    if (HasRowKernel(def.kind)) absl::StrAppend(&allowed, ", ", def.mnemonic);
  }
  return WithLine(
      absl::UnimplementedError(Describe(op, absl::StrCat("no kernel computes this op", where))),
      "allowed", allowed);
}

// Builds the canonical function.
class RowWriter {
 public:
  RowWriter(const OpSet& own, const WeightSlots& slots, const StorageTypes& types)
      : own_(own), slots_(slots), types_(types) {}

  // Notes an operand of the group; called in order of use, before Finish.
  void AddInput(const Op* operand) {
    if (slots_.Contains(operand)) {
      if (seen_.insert(operand).second) group_.weights.push_back(operand);
      return;
    }
    const Op* stored = Storage(operand);
    if (!own_.contains(stored) && seen_.insert(stored).second) group_.inputs.push_back(stored);
  }

  // The scale of an append, of which devices make one f32 for each head, or of a quantize.
  void AddScale(const Op* op) {
    if (op->num_operands() < 2) return;
    const Extent count = op->Is(OpKind::kKvAppend) ? op->type.extents[1] : Extent(1);
    scales_[op->operand(1)] = Type{DType::kF32, {count}};
  }

  void MakeArgs() {
    int next = 0;
    for (const Op* input : group_.inputs) {
      clones_[input] =
          func_.AddArg(absl::StrCat(next++), Type{types_.Of(input), input->type.extents});
    }
    for (const Op* weight : group_.weights) {
      const WeightLayout layout = slots_.LayoutOf(weight);
      const std::string suffix =
          layout == WeightLayout::kRows ? "" : absl::StrCat(".", LayoutText(layout));
      const auto scale = scales_.find(weight);
      clones_[weight] = func_.AddArg(absl::StrCat(next++, suffix),
                                     scale == scales_.end() ? weight->type : scale->second);
    }
  }

  void Append(const Op* op) {
    auto clone = std::make_unique<Op>(*op);
    clone->group = -1;
    for (Op*& operand : clone->operands) {
      const bool is_weight = slots_.Contains(operand);
      operand = Value(operand);
      if (!is_weight && !TakesAnyType(*op, *operand)) operand = InType(operand, DType::kF32);
    }
    if (MovesElements(*op)) clone->type.dtype = clone->operands[0]->type.dtype;
    if (op->Is(OpKind::kKvAppend)) {
      // A kernel is told where to append: it knows neither class nor number of a cache.
      const auto key = std::pair(op->Text(AttrKind::kCache), op->Int(AttrKind::kLayer));
      const auto number = static_cast<int64_t>(layers_.size());
      clone->Set(AttrKind::kLayer, layers_.try_emplace(key, number).first->second);
      clone->Set(AttrKind::kCache, DefaultOf(AttrKind::kCache));
      group_.appends.push_back(op);
    }
    clones_[op] = Insert(std::move(clone));
  }

  absl::StatusOr<RowGroup> Finish(std::vector<const Op*> outputs, int64_t page_tokens) {
    std::vector<Op*> returns;
    for (const Op* output : outputs) {
      returns.push_back(InType(Value(output), types_.Of(Storage(output))));
    }
    func_.set_returns(std::move(returns));
    RenameRows();
    QUIRE_RETURN_IF_ERROR(Verify(func_));
    group_.outputs = std::move(outputs);
    group_.spec.func = Print(func_);
    if (!group_.appends.empty()) group_.spec.page_tokens = page_tokens;
    return std::move(group_);
  }

 private:
  Op* Insert(std::unique_ptr<Op> clone) {
    clone->name = absl::StrCat("v", next_++);
    return func_.Insert(std::move(clone));
  }

  // The same elements at other places.
  static bool MovesElements(const Op& op) {
    return op.Is(OpKind::kReshape) || op.Is(OpKind::kSlice) || op.Is(OpKind::kTake);
  }

  // Nothing is computed with the elements: they stay what they are in memory.
  static bool TakesAnyType(const Op& op, const Op& operand) {
    return MovesElements(op) || operand.type.dtype == DType::kI32 ||
           (op.Is(OpKind::kKvAppend) && operand.type.dtype == op.type.dtype);
  }

  // `value` in `dtype`; each cast is made where it is first needed.
  Op* InType(Op* value, DType dtype) {
    if (value->type.dtype == dtype) return value;
    Op*& made = casts_[{value, dtype}];
    if (made == nullptr) {
      auto cast = std::make_unique<Op>();
      cast->kind = OpKind::kCast;
      cast->type = Type{dtype, value->type.extents};
      cast->operands = {value};
      made = Insert(std::move(cast));
    }
    return made;
  }

  // R as T, unless both are there.
  void RenameRows() {
    bool meets_t = false;
    auto for_each_extent = [this](auto edit) {
      for (const auto* list : {&func_.args(), &func_.ops()}) {
        for (const auto& op : *list)
          std::for_each(op->type.extents.begin(), op->type.extents.end(), edit);
      }
    };
    for_each_extent([&](const Extent& extent) { meets_t |= extent == Extent::Letter('T'); });
    if (meets_t) return;
    for_each_extent([](Extent& extent) {
      if (extent == Extent::Letter('R')) extent = Extent::Letter('T');
    });
  }

  // The clone of `value`; reshapes are made where they are first read.
  Op* Value(const Op* value) {
    auto it = clones_.find(value);
    if (it != clones_.end()) return it->second;
    auto reshape = std::make_unique<Op>();
    reshape->kind = OpKind::kReshape;
    reshape->operands = {clones_.at(Storage(value))};
    reshape->type = Type{reshape->operands[0]->type.dtype, value->type.extents};
    return clones_[value] = Insert(std::move(reshape));
  }

  const OpSet& own_;
  const WeightSlots& slots_;
  const StorageTypes& types_;
  Func func_{"row"};
  RowGroup group_;
  OpSet seen_;
  absl::flat_hash_map<const Op*, Op*> clones_;
  absl::flat_hash_map<const Op*, Type> scales_;  // as the kernel reads them
  std::map<std::pair<Op*, DType>, Op*> casts_;
  absl::flat_hash_map<std::pair<std::string, int64_t>, int64_t> layers_;
  int next_ = 0;
};

// Of a group that only appends, which has to leave something: the value with the fewest elements a
// row, of what it computes if it does.
const Op* SmallestValue(absl::Span<const Op* const> computed) {
  const Op* smallest = nullptr;
  for (const Op* op : computed) {
    if (op->Is(OpKind::kKvAppend)) continue;
    if (smallest == nullptr || ElementsOf(*op) < ElementsOf(*smallest)) smallest = op;
  }
  return smallest == nullptr ? computed.front()->operand(0) : smallest;
}

// A kernel that knows pages finds V behind K.
absl::Status CheckWholeLayers(const RowGroup& group) {
  for (const Op* append : group.appends) {
    const bool is_whole =
        std::any_of(group.appends.begin(), group.appends.end(), [append](const Op* other) {
          return other != append && other->Int(AttrKind::kLayer) == append->Int(AttrKind::kLayer);
        });
    if (is_whole) continue;
    return absl::UnimplementedError(Describe(
        *append, absl::StrCat("K and V of layer ", append->Int(AttrKind::kLayer),
                              " are appended by two kernels; this target's append both at once")));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<RowGroup> MakeRowGroup(absl::Span<const Op* const> ops, const OpSet& read_outside,
                                      const WeightSlots& slots, const StorageTypes& types,
                                      const Target& target) {
  const OpSet own(ops.begin(), ops.end());
  std::vector<const Op*> computed;  // all but changes of shape
  for (const Op* op : ops) {
    if (!HasRowKernel(op->kind)) return Refuse(*op);
    if (!HasLetters(op->type)) return Refuse(*op, " on weights alone");
    if (Storage(op) == op) computed.push_back(op);
  }
  RowWriter writer(own, slots, types);
  for (const Op* op : computed) {
    for (const Op* operand : op->operands) {
      const bool is_weight = slots.Contains(operand);
      if (!is_weight && !HasLetters(operand->type)) {
        return Refuse(*operand, " on weights alone");
      }
      if (is_weight && slots.LayoutOf(operand) != WeightLayout::kRows && !op->Is(OpKind::kEmbed)) {
        return absl::UnimplementedError(Describe(
            *op,
            absl::StrCat("reads %", operand->name, ", which a linear reads too; only embed can")));
      }
      writer.AddInput(operand);
    }
    if (op->Is(OpKind::kKvAppend) || op->Is(OpKind::kQuantize)) writer.AddScale(op);
  }
  writer.MakeArgs();
  std::vector<const Op*> outputs;
  for (const Op* op : computed) {
    writer.Append(op);
    if (read_outside.contains(op) && !op->Is(OpKind::kKvAppend)) outputs.push_back(op);
  }
  if (outputs.empty()) outputs.push_back(SmallestValue(computed));
  const bool knows_pages = target.traits.rows_know_pages;
  QUIRE_ASSIGN_OR_RETURN(RowGroup group,
                         writer.Finish(std::move(outputs), knows_pages ? target.page_tokens : 0));
  if (knows_pages) QUIRE_RETURN_IF_ERROR(CheckWholeLayers(group));
  return group;
}

}  // namespace quire
