// What `quire check --device=cuda` asks beyond the plan: driver, GPU, NVRTC, kernels. Each is
// asked whatever the others answer, so that one run says all that is missing.
#ifndef QUIRE_TOOLS_CHECK_CUDA_H_
#define QUIRE_TOOLS_CHECK_CUDA_H_

#include "ir/plan_io.h"
#include "tools/checklist.h"
#include "tools/session.h"

namespace quire {

// `target` is null where the plan has none for CUDA.
void CheckCuda(const PlanFile& file, const plan::TargetT* target, const SessionOptions& options,
               Checklist* list);

}  // namespace quire

#endif  // QUIRE_TOOLS_CHECK_CUDA_H_
