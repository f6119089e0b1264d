// Attention kernels for CUDA: one launch for any mix of decode, prefill, chunks, prefix hits and
// rows to verify over pages, after one launch a step that makes its work list. Needs no GPU.
//
// codegen/cuda/kernels/attention.cuh has the arithmetic: a row's bits depend on its own sequence up
// to its own token, and on nothing else.
//
// Operands, in order: those of codegen/spec.h. q, the layer and y begin at multiples of 16 bytes.
// The layer is read up to each sequence's context, whose values must be finite; what lies behind it
// in a page, or before every row's window, is not read, be its page's entry valid or not.
#ifndef QUIRE_CODEGEN_CUDA_ATTENTION_H_
#define QUIRE_CODEGEN_CUDA_ATTENTION_H_

#include <memory>

#include "absl/status/statusor.h"
#include "codegen/cuda/kernel.h"
#include "codegen/spec.h"

namespace quire {

// UNIMPLEMENTED on a spec that has no CUDA kernel, naming what is not supported.
absl::StatusOr<std::unique_ptr<CudaKernel>> MakeCudaAttention(const AttentionSpec& spec,
                                                              const CudaLimits& limits);

}  // namespace quire

#endif  // QUIRE_CODEGEN_CUDA_ATTENTION_H_
