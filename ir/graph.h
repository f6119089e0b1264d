// The graph form of the IR: functions as straight lines of single-result ops.
//
// An Op is at once the operation and the value it defines; an argument is an Op of kind kArg. A
// Func owns its ops.
//
// Invariants (checked by ir/verify.h):
//   (1) an operand is an argument, or an op that stands earlier in the same function;
//   (2) names are unique within the function;
//   (3) every required attribute is set, every set attribute is one that the op allows, and in
//   range; (4) the type is the one that the op's shape rule computes.
// Owner: Module owns Func owns Op; Op pointers stay valid until the op is erased.
#ifndef QUIRE_IR_GRAPH_H_
#define QUIRE_IR_GRAPH_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "ir/op.h"
#include "ir/type.h"

namespace quire {

class Op {
 public:
  OpKind kind = OpKind::kArg;
  std::string name;  // without '%'
  Type type;
  std::vector<Op*> operands;
  // Fusion group, or -1: ops of one group become one kernel launch.
  int group = -1;

  bool Is(OpKind other) const { return kind == other; }
  Op* operand(int i) const { return operands[static_cast<size_t>(i)]; }
  int num_operands() const { return static_cast<int>(operands.size()); }
  const OpDef& def() const { return DefOf(kind); }

  // Attributes, sorted by kind. Get returns the default when the attribute is absent.
  const std::vector<std::pair<AttrKind, AttrValue>>& attrs() const { return attrs_; }
  bool Has(AttrKind attr) const { return Find(attr) != nullptr; }
  void Set(AttrKind attr, AttrValue value);
  const AttrValue& Get(AttrKind attr) const;
  // REQUIRES: the attribute has that form (guaranteed for a verified op).
  int64_t Int(AttrKind attr) const { return std::get<int64_t>(Get(attr)); }
  double Float(AttrKind attr) const { return std::get<double>(Get(attr)); }
  const std::string& Text(AttrKind attr) const { return std::get<std::string>(Get(attr)); }
  const std::vector<int64_t>& Ints(AttrKind attr) const {
    return std::get<std::vector<int64_t>>(Get(attr));
  }

 private:
  const AttrValue* Find(AttrKind attr) const;
  std::vector<std::pair<AttrKind, AttrValue>> attrs_;
};

class Func {
 public:
  explicit Func(absl::string_view name) : name_(name) {}
  Func(const Func&) = delete;
  Func& operator=(const Func&) = delete;

  const std::string& name() const { return name_; }
  void set_name(absl::string_view name) { name_ = std::string(name); }
  const std::vector<std::unique_ptr<Op>>& args() const { return args_; }
  const std::vector<std::unique_ptr<Op>>& ops() const { return ops_; }
  const std::vector<Op*>& returns() const { return returns_; }
  void set_returns(std::vector<Op*> returns) { returns_ = std::move(returns); }

  // nullptr when there is no value of that name.
  Op* Find(absl::string_view name) const;
  Op* AddArg(absl::string_view name, const Type& type);
  // Inserts before `before`, or at the end when it is null. The name is made unique by a numeric
  // suffix.
  Op* Insert(std::unique_ptr<Op> op, const Op* before = nullptr);
  // `base`, or base with the smallest suffix ("q.1", "q.2", ...) that is free.
  std::string UniqueName(absl::string_view base) const;
  // Renames; REQUIRES that the new name is free.
  void Rename(Op* op, absl::string_view name);

  // Every operand and return that is `from` becomes `to`. Does not check order.
  void ReplaceUses(const Op* from, Op* to);
  // Erases ops without users that are not returned, repeatedly; true if any was erased. Arguments
  // stay.
  bool EraseDead();
  // REQUIRES: no users.
  void Erase(const Op* op);
  // An argument. REQUIRES: no users.
  void EraseArg(const Op* arg);
  // Moves `op` to just before `before`.
  void MoveBefore(const Op* op, const Op* before);
  // Puts the ops in this order. REQUIRES: `order` holds every op of the function once.
  void Reorder(absl::Span<const Op* const> order);
  // Stable topological re-ordering, after edits that broke the order of definition and use.
  void SortTopologically();

  // Users of every value, in program order; a user that reads it twice appears once. Rebuilt at
  // each call.
  absl::flat_hash_map<const Op*, std::vector<Op*>> Users() const;
  bool IsReturned(const Op* op) const;

  std::unique_ptr<Func> Clone() const;

 private:
  std::string name_;
  std::vector<std::unique_ptr<Op>> args_;
  std::vector<std::unique_ptr<Op>> ops_;
  std::vector<Op*> returns_;
  absl::flat_hash_map<std::string, Op*> by_name_;
};

struct Module {
  std::vector<std::unique_ptr<Func>> funcs;
  // nullptr when there is none of that name.
  Func* Find(absl::string_view name) const;
  // What runs over encoder inputs in a lowered module: @encode, or @encode_every_step.
  Func* Encoder() const;
  Module Clone() const;
};

}  // namespace quire

#endif  // QUIRE_IR_GRAPH_H_
