// merge-projections: projections of one input become one.
//
//   linear(x, a), linear(x, b)  =>  y = linear(x, concat(a, b)); slice(y), slice(y)
//
// Legal because a linear's columns are independent of one another: joining weights along axis 0
// joins the results along the last axis. Biases are joined likewise. Declines for a projection
// when:
//   - no other projection reads the same input;
//   - its weight's element type, or its bias (none, or its element type), is that of none of the
//     others: rows of one weight slot have one layout;
//   - its weight is computed, or is read by another op too (a tied embedding stays one tensor).
// Saves a launch and a pass over x for each projection but the first.
#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compiler/names.h"
#include "compiler/pass.h"
#include "compiler/row_wise.h"
#include "ir/builder.h"
#include "ir/status.h"

namespace quire {
namespace {

using UserMap = absl::flat_hash_map<const Op*, std::vector<Op*>>;

// Why a projection cannot be joined to any other, or "".
std::string ReasonToDecline(const Op& linear, const UserMap& users, const OpSet& weights) {
  for (int i = 1; i < linear.num_operands(); ++i) {
    const Op* weight = linear.operand(i);
    if (!weights.contains(weight)) return absl::StrCat("%", weight->name, " is computed");
    if (users.at(weight).size() > 1) {
      return absl::StrCat("%", weight->name, " is read by another op too");
    }
  }
  return "";
}

// "l7.q", "l7.k", "l7.v" become "l7.q_k_v"; "l0.k", "l0.v", "l1.k", "l1.v" become "k_v".
std::string JoinedName(const std::vector<Op*>& linears) {
  absl::string_view scope = ScopeOf(linears[0]->name);
  std::vector<absl::string_view> words;
  for (const Op* linear : linears) {
    if (ScopeOf(linear->name) != scope) scope = "";
    const absl::string_view word = WordOf(linear->name);
    if (std::find(words.begin(), words.end(), word) == words.end()) words.push_back(word);
  }
  return absl::StrCat(scope, absl::StrJoin(words, "_"));
}

absl::Status Merge(Func& func, const std::vector<Op*>& linears) {
  Op* first = linears[0];
  Builder builder(&func, first);
  const std::string name = JoinedName(linears);
  // Operand 0 is x; the rest is joined: weights, then biases.
  std::vector<Op*> operands = {first->operand(0)};
  for (int i = 1; i < first->num_operands(); ++i) {
    std::vector<Op*> parts;
    for (Op* linear : linears) parts.push_back(linear->operand(i));
    builder.Named(absl::StrCat(name, i == 1 ? ".w" : ".b"));
    operands.push_back(builder.Concat(std::move(parts), 0));
  }
  Op* merged = builder.Named(name).Make(OpKind::kLinear, std::move(operands));
  QUIRE_RETURN_IF_ERROR(builder.status());
  int64_t begin = 0;
  for (Op* linear : linears) {
    const int64_t end = begin + linear->type.extents.back().value();
    Builder at(&func, linear);
    Op* slice = at.Slice(merged, merged->type.rank() - 1, begin, end);
    QUIRE_RETURN_IF_ERROR(at.status());
    const std::string old_name = linear->name;
    func.ReplaceUses(linear, slice);
    func.Erase(linear);
    func.Rename(slice, old_name);
    begin = end;
  }
  return absl::OkStatus();
}

// The projections of `x`, in classes of what has to agree: element types of the weight and of the
// bias (-1: none). Only classes of two and more are returned.
std::vector<std::vector<Op*>> ProjectionsOf(const Op* x, const UserMap& users, const OpSet& weights,
                                            Notes& notes) {
  std::map<std::tuple<DType, int>, std::vector<Op*>> classes;
  int projections = 0;
  for (Op* op : users.at(x)) {
    if (!op->Is(OpKind::kLinear) || op->operand(0) != x) continue;
    ++projections;
    const std::string reason = ReasonToDecline(*op, users, weights);
    if (!reason.empty()) {
      notes.Declined(op->name, reason);
      continue;
    }
    const int bias = op->num_operands() > 2 ? static_cast<int>(op->operand(2)->type.dtype) : -1;
    classes[{op->operand(1)->type.dtype, bias}].push_back(op);
  }
  std::vector<std::vector<Op*>> merges;
  for (auto& [key, linears] : classes) {
    if (linears.size() > 1) {
      notes.Fired(linears[0]->name,
                  absl::StrCat(linears.size(), " projections of %", x->name, " => 1"));
      merges.push_back(std::move(linears));
    } else if (projections > 1) {
      notes.Declined(linears[0]->name,
                     "no other projection of its input has the same element types");
    }
  }
  return merges;
}

}  // namespace

absl::StatusOr<bool> MergeProjections(Func& func, const Target&, Notes& notes) {
  const UserMap users = func.Users();
  const OpSet weights = WeightExpressionsOf(func);
  std::vector<std::vector<Op*>> merges;
  auto collect = [&](const std::vector<std::unique_ptr<Op>>& values) {
    for (const auto& value : values) {
      if (!users.contains(value.get())) continue;
      for (auto& linears : ProjectionsOf(value.get(), users, weights, notes)) {
        merges.push_back(std::move(linears));
      }
    }
  };
  collect(func.args());
  collect(func.ops());
  // Edits wait until all are known: they erase ops that `users` still names.
  for (const std::vector<Op*>& linears : merges) QUIRE_RETURN_IF_ERROR(Merge(func, linears));
  if (!merges.empty()) func.SortTopologically();
  return !merges.empty();
}

}  // namespace quire
