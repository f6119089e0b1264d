// The bodies of attention kernels, and how each fits a device.
#ifndef QUIRE_CODEGEN_CUDA_ATTENTION_CONFIG_H_
#define QUIRE_CODEGEN_CUDA_ATTENTION_CONFIG_H_

#include <cstdint>

#include "codegen/cuda/kernel.h"
#include "codegen/spec.h"

namespace quire {

struct CudaAttentionConfig {
  enum class Body {
    kFew,         // for tiles of few rows
    kShort,       // likewise, over a context of one step
    kMany,        // of many
    kWarpgroups,  // of many, by products of warpgroups
    kWide,        // likewise, of wide heads
  };
  Body body = Body::kFew;
  int threads = 0;
  int stages = 0;        // of kFew, kMany, kWarpgroups, kWide; 0: it does not fit
  int resident = 1;      // blocks a multiprocessor
  int shared_bytes = 0;  // so many that no more blocks fit
  // Of kMany, whose keys and values in bytes become elements first: room for both at once.
  bool both_wide = true;

  bool by_warpgroups() const { return body == Body::kWarpgroups || body == Body::kWide; }
};

CudaAttentionConfig CudaAttentionForFew(const AttentionSpec& spec, const CudaLimits& limits);
CudaAttentionConfig CudaAttentionForShort(const AttentionSpec& spec);
// As many rows a tile as fit.
CudaAttentionConfig CudaAttentionForMany(const AttentionSpec& spec, const CudaLimits& limits);

namespace cuda_attention {

// Constants of codegen/cuda/kernels/attention*.cuh; static_asserts there compare the bytes.
constexpr int kWideRows = 64;
constexpr int kChunkTokens = 256, kStepTokens = 64;

constexpr int64_t DivideUp(int64_t a, int64_t b) { return (a + b - 1) / b; }
constexpr int64_t RoundUp(int64_t a, int64_t b) { return DivideUp(a, b) * b; }

int64_t KvBytes(const AttentionSpec& spec);  // of an element of keys and values
bool IsNarrow(const AttentionSpec& spec);    // of one byte
bool IsWide(const AttentionSpec& spec);
// Rows of a tile of few, and of one of many.
int64_t FewRows(const AttentionSpec& spec);
int64_t ManyRows(const AttentionSpec& spec, const CudaAttentionConfig& many);

}  // namespace cuda_attention
}  // namespace quire

#endif  // QUIRE_CODEGEN_CUDA_ATTENTION_CONFIG_H_
