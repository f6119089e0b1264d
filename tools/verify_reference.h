// A plan beside the reference interpreter: logits of both, and how far apart they may be.
//
// The allowed error is three deviations of the error that number formats cause. How the model
// passes errors on is measured: the reference is computed again with every element of every matrix
// off by a random relative error of deviation d, which puts a relative error of about d into the
// result of each product. A row that comes out off by g d may then be off by 3 g e in the plan,
// where e is the greatest error that one launch adds. With u the unit of the arithmetic, 2^-24 for
// a plan and 2^-53 for the reference itself, that is
//   linear of float weights   sqrt(k) u: k additions, each rounded; and where activations are
//                             stored in 16 bits and the checkpoint's weights are of another type
//                             than the kernel's, 1/sqrt(3) of the unit of that
//   linear of block weights   sqrt(32) / (127 sqrt(12)): activations are rounded to 1/127 of the
//                             largest of 32, which is at most sqrt(32) times their mean; with
//                             activations of 16 bits, weights are rounded to that type instead
//   attention                 sqrt(2/3) times the unit of the type that stores K and V, and
//                             1/sqrt(3) of that which stores q, to which probabilities are rounded
//   row kernels               4 u
// Values that a plan stores in 16 bits between kernels are off by up to the unit of their type,
// whatever computed them. How the model passes these errors on is measured, too: the lowered
// program is computed again with all of them off by random relative errors of deviation d, and a
// row that comes out off by h d may be off by another 3 h / sqrt(3) times the unit.
#ifndef QUIRE_TOOLS_VERIFY_REFERENCE_H_
#define QUIRE_TOOLS_VERIFY_REFERENCE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "ir/plan_generated.h"
#include "ir/reference/tensor.h"

namespace quire {

struct Reference {
  reference::Tensor logits;  // [T, V], of the plan's definition in double precision
  // [T]: the relative error that each row of the plan may have.
  std::vector<double> allowed;
  // The lowered program in double precision, nothing rounded: how far its rows are from those of
  // the definition, at most, and how far they may be.
  double lowered_error = 0, lowered_allowed = 0;
};

// What plan and reference compute: a sequence's tokens, and what its encoder reads, if it has one:
// tokens, or states [S,E].
struct VerifyInput {
  absl::Span<const int32_t> ids, source;
  absl::Span<const float> states = {};
};

// The definition of the plan at `plan_path` on `input`, with the plan's own weights.
absl::StatusOr<Reference> ComputeReference(const plan::PlanT& plan, const plan::TargetT& target,
                                           const std::string& plan_path,
                                           const std::string& weights_dir,
                                           const VerifyInput& input);

// How far a row is from the reference: |row - reference| / |reference - mean of reference|, the
// mean since adding a constant to all logits changes no probability.
double RelativeError(absl::Span<const float> row, absl::Span<const double> reference);

}  // namespace quire

#endif  // QUIRE_TOOLS_VERIFY_REFERENCE_H_
