#include "codegen/cpu/emit_row.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "codegen/cpu/abi.h"
#include "codegen/row_ops.h"
#include "ir/status.h"
#include "ir/text.h"

namespace quire {
namespace {

using V = LlvmValue;

absl::Status Refuse(const Op& op, absl::string_view what) {
  return absl::UnimplementedError(
      absl::StrCat("cpu: row kernel: %", op.name, ": ", op.def().mnemonic, ": ", what));
}

}  // namespace

std::vector<int64_t> DenseStrides(const std::vector<int64_t>& extents) {
  std::vector<int64_t> strides(extents.size(), 1);
  for (size_t i = extents.size(); i-- > 1;) strides[i - 1] = strides[i] * extents[i];
  return strides;
}

absl::StatusOr<EmittedKernel> RowEmitter::Emit() {
  rows_ = RowLetter(func_);
  users_ = func_.Users();
  const V begin{"i64", "%row_begin"}, end{"i64", "%row_end"};
  w_.BeginFunction(kMainEntry, {operands_, step_, scratch_, begin, end});
  size_t operand = 0;
  const auto next_pointer = [&] {
    return w_.Load("ptr", w_.At(operands_, static_cast<int64_t>(8 * operand++)), 8);
  };
  for (const auto& arg : func_.args()) pointers_[arg.get()] = next_pointer();
  for (const auto& op : func_.ops()) {
    if (op->Is(OpKind::kKvAppend)) pointers_[op.get()] = next_pointer();
  }
  for (const Op* value : func_.returns()) {
    first_return_.try_emplace(value, returns_.size());
    returns_.push_back(next_pointer());
  }
  absl::Status status;
  for (const Part& part : Parts()) {
    w_.For(begin, end, 1, [&](const V& row) {
      row_ = row;
      BindArguments();
      for (const Op* op : part.ops) {
        if (status.ok()) status = EmitOp(*op);
      }
      if (status.ok()) EmitReturns(part);
    });
    QUIRE_RETURN_IF_ERROR(status);
  }
  w_.EndFunction();
  return EmittedKernel{w_.Finish(), scratch_bytes_, RowOperandsOf(func_)};
}

std::vector<RowEmitter::Part> RowEmitter::Parts() const {
  // Every op's part by the number of one of its ops.
  std::map<const Op*, size_t> numbers;
  std::vector<size_t> joined;
  const auto find = [&](size_t number) {
    while (joined[number] != number) number = joined[number];
    return number;
  };
  const Op* rope = nullptr;
  for (const auto& op : func_.ops()) {
    const size_t number = numbers[op.get()] = joined.size();
    joined.push_back(number);
    std::vector<const Op*> others(op->operands.begin(), op->operands.end());
    if (op->Is(OpKind::kRope)) others.push_back(std::exchange(rope, op.get()));
    for (const Op* other : others) {
      const auto found = numbers.find(other);
      if (found == numbers.end()) continue;  // an argument
      const size_t a = find(number), b = find(found->second);
      joined[std::max(a, b)] = std::min(a, b);
    }
  }
  std::map<size_t, Part> parts;
  for (const auto& op : func_.ops()) parts[find(numbers.at(op.get()))].ops.push_back(op.get());
  for (size_t i = 0; i < func_.returns().size(); ++i) {
    const auto found = numbers.find(func_.returns()[i]);
    parts[found == numbers.end() ? 0 : find(found->second)].returns.push_back(i);
  }
  std::vector<Part> ordered;
  for (auto& [number, part] : parts) ordered.push_back(std::move(part));
  return ordered;
}

void RowEmitter::BindArguments() {
  for (const auto& arg : func_.args()) {
    // Block types are read by embed alone, and rows of another letter by take alone.
    const Type& type = arg->type;
    if (IsBlockType(type.dtype) || (HasRowExtent(type) && type.extents[0].letter() != rows_))
      continue;
    const std::vector<int64_t> extents = InnerExtents(type);
    View view{pointers_.at(arg.get()), type.dtype, 0, DenseStrides(extents)};
    if (HasRowExtent(type)) {
      view.base = w_.At(view.base, w_.Mul(row_, I64(RowBytes(type.dtype, CountOf(extents)))));
    }
    views_[arg.get()] = view;
  }
}

bool RowEmitter::IsLazy(const Op& op) const {
  auto users = users_.find(&op);
  return IsPointwise(op.kind) && first_return_.find(&op) == first_return_.end() &&
         users != users_.end() && users->second.size() == 1 &&
         IsPointwise(users->second[0]->kind) && users->second[0]->type.extents == op.type.extents;
}

View RowEmitter::NewPlace(const Op& op) {
  const std::vector<int64_t> extents = InnerExtents(op.type);
  View place{{}, DType::kF32, 0, DenseStrides(extents)};
  const int64_t bytes = 4 * CountOf(extents);
  owned_.insert(&op);
  auto output = first_return_.find(&op);
  if (output != first_return_.end()) {
    place.base = w_.At(returns_[output->second], w_.Mul(row_, I64(bytes)));
  } else {
    place.base = w_.At(scratch_, scratch_bytes_);
    scratch_bytes_ += (bytes + 63) / 64 * 64;
  }
  return place;
}

const View& RowEmitter::Materialised(const Op& op) {
  auto it = views_.find(&op);
  if (it != views_.end()) return it->second;
  const View place = NewPlace(op);
  Elementwise(op, place);
  return views_[&op] = place;
}

absl::Status RowEmitter::EmitOp(const Op& op) {
  if (IsPointwise(op.kind)) {
    if (!IsLazy(op)) Materialised(op);
    return absl::OkStatus();
  }
  switch (op.kind) {
    case OpKind::kReshape:
      Reshape(op);
      return absl::OkStatus();
    case OpKind::kSlice:
      Slice(op);
      return absl::OkStatus();
    case OpKind::kConcat:
      Concat(op);
      return absl::OkStatus();
    case OpKind::kExpandHeads:
      ExpandHeads(op);
      return absl::OkStatus();
    case OpKind::kTake:
      return Take(op);
    case OpKind::kRmsNorm:
    case OpKind::kLayerNorm:
      Norm(op);
      return absl::OkStatus();
    case OpKind::kQuantize:
      Quantize(op);
      return absl::OkStatus();
    case OpKind::kRope:
      Rope(op);
      return absl::OkStatus();
    case OpKind::kEmbed:
      Embed(op);
      return absl::OkStatus();
    case OpKind::kKvAppend:
      KvAppend(op);
      return absl::OkStatus();
    default:
      return Refuse(op, "no row kernel computes this op");
  }
}

void RowEmitter::Reshape(const Op& op) {
  const Op& x = *op.operand(0);
  const std::vector<int64_t> from = InnerExtents(x.type), to = InnerExtents(op.type);
  View view = Materialised(x);
  if (view.strides != DenseStrides(from)) {
    View dense = NewPlace(op);
    dense.strides = DenseStrides(from);
    Copy(view, dense, from);
    view = dense;
  }
  view.strides = DenseStrides(to);
  views_[&op] = view;
}

void RowEmitter::Slice(const Op& op) {
  View view = Materialised(*op.operand(0));
  const size_t axis = static_cast<size_t>(op.Int(AttrKind::kAxis)) - 1;
  view.offset += op.Int(AttrKind::kBegin) * view.strides[axis];
  views_[&op] = view;
}

void RowEmitter::Concat(const Op& op) {
  const View place = NewPlace(op);
  View part = place;
  const size_t axis = static_cast<size_t>(op.Int(AttrKind::kAxis)) - 1;
  for (const Op* operand : op.operands) {
    const std::vector<int64_t> extents = InnerExtents(operand->type);
    Copy(Materialised(*operand), part, extents);
    part.offset += extents[axis] * part.strides[axis];
  }
  views_[&op] = place;
}

void RowEmitter::ExpandHeads(const Op& op) {
  const std::vector<int64_t> extents = InnerExtents(op.operand(0)->type);
  const int64_t heads = extents[0], group = op.Int(AttrKind::kGroup);
  View from = Materialised(*op.operand(0));
  const View place = NewPlace(op);
  const bool interleave = op.Text(AttrKind::kOrder) == "interleave";
  const std::vector<int64_t> dims = interleave ? std::vector<int64_t>{heads, group, extents[1]}
                                               : std::vector<int64_t>{group, heads, extents[1]};
  from.strides.insert(from.strides.begin() + (interleave ? 1 : 0), 0);
  View to = place;
  to.strides = DenseStrides(dims);
  Copy(from, to, dims);
  views_[&op] = place;
}

absl::Status RowEmitter::Take(const Op& op) {
  const Op& x = *op.operand(0);
  if (!x.Is(OpKind::kArg)) return Refuse(op, "takes rows of a value of the same kernel");
  const std::vector<int64_t> extents = InnerExtents(op.type);
  const V number = w_.Load("i32", Address(views_.at(op.operand(1)), {}, I64(0)), 4);
  const V bytes =
      w_.Mul(w_.Convert("sext", number, "i64"), I64(RowBytes(x.type.dtype, CountOf(extents))));
  views_[&op] = {w_.At(pointers_.at(&x), bytes), x.type.dtype, 0, DenseStrides(extents)};
  return absl::OkStatus();
}

void RowEmitter::EmitReturns(const Part& part) {
  for (const size_t i : part.returns) {
    const Op& value = *func_.returns()[i];
    const std::vector<int64_t> extents = InnerExtents(value.type);
    const View& view = Materialised(value);
    const View output{w_.At(returns_[i], w_.Mul(row_, I64(4 * CountOf(extents)))), DType::kF32, 0,
                      DenseStrides(extents)};
    // A view (an argument, a slice), or a value returned a second time.
    const bool is_in_place = owned_.find(&value) != owned_.end() && first_return_.at(&value) == i;
    if (!is_in_place) Copy(view, output, extents);
  }
}

absl::StatusOr<EmittedKernel> EmitRows(const RowSpec& spec) {
  QUIRE_ASSIGN_OR_RETURN(const Module module, ParseRowFunc(spec, "cpu"));
  return RowEmitter(*module.funcs[0]).Emit();
}

}  // namespace quire
