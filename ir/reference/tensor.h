// A value as the reference interpreter computes it: double precision, whatever its type says.
//
// Storage rounding is part of a value's meaning: a value of type f16, bf16 or f8e4m3 holds only
// numbers that those types have. Ids (i32) are whole numbers. Values of block types are their
// dequantised numbers.
#ifndef QUIRE_IR_REFERENCE_TENSOR_H_
#define QUIRE_IR_REFERENCE_TENSOR_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "ir/type.h"

namespace quire::reference {

// Most elements that one tensor may hold unless a caller sets a lower limit: 4 GiB of doubles.
inline constexpr int64_t kMaxElements = int64_t{1} << 29;

struct Tensor {
  std::vector<int64_t> extents;
  std::vector<double> values;  // row-major; the product of extents of them

  // RESOURCE_EXHAUSTED when there would be more than `max_elements`, or no memory for them.
  static absl::StatusOr<Tensor> Zeros(std::vector<int64_t> extents,
                                      int64_t max_elements = kMaxElements);

  int rank() const { return static_cast<int>(extents.size()); }
  int64_t elements() const { return static_cast<int64_t>(values.size()); }
  int64_t extent(int axis) const { return extents[static_cast<size_t>(axis)]; }
  // Extent of the last axis; 1 for a scalar.
  int64_t last() const { return extents.empty() ? 1 : extents.back(); }

  // Row `i` of the tensor seen as [rows, last()].
  const double* row(int64_t i) const { return values.data() + i * last(); }
  double* row(int64_t i) { return values.data() + i * last(); }

  double at(absl::Span<const int64_t> coordinates) const;
};

// The extents' product, refused as Zeros refuses it. INVALID_ARGUMENT on a negative extent.
absl::StatusOr<int64_t> CheckedElements(absl::Span<const int64_t> extents, int64_t max_elements);

// `value` rounded to the nearest number of an f16, bf16 or f8e4m3, ties to even; past the largest
// it is infinite, or of an f8e4m3 the largest. Unchanged for every other type.
double RoundTo(DType dtype, double value);
void RoundAll(DType dtype, absl::Span<double> values);

}  // namespace quire::reference

#endif  // QUIRE_IR_REFERENCE_TENSOR_H_
