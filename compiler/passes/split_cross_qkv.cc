// split-cross-qkv: a packed projection computes for each of its inputs only what is read.
//
//   linear(x, w), columns [a, b) read; linear(y, w), columns [c, d) read
//     =>  linear(x, slice(w, a, b)), linear(y, slice(w, c, d))
//
// Legal because a linear's columns are independent of one another: those that nobody reads need not
// be computed, and a bias goes with its columns. Weights are cut along axis 0, by whole rows, so
// that quantised blocks stay as they are. Considered are projections whose weight several inputs
// share, as one matrix for queries, keys and values does in cross-attention. Declines for a
// projection when:
//   - its weight or bias is computed;
//   - it is returned, or read by another op than slices of its columns;
//   - its first and its last column are both read.
// Saves the multiply-adds of columns that nobody reads: two thirds of the queries' side, one third
// of the keys' and values'.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "compiler/pass.h"
#include "compiler/row_wise.h"
#include "ir/builder.h"
#include "ir/status.h"

namespace quire {
namespace {

using UserMap = absl::flat_hash_map<const Op*, std::vector<Op*>>;

// Columns of a projection that are read, or why it stays.
struct Columns {
  int64_t begin = 0, end = 0;
  std::string declined;
};

Columns ReadColumns(const Func& func, const Op& linear, const UserMap& users,
                    const OpSet& weights) {
  Columns columns;
  for (int i = 1; i < linear.num_operands(); ++i) {
    if (weights.contains(linear.operand(i))) continue;
    columns.declined = absl::StrCat("%", linear.operand(i)->name, " is computed");
    return columns;
  }
  const int64_t all = linear.type.extents.back().value();
  columns.begin = all;
  if (func.IsReturned(&linear)) columns.declined = "it is returned";
  const auto readers = users.find(&linear);
  if (readers == users.end()) return columns;
  for (const Op* user : readers->second) {
    const bool cuts_columns =
        user->Is(OpKind::kSlice) && user->Int(AttrKind::kAxis) == linear.type.rank() - 1;
    if (!cuts_columns) {
      columns.declined = absl::StrCat("%", user->name, ": ", user->def().mnemonic,
                                      " reads it, which is no slice of its columns");
      return columns;
    }
    columns.begin = std::min(columns.begin, user->Int(AttrKind::kBegin));
    columns.end = std::max(columns.end, user->Int(AttrKind::kEnd));
  }
  if (columns.begin == 0 && columns.end == all) {
    columns.declined = "its first and its last column are read";
  }
  return columns;
}

absl::Status Narrow(Func& func, Op* linear, const Columns& columns,
                    const std::vector<Op*>& slices) {
  Builder builder(&func, linear);
  std::vector<Op*> operands = {linear->operand(0)};
  for (int i = 1; i < linear->num_operands(); ++i) {
    builder.Named(absl::StrCat(linear->name, i == 1 ? ".w" : ".b"));
    operands.push_back(builder.Slice(linear->operand(i), 0, columns.begin, columns.end));
  }
  Op* narrow = builder.Named(linear->name).Make(OpKind::kLinear, std::move(operands));
  QUIRE_RETURN_IF_ERROR(builder.status());
  for (Op* slice : slices) {
    const int64_t begin = slice->Int(AttrKind::kBegin) - columns.begin;
    const int64_t end = slice->Int(AttrKind::kEnd) - columns.begin;
    if (begin == 0 && end == columns.end - columns.begin) {
      func.ReplaceUses(slice, narrow);
      func.Erase(slice);
      continue;
    }
    slice->operands[0] = narrow;
    slice->Set(AttrKind::kBegin, begin);
    slice->Set(AttrKind::kEnd, end);
  }
  const std::string name = linear->name;
  func.Erase(linear);
  func.Rename(narrow, name);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<bool> SplitCrossQkv(Func& func, const Target&, Notes& notes) {
  const UserMap users = func.Users();
  const OpSet weights = WeightExpressionsOf(func);
  std::vector<std::pair<Op*, Columns>> found;
  for (const auto& op : func.ops()) {
    if (!op->Is(OpKind::kLinear)) continue;
    const auto& readers = users.at(op->operand(1));
    const bool is_shared = std::any_of(readers.begin(), readers.end(), [&](const Op* other) {
      return other->Is(OpKind::kLinear) && other->operand(1) == op->operand(1) &&
             other->operand(0) != op->operand(0);
    });
    if (!is_shared || !users.contains(op.get())) continue;
    Columns columns = ReadColumns(func, *op, users, weights);
    const int64_t width = op->operand(1)->type.extents[1].value();
    if (!columns.declined.empty()) {
      notes.Declined(op->name, columns.declined);
      continue;
    }
    notes.Fired(op->name, absl::StrCat("multiply-adds for each row: ",
                                       op->type.extents.back().value() * width, " => ",
                                       (columns.end - columns.begin) * width));
    found.emplace_back(op.get(), std::move(columns));
  }
  for (const auto& [linear, columns] : found) {
    QUIRE_RETURN_IF_ERROR(Narrow(func, linear, columns, users.at(linear)));
  }
  return !found.empty();
}

}  // namespace quire
