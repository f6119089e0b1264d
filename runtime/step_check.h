// Whether a step agrees with itself, with the plan and with the pool; every device asks this before
// it runs one.
#ifndef QUIRE_RUNTIME_STEP_CHECK_H_
#define QUIRE_RUNTIME_STEP_CHECK_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "ir/plan_generated.h"
#include "runtime/device.h"

namespace quire {

// INVALID_ARGUMENT naming the row or sequence, the value and what is allowed.
absl::Status CheckStep(const Step& step, const plan::TargetT& target, const plan::ProgramT& program,
                       int32_t pool_pages, size_t logit_floats);

}  // namespace quire

#endif  // QUIRE_RUNTIME_STEP_CHECK_H_
