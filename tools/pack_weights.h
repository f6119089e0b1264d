// `quire compile --weights=pack`: weights in the layout that kernels read, inside the plan, so that
// loading is an mmap.
#ifndef QUIRE_TOOLS_PACK_WEIGHTS_H_
#define QUIRE_TOOLS_PACK_WEIGHTS_H_

#include <string>

#include "absl/status/status.h"
#include "ir/plan_io.h"

namespace quire {

// Writes `plan` to `path` with every weight slot packed; reads the weight files that the plan
// names, one slot at a time. `plan` comes out as written.
absl::Status WritePackedPlan(plan::PlanT& plan, const std::string& path,
                             const PlanWriteOptions& options);

}  // namespace quire

#endif  // QUIRE_TOOLS_PACK_WEIGHTS_H_
