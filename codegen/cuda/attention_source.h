// The texts of attention kernels.
#ifndef QUIRE_CODEGEN_CUDA_ATTENTION_SOURCE_H_
#define QUIRE_CODEGEN_CUDA_ATTENTION_SOURCE_H_

#include <cstdint>

#include "codegen/cuda/attention_config.h"
#include "codegen/cuda/kernel.h"
#include "codegen/spec.h"

namespace quire {

// Distances of the table of biases that a kernel reads. One by buckets was unrolled when it was
// loaded.
int64_t CudaAttentionDistances(const AttentionSpec& spec);
// Whether tensor copies bring q, too: 64 rows of a tile are all heads of some tokens.
bool CudaAttentionHasQueryBoxes(const AttentionSpec& spec, const CudaAttentionConfig& config);

// `many_rows`: of a tile of many. What an entry takes: maps of the layer and of q, if it has them,
// the plan's operands, pages, plan.
CudaEntry CudaAttentionEntry(const AttentionSpec& spec, const CudaAttentionConfig& config,
                             int64_t many_rows);
// The entry that makes the work list; `few`: how that for few rows fits.
CudaEntry CudaAttentionPlanEntry(const AttentionSpec& spec, const CudaAttentionConfig& few,
                                 int64_t many_rows);

}  // namespace quire

#endif  // QUIRE_CODEGEN_CUDA_ATTENTION_SOURCE_H_
