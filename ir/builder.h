// Builds a function op by op, with inferred types. Definitions read as straight-line mathematics:
//
//   Builder b(&func);
//   b.set_scope("layers.0.self_attn");
//   Op* q = b.Linear(x, b.Weight("q_proj.weight", type));
//   ...
//   QUIRE_RETURN_IF_ERROR(b.status());
//
// Errors: the first one is kept, with the scope and the op that caused it, and every later call
// returns the same placeholder; a definition needs to look at status() only once, at its end.
#ifndef QUIRE_IR_BUILDER_H_
#define QUIRE_IR_BUILDER_H_

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "ir/graph.h"

namespace quire {

class Builder {
 public:
  using AttrList = std::vector<std::pair<AttrKind, AttrValue>>;

  // Appends to `func`, or inserts before `before`.
  explicit Builder(Func* func, const Op* before = nullptr) : func_(func), before_(before) {}

  const absl::Status& status() const { return status_; }
  void set_scope(absl::string_view scope) { scope_ = std::string(scope); }
  // Base name of the next op only; without it, the mnemonic.
  Builder& Named(absl::string_view name) {
    next_name_ = std::string(name);
    return *this;
  }

  // Any op. `declared` is needed for the ops whose operands do not determine their type.
  Op* Make(OpKind kind, std::vector<Op*> operands, AttrList attrs = {},
           const std::optional<Type>& declared = std::nullopt);

  Op* Weight(absl::string_view tensor, const Type& type);
  Op* Embed(Op* table, Op* ids, int64_t offset = 0);
  Op* Linear(Op* x, Op* w, Op* bias = nullptr);
  Op* MatMul(Op* a, Op* b, bool transpose_b);
  Op* Add(Op* a, Op* b) { return Make(OpKind::kAdd, {a, b}); }
  Op* Mul(Op* a, Op* b) { return Make(OpKind::kMul, {a, b}); }
  Op* Scale(Op* x, double factor) {
    return Make(OpKind::kScale, {x}, {{AttrKind::kFactor, factor}});
  }
  Op* Unary(OpKind kind, Op* x, AttrList attrs = {}) { return Make(kind, {x}, std::move(attrs)); }
  Op* RmsNorm(Op* x, Op* w, double eps, double weight_offset = 0);
  Op* LayerNorm(Op* x, Op* w, Op* bias, double eps);
  Op* Reshape(Op* x, Extents extents);
  Op* Transpose(Op* x, std::vector<int64_t> perm);
  Op* Slice(Op* x, int64_t axis, int64_t begin, int64_t end);
  Op* Concat(std::vector<Op*> xs, int64_t axis);
  Op* ExpandHeads(Op* x, int64_t group, absl::string_view order = "interleave");
  // Of scores [H,T,C] by a table [buckets,H]; `direction`: both or back.
  Op* RelativeBias(Op* scores, Op* table, int64_t max_distance, absl::string_view direction);
  Op* Softmax(Op* x) { return Make(OpKind::kSoftmax, {x}); }

 private:
  Func* func_;
  const Op* before_;
  std::string scope_, next_name_;
  absl::Status status_;
  Op placeholder_;  // stands for results after the first error
};

}  // namespace quire

#endif  // QUIRE_IR_BUILDER_H_
