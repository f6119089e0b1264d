// narrow-outputs: rows whose logits nobody asked for are dropped as early as nothing else needs
// them.
//
//   return f(x) : [T,...]  =>  return f(take(x, rows)) : [R,...], with a new argument rows: i32[R]
//
// f is everything that only the results read: row-wise ops whose every reader is one of f or the
// return itself. Legal because a row-wise op computes a row from that row alone, so that picking
// rows before it or after it is the same. An embedding, which looks up an argument, keeps its rows.
// Declines when a result has no rows T. For a decoder, f
// reaches back to the last attention: the head, the last norm and the last layer's feed-forward run
// on R rows.
// Saves (T - R)/T of the multiply-adds of f.
#include <algorithm>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "compiler/pass.h"
#include "compiler/row_wise.h"
#include "ir/builder.h"
#include "ir/status.h"

namespace quire {
namespace {

// The ops of f: in reverse program order, so that readers are decided first.
OpSet OnlyReadByResults(const Func& func) {
  const auto users = func.Users();
  const OpSet returned(func.returns().begin(), func.returns().end());
  OpSet narrowed;
  for (auto it = func.ops().rbegin(); it != func.ops().rend(); ++it) {
    const Op* op = it->get();
    if (!HasRows(op->type, 'T') || !CheckRowWise(*op, 'T').ok()) continue;
    if (op->Is(OpKind::kEmbed)) continue;
    const auto readers = users.find(op);
    const bool is_read = readers != users.end();
    if (!is_read && !returned.contains(op)) continue;
    if (is_read && !std::all_of(readers->second.begin(), readers->second.end(),
                                [&](const Op* user) { return narrowed.contains(user); })) {
      continue;
    }
    narrowed.insert(op);
  }
  return narrowed;
}

// Multiply-adds of one row.
int64_t MultiplyAdds(const Op& op) {
  if (!op.Is(OpKind::kLinear)) return 0;
  const Extents& w = op.operand(1)->type.extents;
  return w[0].value() * w[1].value();
}

}  // namespace

absl::StatusOr<bool> NarrowOutputs(Func& func, const Target&, Notes& notes) {
  for (const Op* result : func.returns()) {
    if (!HasRows(result->type, 'T')) {
      notes.Declined(result->name, "the result has no rows T");
      return false;
    }
  }
  const OpSet narrowed = OnlyReadByResults(func);
  Op* rows = func.AddArg("rows", Type{DType::kI32, {Extent::Letter('R')}});
  absl::flat_hash_map<const Op*, Op*> taken;
  absl::Status status;
  auto take = [&](Op* value, const Op* before) {
    Op*& result = taken[value];
    if (result == nullptr) {
      Builder builder(&func, before);
      result = builder.Named(absl::StrCat(value->name, "_rows")).Make(OpKind::kTake, {value, rows});
      status.Update(builder.status());
    }
    return result;
  };

  std::vector<Op*> ops;
  for (const auto& op : func.ops()) {
    if (narrowed.contains(op.get())) ops.push_back(op.get());
  }
  int64_t saved = 0;
  for (Op* op : ops) {
    for (Op*& operand : op->operands) {
      if (HasRows(operand->type, 'T') && !narrowed.contains(operand)) operand = take(operand, op);
    }
    op->type.extents[0] = Extent::Letter('R');
    saved += MultiplyAdds(*op);
  }
  std::vector<Op*> returns = func.returns();
  for (Op*& result : returns) {
    if (HasRows(result->type, 'T')) result = take(result, nullptr);
  }
  QUIRE_RETURN_IF_ERROR(status);
  func.set_returns(std::move(returns));
  notes.Fired(func.returns()[0]->name,
              absl::StrCat("multiply-adds for each row without logits: ", saved, " => 0"));
  return true;
}

}  // namespace quire
