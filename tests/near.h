// Comparison with the reference interpreter under a tolerance that is computed, not chosen.
//
//   EXPECT_TRUE(IsNear(got, want, {.terms = 4096, .magnitude = largest_sum_of_absolute_terms}));
//
// The bound is the textbook one for a sum of n terms in a format of unit roundoff u (Higham 2002,
// section 4.2): n u / (1 - n u) times the sum of the terms' absolute values; and u' times the
// magnitude for each rounding to a storage type of unit roundoff u' on the way.
#ifndef QUIRE_TESTS_NEAR_H_
#define QUIRE_TESTS_NEAR_H_

#include <cmath>
#include <cstdint>
#include <vector>

#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "ir/dtype.h"
#include "ir/reference/tensor.h"

namespace quire::testing {

// Half the distance from 1 to the next number of a float type.
inline double UnitRoundoff(DType dtype) {
  if (dtype == DType::kF16) return 0x1p-11;
  if (dtype == DType::kBF16) return 0x1p-8;
  return 0x1p-24;
}

struct Tolerance {
  DType arithmetic = DType::kF32;  // what products and sums are rounded to
  int64_t terms = 1;            // in the longest chain of roundings, the reduction length above all
  double magnitude = 1;         // bound on the sum of absolute values of those terms
  DType storage = DType::kF32;  // what values are stored in
  int64_t stores = 1;           // roundings to it between input and result

  double Bound() const {
    const double n = static_cast<double>(terms) * UnitRoundoff(arithmetic);
    return magnitude * (n / (1 - n) + static_cast<double>(stores) * UnitRoundoff(storage));
  }
};

// The largest absolute value, for Tolerance::magnitude.
inline double Largest(const reference::Tensor& tensor) {
  double largest = 0;
  for (double value : tensor.values) largest = std::max(largest, std::abs(value));
  return largest;
}

// Whether every element of `got` (row-major, of want's extents) is within the tolerance. The
// message has the coordinate and both values of the first and of the worst element outside it.
template <typename T>
::testing::AssertionResult IsNear(absl::Span<const T> got, const reference::Tensor& want,
                                  const Tolerance& tolerance) {
  if (got.size() != want.values.size()) {
    return ::testing::AssertionFailure()
           << got.size() << " elements, not [" << absl::StrJoin(want.extents, ",") << "]";
  }
  const double bound = tolerance.Bound();
  constexpr size_t kNone = ~size_t{0};
  size_t first = kNone, worst = kNone, count = 0;
  double worst_error = -1;
  for (size_t i = 0; i < got.size(); ++i) {
    const auto value = static_cast<double>(got[i]);
    // An infinity is near itself alone, a NaN is near nothing.
    if (value == want.values[i]) continue;
    const double error = std::abs(value - want.values[i]);
    if (error <= bound) continue;
    ++count;
    if (first == kNone) first = i;
    if (worst == kNone || std::isnan(error) || error > worst_error) {
      worst = i;
      worst_error = error;
    }
  }
  if (count == 0) return ::testing::AssertionSuccess();
  auto describe = [&](size_t i) {
    std::vector<int64_t> coordinate(want.extents.size());
    auto rest = static_cast<int64_t>(i);
    for (size_t axis = coordinate.size(); axis-- > 0;) {
      coordinate[axis] = rest % want.extents[axis];
      rest /= want.extents[axis];
    }
    std::ostringstream text;
    text.precision(17);
    text << "[" << absl::StrJoin(coordinate, ",") << "]: got " << static_cast<double>(got[i])
         << ", want " << want.values[i];
    return text.str();
  };
  return ::testing::AssertionFailure()
         << count << " of " << got.size() << " elements differ by more than " << bound
         << "\n  first " << describe(first) << "\n  worst " << describe(worst);
}

template <typename T>
::testing::AssertionResult IsNear(const std::vector<T>& got, const reference::Tensor& want,
                                  const Tolerance& tolerance) {
  return IsNear(absl::MakeConstSpan(got), want, tolerance);
}

}  // namespace quire::testing

#endif  // QUIRE_TESTS_NEAR_H_
