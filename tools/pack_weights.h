// `quire compile --weights=pack`: weights in the layout that kernels read, inside the plan, so that
// loading is an mmap.
#ifndef QUIRE_TOOLS_PACK_WEIGHTS_H_
#define QUIRE_TOOLS_PACK_WEIGHTS_H_

#include <string>

#include "absl/status/status.h"
#include "ir/plan_io.h"

namespace quire {

// Whether all weights of a target lie in its plan.
bool IsPacked(const plan::TargetT& target);

// Packs every weight slot of `plan` into the file that is being written; reads the weight files
// that the plan names, relative to `folder`, one slot at a time.
absl::Status PackWeights(const std::string& folder, plan::PlanT* plan, PlanWriter* writer);

}  // namespace quire

#endif  // QUIRE_TOOLS_PACK_WEIGHTS_H_
