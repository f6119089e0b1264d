// The ops that one linear kernel computes: the linear; a norm of its rows before it; behind it a
// residual, or an activation, which may multiply the linear's second half.
//
//   norm          rms_norm or layer_norm of x, whose result linears alone read
//   quantize      of x, or of the norm of x, whose result linears alone read
//   linear
//   add           of the linear and a value of other kernels: residual
//   act           of the linear; or of its first half, and mul with the second half: gated
//   kv_append     of columns of the linear, turned by rope or not (compiler/linear_append.h)
//
// Which of these a target's kernels compute, its traits say (codegen/target.h).
#ifndef QUIRE_COMPILER_LINEAR_GROUP_H_
#define QUIRE_COMPILER_LINEAR_GROUP_H_

#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "codegen/spec.h"
#include "compiler/linear_append.h"
#include "compiler/pass.h"
#include "compiler/row_wise.h"
#include "ir/graph.h"

namespace quire {

struct LinearGroup {
  const Op* norm = nullptr;
  const Op* quantize = nullptr;
  const Op* linear = nullptr;
  const Op* add = nullptr;
  const Op* act = nullptr;
  const Op *first = nullptr, *second = nullptr;  // slices of the linear, if gated
  const Op* gated = nullptr;                     // the mul
  LinearAppend append;

  // What reads the value of another kernel first.
  const Op* head() const;
  // What other kernels read; the linear if that is all appended.
  const Op* result() const;
  // The op at which all that the group reads is there.
  const Op* last_reader() const;
  // What the add adds to the linear.
  const Op* residual() const;
  // Those that there are.
  std::vector<const Op*> ops() const;
};

// The groups of a function's linears. A norm or quantize that several linears read is copied for
// each. Declines, with a note, what a target's kernels compute but not here:
//   quantize  that something else reads, too; whose scale is computed
//   a norm   that something else reads, too; whose weight is computed; of what a row kernel makes
//            of a linear or attention: that computes the norm in passing
//   an act   of the second half of a linear, times the first
//   appends  as compiler/linear_append.h says
// A residual is declined silently when something else reads the linear, or its type is not that of
// the result, as a value or as stored: then it is an op like any other.
class LinearGroups {
 public:
  LinearGroups(Func& func, const OpSet& weights, const Target& target, Notes& notes);

  // The group that `op` is part of, or nullptr.
  const LinearGroup* Of(const Op* op) const;
  // Whether anything in the function changed.
  bool has_copied() const { return has_copied_; }

 private:
  std::vector<std::unique_ptr<LinearGroup>> groups_;
  absl::flat_hash_map<const Op*, const LinearGroup*> by_op_;
  bool has_copied_ = false;
};

// The parts of a fused group. REQUIRES: it has a linear.
LinearGroup ReadLinearGroup(absl::Span<const Op* const> ops);

// The activation that a pointwise op is; none for others.
LinearAct ActOf(const Op& op);

}  // namespace quire

#endif  // QUIRE_COMPILER_LINEAR_GROUP_H_
