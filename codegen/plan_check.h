// What kernel specs ask of a plan, beyond ir/plan_check.h: that every launch hands a kernel
// operands of the kinds, types and sizes that its spec states, so that no kernel reads or writes
// beyond them.
//
// Errors: DATA_LOSS that names the place, "programs[0].launches[3]: ...".
#ifndef QUIRE_CODEGEN_PLAN_CHECK_H_
#define QUIRE_CODEGEN_PLAN_CHECK_H_

#include "absl/status/status.h"
#include "ir/plan_generated.h"

namespace quire {

// REQUIRES: CheckPlan() accepted the plan.
absl::Status CheckKernels(const plan::TargetT& target, const plan::ModelT& model);

}  // namespace quire

#endif  // QUIRE_CODEGEN_PLAN_CHECK_H_
