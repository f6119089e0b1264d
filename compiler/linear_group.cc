#include "compiler/linear_group.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "compiler/storage_types.h"
#include "ir/norm.h"

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

  void FindAppends(LinearGroup* group) const {
    group->append = quire::FindAppends(func_, *group->linear, users_, types_, notes_);
  }

  // The groups that compute `op`, a norm or quantize of their rows, themselves; none where it is
  // declined. `heads`: groups by head().
  std::vector<LinearGroup*> ReadersOf(
      const Op& op, const absl::flat_hash_map<const Op*, LinearGroup*>& heads) const {
    const auto readers = users_.find(&op);
    if (readers == users_.end() || func_.IsReturned(&op)) return {};
    std::vector<LinearGroup*> groups;
    const Op* other = nullptr;
    for (const Op* reader : readers->second) {
      const auto head = heads.find(reader);
      if (head != heads.end() && reader->operand(0) == &op) {
        groups.push_back(head->second);
      } else {
        other = reader;
      }
    }
    if (groups.empty()) return {};
    if (other != nullptr) {
      notes_.Declined(op.name, absl::StrCat("%", other->name, " reads it, too"));
      return {};
    }
    for (int i = 1; i < op.num_operands(); ++i) {
      if (weights_.contains(op.operand(i))) continue;
      notes_.Declined(op.name, absl::StrCat("%", op.operand(i)->name, " is computed"));
      return {};
    }
    return groups;
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

// Gives each linear its quantize, then its norm; true if one was copied.
bool FindHeads(Func& func, const Finder& finder, Notes& notes, bool of_norms,
               std::vector<LinearGroup>* groups) {
  OpSet results;
  absl::flat_hash_map<const Op*, LinearGroup*> heads;
  for (LinearGroup& group : *groups) {
    results.insert(group.result());
    heads[group.head()] = &group;
  }
  std::vector<Op*> ops;
  for (const auto& op : func.ops()) {
    if (of_norms ? IsNorm(*op) : op->Is(OpKind::kQuantize)) ops.push_back(op.get());
  }
  bool has_copied = false;
  for (Op* op : ops) {
    const std::vector<LinearGroup*> readers = finder.ReadersOf(*op, heads);
    if (readers.empty()) continue;
    const Op* x = Storage(op->operand(0));
    if (of_norms && !results.contains(x) && !x->Is(OpKind::kAttention) && FollowsALinear(x)) {
      notes.Declined(op->name,
                     absl::StrCat("the row kernel of %", x->name, " computes it in passing"));
      continue;
    }
    const std::string& first = readers[0]->linear->name;
    notes.Fired(op->name,
                absl::StrCat("computed by ",
                             readers.size() == 1
                                 ? "%"
                                 : absl::StrCat("each of ", readers.size(), " linears, first %"),
                             first));
    for (LinearGroup* group : readers) {
      Op* own = op;
      if (group != readers[0]) {
        Op* head = func.Find(group->head()->name);
        own = func.Insert(std::make_unique<Op>(*op), head);
        head->operands[0] = own;
        has_copied = true;
      }
      (of_norms ? group->norm : group->quantize) = own;
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

const Op* LinearGroup::head() const {
  if (norm != nullptr) return norm;
  return quantize != nullptr ? quantize : linear;
}

const Op* LinearGroup::result() const {
  if (gated != nullptr) return gated;
  if (act != nullptr) return act;
  if (append.result() != nullptr) return append.result();
  return add != nullptr ? add : linear;
}

const Op* LinearGroup::last_reader() const { return append.appends.empty() ? result() : linear; }

const Op* LinearGroup::residual() const {
  return add == nullptr ? nullptr : add->operand(add->operand(0) == linear ? 1 : 0);
}

std::vector<const Op*> LinearGroup::ops() const {
  std::vector<const Op*> all = {norm, quantize, linear, add, first, second, act, gated};
  for (const Op* op : {append.kept, append.kept_rope, append.rope}) all.push_back(op);
  all.insert(all.end(), append.slices.begin(), append.slices.end());
  all.insert(all.end(), append.appends.begin(), append.appends.end());
  all.erase(std::remove(all.begin(), all.end(), nullptr), all.end());
  return all;
}

LinearGroup ReadLinearGroup(absl::Span<const Op* const> ops) {
  LinearGroup group;
  group.append = ReadAppends(ops);
  const bool appends = !group.append.appends.empty();
  for (const Op* op : ops) {
    if (IsNorm(*op)) {
      group.norm = op;
    } else if (op->Is(OpKind::kQuantize)) {
      group.quantize = op;
    } else if (op->Is(OpKind::kLinear)) {
      group.linear = op;
    } else if (op->Is(OpKind::kAdd)) {
      group.add = op;
    } else if (!appends && HalfOf(*op) >= 0) {
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
    if (group.result() == group.linear && traits.fuses_appends) finder.FindAppends(&group);
    found.push_back(group);
  }
  if (traits.fuses_norms) {
    has_copied_ = FindHeads(func, finder, notes, /*of_norms=*/false, &found);
    // Copies read a norm, too.
    has_copied_ |=
        FindHeads(func, Finder(func, weights, target, notes), notes, /*of_norms=*/true, &found);
  }
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
