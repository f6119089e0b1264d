#include "ir/reference/tensor.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ir/status.h"

namespace quire::reference {
namespace {

// A binary floating-point format, as far as rounding to it is concerned.
struct Format {
  int significand_bits;  // with the leading one
  int min_exponent;      // of the smallest normal number
  double largest;
  double past_largest;
};

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr Format kF16 = {11, -14, 65504.0, kInfinity};
constexpr Format kBF16 = {8, -126, 0x1.FEp127, kInfinity};
constexpr Format kF8E4M3 = {4, -6, 448.0, 448.0};

const Format* FormatOf(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return &kF16;
    case DType::kBF16:
      return &kBF16;
    case DType::kF8E4M3:
      return &kF8E4M3;
    default:
      return nullptr;
  }
}

double RoundToFormat(const Format& format, double value) {
  if (std::isnan(value) || value == 0) return value;
  if (std::isinf(value)) return std::copysign(format.past_largest, value);
  const int exponent = std::max(std::ilogb(value), format.min_exponent);
  // Scaling by a power of two is exact here, so rint is the only rounding, to nearest even.
  const int shift = exponent - (format.significand_bits - 1);
  const double rounded = std::ldexp(std::rint(std::ldexp(value, -shift)), shift);
  if (std::abs(rounded) <= format.largest) return rounded;
  return std::copysign(format.past_largest, value);
}

}  // namespace

absl::StatusOr<int64_t> CheckedElements(absl::Span<const int64_t> extents, int64_t max_elements) {
  for (int64_t extent : extents) {
    if (extent < 0) {
      return absl::InvalidArgumentError(absl::StrCat("extent ", extent, " is negative"));
    }
  }
  const absl::StatusOr<int64_t> elements = Product(extents);
  if (!elements.ok() || *elements > max_elements) {
    return absl::ResourceExhaustedError(
        absl::StrCat("a tensor of extents [", absl::StrJoin(extents, ","), "] is too large\n",
                     "  allowed: ", max_elements, " elements"));
  }
  return *elements;
}

absl::StatusOr<Tensor> Tensor::Zeros(std::vector<int64_t> extents, int64_t max_elements) {
  QUIRE_ASSIGN_OR_RETURN(const int64_t elements, CheckedElements(extents, max_elements));
  Tensor tensor;
  try {
    tensor.values.resize(static_cast<size_t>(elements));
  } catch (const std::exception&) {  // bad_alloc, or length_error past the largest vector
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory for ", elements, " elements in double precision"));
  }
  tensor.extents = std::move(extents);
  return tensor;
}

double Tensor::at(absl::Span<const int64_t> coordinates) const {
  int64_t offset = 0;
  for (size_t axis = 0; axis < extents.size(); ++axis) {
    offset = offset * extents[axis] + coordinates[axis];
  }
  return values[static_cast<size_t>(offset)];
}

double RoundTo(DType dtype, double value) {
  RoundAll(dtype, absl::MakeSpan(&value, 1));
  return value;
}

void RoundAll(DType dtype, absl::Span<double> values) {
  const Format* format = FormatOf(dtype);
  if (format == nullptr) return;
  for (double& value : values) value = RoundToFormat(*format, value);
}

}  // namespace quire::reference
