#include "compiler/linear_group.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "compiler/storage_types.h"

namespace quire {
namespace {

// One half of the last axis: 0 or 1; -1 for other slices.
int HalfOf(const Op& op) {
  if (!op.Is(OpKind::kSlice) || op.Int(AttrKind::kAxis) != op.type.rank() - 1) return -1;
  if (op.type.extents.back().is_letter()) return -1;
  const int64_t all = op.operand(0)->type.extents.back().value();
  const int64_t begin = op.Int(AttrKind::kBegin), end = op.Int(AttrKind::kEnd);
  if (all % 2 != 0 || end - begin != all / 2) return -1;
  return begin == 0 ? 0 : (end == all ? 1 : -1);
}

bool IsNorm(const Op& op) { return op.Is(OpKind::kRmsNorm) || op.Is(OpKind::kLayerNorm); }

// Whether `value` depends on a linear or attention.
bool FollowsALinear(const Op* value) {
  std::vector<const Op*> open = {value};
  OpSet seen = {value};
  while (!open.empty()) {
    const Op* op = open.back();
    open.pop_back();
    if (op->Is(OpKind::kLinear) || op->Is(OpKind::kAttention)) return true;
    for (const Op* operand : op->operands) {
      if (seen.insert(operand).second) open.push_back(operand);
    }
  }
  return false;
}

class Finder {
 public:
  Finder(const Func& func, const OpSet& weights, const Target& target, Notes& notes)
      : func_(func), weights_(weights), types_(func, target), users_(func.Users()), notes_(notes) {}

  // The add that takes `linear` as an epilogue, or nullptr.
  const Op* Residual(const Op& linear) const {
    const Op* add = OnlyReader(linear);
    if (add == nullptr || !add->Is(OpKind::kAdd) || add->operand(0) == add->operand(1)) {
      return nullptr;
    }
    if (add->operand(0)->type != linear.type || add->operand(1)->type != linear.type) {
      return nullptr;
    }
    const Op* residual = add->operand(add->operand(0) == &linear ? 1 : 0);
    return types_.Of(Storage(residual)) == types_.Of(add) ? add : nullptr;
  }

  // Fills in the act of the group's linear, and the halves where it is gated, if there is one.
  void FindAct(LinearGroup* group) const {
    const Op& linear = *group->linear;
    LinearGroup found = *group;
    found.act = OnlyReader(linear);
    const bool is_alone = found.act != nullptr && ActOf(*found.act) != LinearAct::kNone;
    if (!is_alone && !FindHalves(&found)) return;
    notes_.Fired(linear.name,
                 absl::StrCat("computes ", LinearActText(ActOf(*found.act)),
                              found.gated == nullptr ? " of it: %"
                                                     : " of its first half, times its second: %",
                              found.result()->name));
    *group = found;
  }

  // The linears that compute `norm` themselves; none where it is declined.
  std::vector<Op*> ReadersOfNorm(const Op& norm) const {
    const auto readers = users_.find(&norm);
    if (readers == users_.end() || func_.IsReturned(&norm)) return {};
    size_t linears = 0;
    for (const Op* reader : readers->second) {
      linears += reader->Is(OpKind::kLinear) && reader->operand(0) == &norm ? 1 : 0;
    }
    if (linears == 0) return {};
    for (const Op* reader : readers->second) {
      if (reader->Is(OpKind::kLinear)) continue;
      notes_.Declined(norm.name, absl::StrCat("%", reader->name, " reads it, too"));
      return {};
    }
    for (int i = 1; i < norm.num_operands(); ++i) {
      if (weights_.contains(norm.operand(i))) continue;
      notes_.Declined(norm.name, absl::StrCat("%", norm.operand(i)->name, " is computed"));
      return {};
    }
    return readers->second;
  }

 private:
  const Op* OnlyReader(const Op& op) const {
    const auto readers = users_.find(&op);
    const bool is_one =
        readers != users_.end() && readers->second.size() == 1 && !func_.IsReturned(&op);
    return is_one ? readers->second[0] : nullptr;
  }

  // act(first half) * second half.
  bool FindHalves(LinearGroup* group) const {
    const auto readers = users_.find(group->linear);
    if (readers == users_.end() || func_.IsReturned(group->linear)) return false;
    for (const Op* reader : readers->second) {
      const int half = HalfOf(*reader);
      if (half < 0) return false;
      const Op*& place = half == 0 ? group->first : group->second;
      if (place != nullptr) return false;
      place = reader;
    }
    if (group->first == nullptr || group->second == nullptr) return false;
    group->act = OnlyReader(*group->first);
    group->gated = OnlyReader(*group->second);
    if (group->act == nullptr || group->gated == nullptr) return false;
    if (ActOf(*group->gated) != LinearAct::kNone && group->act->Is(OpKind::kMul)) {
      notes_.Declined(group->linear->name,
                      absl::StrCat(LinearActText(ActOf(*group->gated)), " %", group->gated->name,
                                   " is of its second half"));
      return false;
    }
    return ActOf(*group->act) != LinearAct::kNone && group->gated->Is(OpKind::kMul) &&
           OnlyReader(*group->act) == group->gated;
  }

  const Func& func_;
  const OpSet& weights_;
  const StorageTypes types_;
  const absl::flat_hash_map<const Op*, std::vector<Op*>> users_;
  Notes& notes_;
};

// Gives each linear its norm; true if one was copied.
bool FindNorms(Func& func, const Finder& finder, Notes& notes, std::vector<LinearGroup>* groups) {
  OpSet results;
  absl::flat_hash_map<const Op*, LinearGroup*> by_linear;
  for (LinearGroup& group : *groups) {
    results.insert(group.result());
    by_linear[group.linear] = &group;
  }
  std::vector<Op*> norms;
  for (const auto& op : func.ops()) {
    if (IsNorm(*op)) norms.push_back(op.get());
  }
  bool has_copied = false;
  for (Op* norm : norms) {
    const std::vector<Op*> linears = finder.ReadersOfNorm(*norm);
    if (linears.empty()) continue;
    const Op* x = Storage(norm->operand(0));
    if (!results.contains(x) && !x->Is(OpKind::kAttention) && FollowsALinear(x)) {
      notes.Declined(norm->name,
                     absl::StrCat("the row kernel of %", x->name, " computes it in passing"));
      continue;
    }
    notes.Fired(norm->name,
                absl::StrCat("computed by ",
                             linears.size() == 1
                                 ? "%"
                                 : absl::StrCat("each of ", linears.size(), " linears, first %"),
                             linears[0]->name));
    for (Op* linear : linears) {
      Op* own = norm;
      if (linear != linears[0]) {
        own = func.Insert(std::make_unique<Op>(*norm), linear);
        linear->operands[0] = own;
        has_copied = true;
      }
      by_linear[linear]->norm = own;
    }
  }
  return has_copied;
}

}  // namespace

LinearAct ActOf(const Op& op) {
  switch (op.kind) {
    case OpKind::kSilu:
      return LinearAct::kSilu;
    case OpKind::kGelu: {
      const std::string& approximate = op.Text(AttrKind::kApproximate);
      return approximate == "none"   ? LinearAct::kGelu
             : approximate == "tanh" ? LinearAct::kGeluTanh
                                     : LinearAct::kGeluQuick;
    }
    case OpKind::kRelu:
      return LinearAct::kRelu;
    case OpKind::kTanh:
      return LinearAct::kTanh;
    case OpKind::kSigmoid:
      return LinearAct::kSigmoid;
    default:
      return LinearAct::kNone;
  }
}

const Op* LinearGroup::result() const {
  if (gated != nullptr) return gated;
  if (act != nullptr) return act;
  return add != nullptr ? add : linear;
}

const Op* LinearGroup::residual() const {
  return add == nullptr ? nullptr : add->operand(add->operand(0) == linear ? 1 : 0);
}

std::vector<const Op*> LinearGroup::ops() const {
  std::vector<const Op*> all = {norm, linear, add, first, second, act, gated};
  all.erase(std::remove(all.begin(), all.end(), nullptr), all.end());
  return all;
}

LinearGroup ReadLinearGroup(absl::Span<const Op* const> ops) {
  LinearGroup group;
  for (const Op* op : ops) {
    if (IsNorm(*op)) {
      group.norm = op;
    } else if (op->Is(OpKind::kLinear)) {
      group.linear = op;
    } else if (op->Is(OpKind::kAdd)) {
      group.add = op;
    } else if (HalfOf(*op) >= 0) {
      (HalfOf(*op) == 0 ? group.first : group.second) = op;
    } else if (op->Is(OpKind::kMul)) {
      group.gated = op;
    } else if (ActOf(*op) != LinearAct::kNone) {
      group.act = op;
    }
  }
  return group;
}

LinearGroups::LinearGroups(Func& func, const OpSet& weights, const Target& target, Notes& notes) {
  const TargetTraits& traits = target.traits;
  Finder finder(func, weights, target, notes);
  std::vector<LinearGroup> found;
  for (const auto& op : func.ops()) {
    if (!op->Is(OpKind::kLinear)) continue;
    LinearGroup group;
    group.linear = op.get();
    group.add = finder.Residual(*op);
    if (group.add == nullptr && traits.fuses_activations) finder.FindAct(&group);
    found.push_back(group);
  }
  if (traits.fuses_norms) has_copied_ = FindNorms(func, finder, notes, &found);
  for (const LinearGroup& group : found) {
    groups_.push_back(std::make_unique<LinearGroup>(group));
    for (const Op* op : group.ops()) by_op_[op] = groups_.back().get();
  }
}

const LinearGroup* LinearGroups::Of(const Op* op) const {
  auto it = by_op_.find(op);
  return it == by_op_.end() ? nullptr : it->second;
}

}  // namespace quire
