// How far a launch's values may be from those of its function in double precision, element by
// element: a running error analysis, first order, of the arithmetic that kernels state.
//
// With u = 2^-24, the unit of f32, and e the bound of what an op reads:
//   linear       u times the sum of the absolute values of everything that a kernel rounds: its
//                partial sums, for block weights (one or two for each block) the scales' products,
//                too; and |x| e(w) + |w| e(x)
//   attention    sum over keys of p |v|, times twice the scores' error, (d + 8) u |scale| |q| |k|,
//                and the units of exponentials and of sums over C keys
//   norms        (n / 16 + 24) u for their sums, 4 u for the rest, and what e(x) makes of them
//   functions    10 u, and absolute errors that codegen/cpu/emit_math.h states; slopes are at most
//                1.13
//   rope         (|a| + |b|) times 2e-7 for cosine and sine, 4 u for the products
//   quantize     that to which the ends of x's range round, by the ends of the scale's; none
//                where e is: scales and quotients are f32 as the op means them
//   cast         the distance to which both ends of [x - e, x + e] round
// A target whose products are of 16-bit numbers in tensor cores, which cut sums off at 2^-22 of the
// largest term, has that in place of u for linear and attention.
// Source:  Higham 2002, sections 3.3 and 4.2.
#ifndef QUIRE_TOOLS_ERROR_BOUNDS_H_
#define QUIRE_TOOLS_ERROR_BOUNDS_H_

#include <cstdint>
#include <map>
#include <vector>

#include "absl/status/statusor.h"
#include "ir/graph.h"
#include "ir/reference/tensor.h"

namespace quire {

struct KernelArithmetic {
  // Of linear and attention: added to a sum, a term changes it by the unit of the sum at most.
  double sum_unit = 0x1p-24;
  // To which attention rounds probabilities.
  DType probabilities = DType::kF32;
  // Columns that a linear's weights have a scale in common for, and sums of their own; 0 for
  // floats.
  int64_t scale_columns = 0;
};

// Of each value of `func`; `values` has all of them. `minimums`, by argument: of block weights, the
// part of each element that is its block's minimum; needed of types that have one, and where
// weights are converted before they are used. All other arguments are exact.
absl::StatusOr<std::map<const Op*, std::vector<double>>> ErrorBounds(
    const Func& func, const std::map<const Op*, reference::Tensor>& values,
    const std::map<const Op*, reference::Tensor>& minimums, const KernelArithmetic& arithmetic);

}  // namespace quire

#endif  // QUIRE_TOOLS_ERROR_BOUNDS_H_
