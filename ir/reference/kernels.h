// One function for each op of ir/ops.def, except arg, weight, kv_append and kv_read, which the
// interpreter itself answers. Each reads plainly as the table's `meaning` column, on a verified op
// whose operands have the shapes that its rule demands.
#ifndef QUIRE_IR_REFERENCE_KERNELS_H_
#define QUIRE_IR_REFERENCE_KERNELS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "ir/graph.h"
#include "ir/reference/tensor.h"

namespace quire::reference {

// An op, its operands' values, and its result: of the right extents, zero, not empty.
struct Call {
  const Op& op;
  absl::Span<const Tensor* const> operands;
  Tensor* out;

  const Tensor& in(int i) const { return *operands[static_cast<size_t>(i)]; }
  // nullptr when an optional operand is absent.
  const Tensor* optional(int i) const {
    return static_cast<size_t>(i) < operands.size() ? operands[static_cast<size_t>(i)] : nullptr;
  }
};

// Projections and look-ups: products.cc.
absl::Status Embed(const Call& call);
absl::Status Linear(const Call& call);
absl::Status MatMul(const Call& call);

// Pointwise: pointwise.cc.
absl::Status Add(const Call& call);
absl::Status Mul(const Call& call);
absl::Status Scale(const Call& call);
absl::Status Softcap(const Call& call);
absl::Status Silu(const Call& call);
absl::Status Gelu(const Call& call);
absl::Status Relu(const Call& call);
absl::Status Tanh(const Call& call);
absl::Status Sigmoid(const Call& call);
absl::Status Cast(const Call& call);

// Rows: norm.cc, rope.cc.
absl::Status RmsNorm(const Call& call);
absl::Status LayerNorm(const Call& call);
absl::Status Rope(const Call& call);

// Of 8-bit products: quantize.cc.
absl::Status Quantize(const Call& call);

// Shape: shape_ops.cc.
absl::Status Reshape(const Call& call);
absl::Status Transpose(const Call& call);
absl::Status Slice(const Call& call);
absl::Status Concat(const Call& call);
absl::Status Take(const Call& call);
absl::Status ExpandHeads(const Call& call);

// Attention: attention.cc.
absl::Status CausalMask(const Call& call);
absl::Status Alibi(const Call& call);
absl::Status RelativeBias(const Call& call);
absl::Status Softmax(const Call& call);
absl::Status Attention(const Call& call);

// Pieces that two of the above share.
double Dot(const double* a, const double* b, int64_t count);  // products.cc
double CapSoftly(double x, double cap);                       // pointwise.cc; cap 0: x itself
// Index `id` of a table of `rows` rows, or INVALID_ARGUMENT; products.cc.
absl::StatusOr<int64_t> CheckedRow(double id, int64_t offset, int64_t rows);

}  // namespace quire::reference

#endif  // QUIRE_IR_REFERENCE_KERNELS_H_
