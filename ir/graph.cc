#include "ir/graph.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace quire {
namespace {

auto Locate(const std::vector<std::unique_ptr<Op>>& ops, const Op* op) {
  return std::find_if(ops.begin(), ops.end(), [op](const auto& held) { return held.get() == op; });
}

}  // namespace

void Op::Set(AttrKind attr, AttrValue value) {
  auto it = std::lower_bound(attrs_.begin(), attrs_.end(), attr,
                             [](const auto& entry, AttrKind key) { return entry.first < key; });
  if (it != attrs_.end() && it->first == attr) {
    it->second = std::move(value);
  } else {
    attrs_.insert(it, {attr, std::move(value)});
  }
}

const AttrValue* Op::Find(AttrKind attr) const {
  for (const auto& [key, value] : attrs_) {
    if (key == attr) return &value;
  }
  return nullptr;
}

const AttrValue& Op::Get(AttrKind attr) const {
  const AttrValue* value = Find(attr);
  return value != nullptr ? *value : DefaultOf(attr);
}

Op* Func::Find(absl::string_view name) const {
  auto it = by_name_.find(name);
  return it == by_name_.end() ? nullptr : it->second;
}

Op* Func::AddArg(absl::string_view name, const Type& type) {
  auto op = std::make_unique<Op>();
  op->kind = OpKind::kArg;
  op->name = UniqueName(name);
  op->type = type;
  by_name_[op->name] = op.get();
  args_.push_back(std::move(op));
  return args_.back().get();
}

Op* Func::Insert(std::unique_ptr<Op> op, const Op* before) {
  op->name = UniqueName(op->name.empty() ? op->def().mnemonic : op->name);
  Op* inserted = op.get();
  by_name_[op->name] = inserted;
  auto it = before == nullptr ? ops_.end() : Locate(ops_, before);
  ops_.insert(it, std::move(op));
  return inserted;
}

std::string Func::UniqueName(absl::string_view base) const {
  if (!by_name_.contains(base)) return std::string(base);
  for (int suffix = 1;; ++suffix) {
    std::string name = absl::StrCat(base, ".", suffix);
    if (!by_name_.contains(name)) return name;
  }
}

void Func::Rename(Op* op, absl::string_view name) {
  by_name_.erase(op->name);
  op->name = std::string(name);
  by_name_[op->name] = op;
}

void Func::ReplaceUses(const Op* from, Op* to) {
  for (const auto& op : ops_) {
    if (op.get() == to) continue;
    for (Op*& operand : op->operands) {
      if (operand == from) operand = to;
    }
  }
  for (Op*& result : returns_) {
    if (result == from) result = to;
  }
}

bool Func::EraseDead() {
  absl::flat_hash_set<const Op*> live(returns_.begin(), returns_.end());
  for (auto it = ops_.rbegin(); it != ops_.rend(); ++it) {
    if (!live.contains(it->get())) continue;
    live.insert((*it)->operands.begin(), (*it)->operands.end());
  }
  const size_t before = ops_.size();
  for (const auto& op : ops_) {
    if (!live.contains(op.get())) by_name_.erase(op->name);
  }
  ops_.erase(std::remove_if(ops_.begin(), ops_.end(),
                            [&live](const auto& op) { return !live.contains(op.get()); }),
             ops_.end());
  return ops_.size() != before;
}

void Func::Erase(const Op* op) {
  auto it = Locate(ops_, op);
  if (it == ops_.end()) return;
  by_name_.erase(op->name);
  ops_.erase(it);
}

void Func::EraseArg(const Op* arg) {
  auto it = Locate(args_, arg);
  if (it == args_.end()) return;
  by_name_.erase(arg->name);
  args_.erase(it);
}

void Func::MoveBefore(const Op* op, const Op* before) {
  auto from = ops_.begin() + (Locate(ops_, op) - ops_.begin());
  std::unique_ptr<Op> held = std::move(*from);
  ops_.erase(from);
  ops_.insert(Locate(ops_, before), std::move(held));
}

void Func::Reorder(absl::Span<const Op* const> order) {
  absl::flat_hash_map<const Op*, std::unique_ptr<Op>> held;
  for (std::unique_ptr<Op>& op : ops_) {
    const Op* key = op.get();
    held[key] = std::move(op);
  }
  for (size_t i = 0; i < order.size(); ++i) ops_[i] = std::move(held.at(order[i]));
}

void Func::SortTopologically() {
  absl::flat_hash_map<const Op*, size_t> index;
  for (size_t i = 0; i < ops_.size(); ++i) index[ops_[i].get()] = i;
  std::vector<std::unique_ptr<Op>> sorted;
  sorted.reserve(ops_.size());
  // Depth first in program order: an op is placed right after the last operand that was out of
  // place.
  std::vector<size_t> stack;
  for (size_t root = 0; root < ops_.size(); ++root) {
    stack.push_back(root);
    while (!stack.empty()) {
      const size_t top = stack.back();
      if (ops_[top] == nullptr) {
        stack.pop_back();
        continue;
      }
      bool ready = true;
      // The last operand is pushed first, so that the first is placed first.
      const std::vector<Op*>& operands = ops_[top]->operands;
      for (auto operand = operands.rbegin(); operand != operands.rend(); ++operand) {
        auto it = index.find(*operand);
        if (it != index.end() && ops_[it->second] != nullptr && it->second != top) {
          stack.push_back(it->second);
          ready = false;
        }
      }
      if (!ready) continue;
      sorted.push_back(std::move(ops_[top]));
      stack.pop_back();
    }
  }
  ops_ = std::move(sorted);
}

absl::flat_hash_map<const Op*, std::vector<Op*>> Func::Users() const {
  absl::flat_hash_map<const Op*, std::vector<Op*>> users;
  for (const auto& op : ops_) {
    for (const Op* operand : op->operands) {
      std::vector<Op*>& of = users[operand];
      if (of.empty() || of.back() != op.get()) of.push_back(op.get());
    }
  }
  return users;
}

bool Func::IsReturned(const Op* op) const {
  return std::find(returns_.begin(), returns_.end(), op) != returns_.end();
}

std::unique_ptr<Func> Func::Clone() const {
  auto copy = std::make_unique<Func>(name_);
  absl::flat_hash_map<const Op*, Op*> clones;
  for (const auto& arg : args_) clones[arg.get()] = copy->AddArg(arg->name, arg->type);
  for (const auto& op : ops_) {
    auto clone = std::make_unique<Op>(*op);
    for (Op*& operand : clone->operands) operand = clones.at(operand);
    clones[op.get()] = copy->Insert(std::move(clone));
  }
  for (Op* result : returns_) copy->returns_.push_back(clones.at(result));
  return copy;
}

Func* Module::Find(absl::string_view name) const {
  for (const auto& func : funcs) {
    if (func->name() == name) return func.get();
  }
  return nullptr;
}

Func* Module::Encoder() const {
  Func* once = Find("encode");
  return once != nullptr ? once : Find("encode_every_step");
}

Module Module::Clone() const {
  Module copy;
  for (const auto& func : funcs) copy.funcs.push_back(func->Clone());
  return copy;
}

}  // namespace quire
