// Row kernels: a fused group of row-wise ops, one row at a time.
//
// A value of a row is read through a View: an argument, a slice or reshape of one, or memory that
// an op wrote. Pointwise ops whose one user is pointwise too are not written at all: they are
// computed inside the user's loop. A returned value is written straight to its output; the rest
// goes to scratch memory, which stays in the first-level cache. Parts that share nothing but
// arguments are loops over the rows of their own: of a kernel that appends to many layers, one
// layer's pages at a time are in the cache.
#ifndef QUIRE_CODEGEN_CPU_EMIT_ROW_H_
#define QUIRE_CODEGEN_CPU_EMIT_ROW_H_

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "codegen/cpu/emit.h"
#include "codegen/cpu/llvm_text.h"
#include "codegen/row_func.h"
#include "ir/graph.h"

namespace quire {

// Elements of one row of a value: base + (offset + sum of index * stride) elements.
struct View {
  LlvmValue base;
  DType dtype = DType::kF32;
  int64_t offset = 0;
  std::vector<int64_t> strides;  // of the value's extents but the first (rows); in elements
};

class RowEmitter {
 public:
  explicit RowEmitter(const Func& func) : func_(func) {}
  absl::StatusOr<EmittedKernel> Emit();

 private:
  using V = LlvmValue;
  using Dims = std::vector<int64_t>;
  using Index = std::vector<V>;

  // What one loop over the rows computes.
  struct Part {
    std::vector<const Op*> ops;
    std::vector<size_t> returns;  // indices into the function's
  };

  // Preparation (emit_row.cc).
  std::vector<Part> Parts() const;  // ropes, which share angles, are in one
  void BindArguments();
  absl::Status EmitOp(const Op& op);
  void EmitReturns(const Part& part);

  // Places (emit_row.cc).
  bool IsLazy(const Op& op) const;
  View NewPlace(const Op& op);             // an output, or scratch
  const View& Materialised(const Op& op);  // writes a lazy value
  void Reshape(const Op& op);
  void Slice(const Op& op);
  void Concat(const Op& op);
  void ExpandHeads(const Op& op);
  absl::Status Take(const Op& op);

  // Loops (emit_row_loops.cc).
  void Nest(const Dims& dims, const std::function<void(const Index&)>& body);
  // i in steps of 16 lanes, then 8, 4, 2, 1 for the rest of `count`.
  void Vectors(int64_t count, const std::function<void(const V& i, int lanes)>& body);
  V Address(const View& view, const Index& outer, const V& inner);
  V LoadAt(const View& view, const Index& outer, const V& inner, int lanes);
  // Computes `op` over its elements, lazy operands included, and writes it to `place`.
  void Elementwise(const Op& op, const View& place);
  // Copies elements of the shape `dims`.
  void Copy(const View& from, const View& to, const Dims& dims);
  void Collapse(Dims& dims, std::vector<View*> views) const;
  void CollectLeaves(const Op& op, size_t rank, std::map<const Op*, View>& leaves);
  V Evaluate(const Op& op, const std::map<const Op*, View>& leaves, const Index& outer,
             const V& inner, int lanes);
  V Pointwise(const Op& op, const std::vector<V>& operands);

  // Ops with loops of their own (emit_row_ops.cc).
  void Norm(const Op& op);
  using Combine = std::function<V(const V& a, const V& b)>;
  V Reduce(int64_t count, const std::function<V(const V& i, int lanes, const V& sum)>& add,
           const Combine& combine);
  V Sum(int64_t count, const std::function<V(const V& i, int lanes, const V& sum)>& add);
  void Quantize(const Op& op);
  void Embed(const Op& op);
  void EmbedBlocks(const Op& op, const V& row, const View& place);
  void EmbedScaled(const Op& op, const V& row, const View& place);
  void KvAppend(const Op& op);

  // Rotary embedding (emit_row_rope.cc).
  void Rope(const Op& op);
  // The row's cosines and sines, [dims / 2] each, shared by ops that turn alike.
  struct Turns {
    View cosines, sines;
  };
  Turns TurnsOf(const Op& op, int64_t dims);

  const Func& func_;
  LlvmWriter w_;
  char rows_ = 'T';  // the letter of the rows that are walked
  V operands_{"ptr", "%operands"}, step_{"ptr", "%step"}, scratch_{"ptr", "%scratch"};
  V row_;
  std::map<const Op*, V> pointers_;  // of arguments, and of the layers that appends write
  std::vector<V> returns_;
  std::map<const Op*, View> views_;
  std::map<const Op*, size_t> first_return_;
  std::set<const Op*> owned_;  // values with a place of their own
  absl::flat_hash_map<const Op*, std::vector<Op*>> users_;
  std::map<std::string, Turns> turns_;
  int64_t scratch_bytes_ = 0;
};

// Strides of row-major elements.
std::vector<int64_t> DenseStrides(const std::vector<int64_t>& extents);

}  // namespace quire

#endif  // QUIRE_CODEGEN_CPU_EMIT_ROW_H_
