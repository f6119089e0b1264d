// fuse: ops are grouped into the kernels that will run them; ops are re-ordered by group.
//
//   - a linear, an add that alone reads it (its residual), and where the target's kernels compute
//     them a norm before and an activation behind it are one group (compiler/linear_group.h);
//   - where the target's kernels append, K and V that a linear computes and nothing else reads are
//     appended in its group, and queries and K turned by rope (compiler/linear_append.h);
//   - attention is a group, and so is any op that is not row-wise;
//   - row-wise ops with the same rows, between the same linears and attentions, are one group;
//   - appends to the cross cache are a group of their own, with the row-wise ops that they alone
//     read.
// A reshape that keeps the rows is the same memory under another type: it belongs to the group of
// what it reshapes. Weight expressions and reads of caches belong to no group.
//
// Every group has a level: what it reads comes from row groups of its own level or from anything
// below; a row op that reads a linear or attention, or rows of another extent, is one level up.
// Levels never fall along an edge, so the groups form no cycle, and each row op runs as early as it
// can together with all others of its level. Legal because grouping changes no value. A norm that
// several linears compute is copied for each; ops that nobody reads are dropped.
// Declines an add as residual when another op reads the linear too, or the types differ, of the
// values or of their places in memory; norms, activations and appends as compiler/linear_group.h
// says.
// Saves a launch and a trip through memory for each value that only its own group reads.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "compiler/linear_group.h"
#include "compiler/pass.h"
#include "compiler/row_wise.h"

namespace quire {
namespace {

// Order in which groups run: by level; row groups before the linears and attentions that may read
// them; then by rows, or by place in the function.
using GroupKey = std::tuple<int, bool, size_t>;

bool IsRowOp(const Op& op) {
  if (op.Is(OpKind::kKvAppend)) return true;  // writes rows; only attention reads the whole
  if (op.Is(OpKind::kLinear) || op.type.rank() == 0 || !op.type.extents[0].is_letter())
    return false;
  return CheckRowWise(op, op.type.extents[0].letter()).ok();
}

// Which rows a row op computes: ops of one kind may share a kernel. Appends to the cross cache are
// of a kind of their own, since a kernel appends to pages of one class.
constexpr size_t kCrossRows = 256;
size_t RowsOf(const Op& op) {
  const bool appends = op.Is(OpKind::kKvAppend);
  const Type& type = appends ? op.operand(0)->type : op.type;
  const auto letter = static_cast<size_t>(type.extents[0].letter());
  return appends && op.Text(AttrKind::kCache) == "cross" ? letter + kCrossRows : letter;
}

class Grouping {
 public:
  Grouping(const Func& func, const OpSet& weights, const LinearGroups& linears)
      : func_(func), weights_(weights), linears_(linears) {}

  void Place() {
    for (size_t i = 0; i < func_.ops().size(); ++i) {
      const Op* op = func_.ops()[i].get();
      if (weights_.contains(op) || IsThereBefore(*op)) continue;
      if (const LinearGroup* linear = linears_.Of(op); linear != nullptr) {
        // All wait for the last: what a residual adds may be of a higher level than the input.
        if (op == linear->last_reader()) PlaceLinear(*linear, i);
      } else if (Storage(op) != op) {
        auto stored = keys_.find(Storage(op));
        if (stored == keys_.end()) continue;
        const GroupKey key = stored->second;  // the insertion may move what `stored` points to
        keys_[op] = key;
      } else if (IsRowOp(*op)) {
        keys_[op] = GroupKey(LevelFor(*op), false, RowsOf(*op));
        if (op->Is(OpKind::kKvAppend)) JoinSlots(op);
      } else {
        keys_[op] = GroupKey(LevelFor(*op), true, i);
      }
    }
    JoinAppends();
  }

  // Numbers of the groups, in the order in which they run.
  absl::flat_hash_map<const Op*, int> Numbers() const {
    std::map<GroupKey, int> numbers;
    for (const auto& [op, key] : keys_) numbers[key] = 0;
    int next = 0;
    for (auto& [key, number] : numbers) number = next++;
    absl::flat_hash_map<const Op*, int> groups;
    for (const auto& [op, key] : keys_) groups[op] = numbers[key];
    return groups;
  }

 private:
  // What a cache keeps is there before any group runs, as are its scales.
  bool IsThereBefore(const Op& op) const {
    return op.Is(OpKind::kKvRead) &&
           std::all_of(op.operands.begin(), op.operands.end(),
                       [&](const Op* operand) { return weights_.contains(operand); });
  }

  void PlaceLinear(const LinearGroup& group, size_t place) {
    int level = 0;
    for (const Op* op : group.ops()) level = std::max(level, LevelFor(*op));
    for (const Op* op : group.ops()) keys_[op] = GroupKey(level, true, place);
  }

  // K and V of a layer that an encoder leaves go together, since a kernel may have to append both.
  // Nothing reads them in their own function: the later level does for both.
  void JoinSlots(const Op* append) {
    if (append->Text(AttrKind::kCache) != "cross") return;
    const Op*& other = left_[append->Int(AttrKind::kLayer)];
    if (other != nullptr) {
      keys_[append] = keys_[other] = std::max(keys_[append], keys_[other]);
    }
    other = append;
  }

  // What appends to the cross cache alone read is computed by the kernel that appends it: written
  // to memory nowhere else. Nothing reads it before, and what it reads is below its own level.
  void JoinAppends() {
    // A value with its reshapes, and the keys of what reads them.
    absl::flat_hash_map<const Op*, std::vector<const Op*>> values;
    absl::flat_hash_map<const Op*, std::set<GroupKey>> readers;
    const GroupKey caller;
    for (const Op* op : func_.returns()) readers[Storage(op)].insert(caller);
    for (size_t i = func_.ops().size(); i-- > 0;) {
      const Op* op = func_.ops()[i].get();
      if (keys_.find(op) == keys_.end()) continue;
      values[Storage(op)].push_back(op);
      if (Storage(op) != op) continue;
      const std::set<GroupKey>& keys = readers[op];
      if (keys.size() == 1 && linears_.Of(op) == nullptr && IsRowOp(*op)) {
        const GroupKey key = *keys.begin();
        if (key == GroupKey(std::get<0>(key), false, RowsOf(*op) + kCrossRows)) {
          for (const Op* value : values[op]) keys_[value] = key;
        }
      }
      for (const Op* operand : op->operands) readers[Storage(operand)].insert(keys_.at(op));
    }
  }

  // The lowest level at which `op` finds its operands; those of its own linear are not placed yet.
  int LevelFor(const Op& op) const {
    const bool is_row_op = linears_.Of(&op) == nullptr && IsRowOp(op);
    int level = 0;
    for (const Op* operand : op.operands) {
      auto it = keys_.find(Storage(operand));
      if (it == keys_.end()) continue;
      const auto& [operand_level, operand_is_alone, rows] = it->second;
      const bool is_next = is_row_op && (operand_is_alone || rows != RowsOf(op));
      level = std::max(level, operand_level + (is_next ? 1 : 0));
    }
    return level;
  }

  const Func& func_;
  const OpSet& weights_;
  const LinearGroups& linears_;
  absl::flat_hash_map<const Op*, GroupKey> keys_;
  absl::flat_hash_map<int64_t, const Op*>
      left_;  // the last append to each layer of the cross cache
};

// Ops by group, each after the weight expressions that it is the first to read.
std::vector<const Op*> ByGroup(const Func& func, const OpSet& weights) {
  std::vector<const Op*> grouped;
  for (const auto& op : func.ops()) {
    if (!weights.contains(op.get())) grouped.push_back(op.get());
  }
  std::stable_sort(grouped.begin(), grouped.end(),
                   [](const Op* a, const Op* b) { return a->group < b->group; });
  absl::flat_hash_map<const Op*, size_t> places;
  for (size_t i = 0; i < grouped.size(); ++i) places[grouped[i]] = i;
  // A weight expression stands at its first reader, which comes earlier in this walk.
  for (auto it = func.ops().rbegin(); it != func.ops().rend(); ++it) {
    const size_t place = places.try_emplace(it->get(), grouped.size()).first->second;
    for (const Op* operand : (*it)->operands) {
      if (!weights.contains(operand)) continue;
      size_t& first = places.try_emplace(operand, place).first->second;
      first = std::min(first, place);
    }
  }
  std::vector<const Op*> order;
  for (const auto& op : func.ops()) order.push_back(op.get());
  std::stable_sort(order.begin(), order.end(), [&](const Op* a, const Op* b) {
    return std::pair(places[a], !weights.contains(a)) < std::pair(places[b], !weights.contains(b));
  });
  return order;
}

}  // namespace

absl::StatusOr<bool> Fuse(Func& func, const Target& target, Notes& notes) {
  // Scales that no cache took.
  for (const auto& op : func.ops()) {
    if (op->Is(OpKind::kKvScale)) func.ReplaceUses(op.get(), op->operand(0));
  }
  bool changed = func.EraseDead();
  const OpSet weights = WeightExpressionsOf(func);
  const LinearGroups linears(func, weights, target, notes);
  changed = changed || linears.has_copied();
  Grouping grouping(func, weights, linears);
  grouping.Place();
  const absl::flat_hash_map<const Op*, int> groups = grouping.Numbers();
  int count = 0;
  for (const auto& op : func.ops()) {
    auto it = groups.find(op.get());
    const int group = it == groups.end() ? -1 : it->second;
    changed = changed || op->group != group;
    op->group = group;
    count = std::max(count, group + 1);
  }
  const std::vector<const Op*> order = ByGroup(func, weights);
  for (size_t i = 0; i < order.size(); ++i) changed = changed || func.ops()[i].get() != order[i];
  func.Reorder(order);
  notes.Fired(func.name(), absl::StrCat(groups.size(), " ops => ", count, " launches"));
  return changed;
}

}  // namespace quire
