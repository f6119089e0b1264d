#include <algorithm>

#include "absl/strings/str_cat.h"
#include "ir/reference/kernels.h"
#include "ir/status.h"

namespace quire::reference {

// Eight partial sums, which a compiler keeps in vector registers; one sum would be a chain of
// additions, and the largest models here are not small.
double Dot(const double* a, const double* b, int64_t count) {
  constexpr int kLanes = 8;
  double lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) lanes[lane] += a[i + lane] * b[i + lane];
  }
  double sum = 0;
  for (; i < count; ++i) sum += a[i] * b[i];
  for (double lane : lanes) sum += lane;
  return sum;
}

absl::StatusOr<int64_t> CheckedRow(double id, int64_t offset, int64_t rows) {
  const double row = id + static_cast<double>(offset);
  if (!(row >= 0 && row < static_cast<double>(rows))) {
    return absl::InvalidArgumentError(
        absl::StrCat("row ", row, " of a table of ", rows,
                     offset == 0 ? "" : absl::StrCat(" (id ", id, " + offset ", offset, ")")));
  }
  return static_cast<int64_t>(row);
}

absl::Status Embed(const Call& call) {
  const Tensor& table = call.in(0);
  const Tensor& ids = call.in(1);
  for (int64_t t = 0; t < ids.elements(); ++t) {
    QUIRE_ASSIGN_OR_RETURN(const int64_t row,
                           CheckedRow(ids.values[static_cast<size_t>(t)],
                                      call.op.Int(AttrKind::kOffset), table.extent(0)));
    std::copy_n(table.row(row), table.last(), call.out->row(t));
  }
  return absl::OkStatus();
}

absl::Status Linear(const Call& call) {
  const Tensor& x = call.in(0);
  const Tensor& w = call.in(1);
  const Tensor* bias = call.optional(2);
  const int64_t columns = w.extent(0), depth = w.extent(1);
  const int64_t rows = call.out->elements() / columns;
  // Weight rows outermost: the weights are the large operand, and are read once.
  for (int64_t n = 0; n < columns; ++n) {
    const double start = bias == nullptr ? 0 : bias->values[static_cast<size_t>(n)];
    for (int64_t t = 0; t < rows; ++t) {
      call.out->row(t)[n] = Dot(x.row(t), w.row(n), depth) + start;
    }
  }
  return absl::OkStatus();
}

absl::Status MatMul(const Call& call) {
  const Tensor& a = call.in(0);
  const Tensor& b = call.in(1);
  const bool transposed = call.op.Int(AttrKind::kTransposeB) != 0;
  const int axis = a.rank() - 2;
  const int64_t rows = a.extent(axis), depth = a.extent(axis + 1), columns = call.out->last();
  const int64_t batches = call.out->elements() / (rows * columns);
  for (int64_t batch = 0; batch < batches; ++batch) {
    for (int64_t m = 0; m < rows; ++m) {
      const double* a_row = a.values.data() + (batch * rows + m) * depth;
      double* out = call.out->row(batch * rows + m);
      const double* b_batch = b.values.data() + batch * depth * columns;
      if (transposed) {
        for (int64_t n = 0; n < columns; ++n) out[n] = Dot(a_row, b_batch + n * depth, depth);
      } else {
        for (int64_t k = 0; k < depth; ++k) {
          for (int64_t n = 0; n < columns; ++n) out[n] += a_row[k] * b_batch[k * columns + n];
        }
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace quire::reference
