#include <algorithm>
#include <string>
#include <vector>

#include "ir/reference/kernels.h"
#include "ir/status.h"

namespace quire::reference {
namespace {

// Elements of one step along `axis`, all later axes together.
int64_t Inner(const Tensor& x, int64_t axis) {
  int64_t inner = 1;
  for (int64_t i = axis + 1; i < x.rank(); ++i) inner *= x.extents[static_cast<size_t>(i)];
  return inner;
}

}  // namespace

absl::Status Reshape(const Call& call) {
  call.out->values = call.in(0).values;
  return absl::OkStatus();
}

absl::Status Transpose(const Call& call) {
  const Tensor& x = call.in(0);
  const size_t rank = x.extents.size();
  // stride[i]: elements of x between neighbours along the result's axis i.
  std::vector<int64_t> strides(rank);
  for (size_t i = 0; i < rank; ++i) strides[i] = Inner(x, call.op.Ints(AttrKind::kPerm)[i]);
  std::vector<int64_t> at(rank, 0);
  int64_t from = 0;
  for (double& value : call.out->values) {
    value = x.values[static_cast<size_t>(from)];
    // Counts `at` up in row-major order, and `from` with it.
    for (size_t i = rank; i-- > 0;) {
      from += strides[i];
      if (++at[i] < call.out->extents[i]) break;
      from -= at[i] * strides[i];
      at[i] = 0;
    }
  }
  return absl::OkStatus();
}

absl::Status Slice(const Call& call) {
  const Tensor& x = call.in(0);
  const int64_t axis = call.op.Int(AttrKind::kAxis);
  const int64_t inner = Inner(x, axis);
  const int64_t in_run = x.extents[static_cast<size_t>(axis)] * inner;
  const int64_t out_run = call.out->extents[static_cast<size_t>(axis)] * inner;
  const int64_t skipped = call.op.Int(AttrKind::kBegin) * inner;
  for (int64_t outer = 0; outer < call.out->elements() / out_run; ++outer) {
    std::copy_n(x.values.data() + outer * in_run + skipped, out_run,
                call.out->values.data() + outer * out_run);
  }
  return absl::OkStatus();
}

absl::Status Concat(const Call& call) {
  const int64_t axis = call.op.Int(AttrKind::kAxis);
  const int64_t inner = Inner(*call.out, axis);
  const int64_t out_run = call.out->extents[static_cast<size_t>(axis)] * inner;
  int64_t joined = 0;
  for (const Tensor* x : call.operands) {
    const int64_t in_run = x->extents[static_cast<size_t>(axis)] * inner;
    for (int64_t outer = 0; outer < call.out->elements() / out_run; ++outer) {
      std::copy_n(x->values.data() + outer * in_run, in_run,
                  call.out->values.data() + outer * out_run + joined);
    }
    joined += in_run;
  }
  return absl::OkStatus();
}

absl::Status Take(const Call& call) {
  const Tensor& x = call.in(0);
  const Tensor& rows = call.in(1);
  const int64_t run = Inner(x, 0);
  for (int64_t r = 0; r < rows.elements(); ++r) {
    QUIRE_ASSIGN_OR_RETURN(const int64_t row,
                           CheckedRow(rows.values[static_cast<size_t>(r)], 0, x.extent(0)));
    std::copy_n(x.values.data() + row * run, run, call.out->values.data() + r * run);
  }
  return absl::OkStatus();
}

absl::Status ExpandHeads(const Call& call) {
  const Tensor& x = call.in(0);
  const int64_t group = call.op.Int(AttrKind::kGroup);
  const bool interleave = call.op.Text(AttrKind::kOrder) == "interleave";
  const int64_t from = x.extent(1), to = call.out->extent(1);
  for (int64_t t = 0; t < x.extent(0); ++t) {
    for (int64_t h = 0; h < to; ++h) {
      const int64_t source = interleave ? h / group : h % from;
      std::copy_n(x.row(t * from + source), x.last(), call.out->row(t * to + h));
    }
  }
  return absl::OkStatus();
}

}  // namespace quire::reference
