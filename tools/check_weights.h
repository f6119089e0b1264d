// The weight files of a plan, tensor by tensor: why they are not those that it was compiled from,
// and whether what they hold can be computed with.
#ifndef QUIRE_TOOLS_CHECK_WEIGHTS_H_
#define QUIRE_TOOLS_CHECK_WEIGHTS_H_

#include "absl/status/status.h"
#include "ir/plan_generated.h"
#include "runtime/weights.h"

namespace quire {

// `refused` is what `files` says of the first file that is not the plan's. Where that file holds
// another model, the tensor that differs; where the file is broken, what its importer says of it;
// otherwise `refused`.
absl::Status ExplainRefusal(const plan::PlanT& plan, const TensorFiles& files,
                            const absl::Status& refused);

// Reads every tensor: DATA_LOSS with the first element that is a NaN or an infinity.
absl::Status CheckFinite(const plan::PlanT& plan, const TensorFiles& files);

}  // namespace quire

#endif  // QUIRE_TOOLS_CHECK_WEIGHTS_H_
