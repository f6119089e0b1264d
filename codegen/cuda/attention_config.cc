#include "codegen/cuda/attention_config.h"

#include <algorithm>
#include <numeric>

namespace quire {
namespace {

using cuda_attention::DivideUp, cuda_attention::RoundUp;
using cuda_attention::FewRows, cuda_attention::IsNarrow, cuda_attention::IsWide,
    cuda_attention::KvBytes, cuda_attention::ManyRows;
using cuda_attention::kChunkTokens, cuda_attention::kStepTokens, cuda_attention::kWideRows;
using Body = CudaAttentionConfig::Body;

// Constants of codegen/cuda/kernels/attention*.cuh; static_asserts there compare the bytes.
constexpr int kFewThreads = 128, kWarpThreads = 32;
constexpr int kWarpgroupThreads = 384, kWarpgroupRows = 128, kOnesBytes = 1024;
constexpr int64_t kTileNoteBytes = 96, kSharedWeightsBytes = kWideRows * 128 + 1024;
constexpr int kTileTokens = 16;
constexpr int64_t kOpenPairBytes = 40;
constexpr int64_t kNoteBytes = 6 * 16, kPlaceTables = 3;
constexpr int kMostStages = 6;       // of many rows
constexpr int kMostTileStages = 12;  // of few
// So many that a block may share a chunk, and that two blocks' copies keep a multiprocessor busy.
constexpr int kGoodTileStages = 5;

// Rows of a tile of few that a warp has, and the warps that share it.
int64_t WarpRows(const AttentionSpec& spec) { return IsWide(spec) || spec.hq == spec.hkv ? 8 : 16; }
int64_t SharingWarps(const AttentionSpec& spec) {
  return spec.hq / spec.hkv > WarpRows(spec) ? 2 : 1;
}

// Bytes of a row of `elements` of 16 bits, or of bytes, in shared memory.
int64_t SharedRowBytes(int64_t elements, int64_t element_bytes = 2) {
  const int64_t units = DivideUp(elements, 16) * element_bytes;
  return (units % 8 == 0 ? units : units | 1) * 16;
}

// Dynamic shared memory of an attention entry.
int64_t FewSharedBytes(const AttentionSpec& spec, int64_t threads, int64_t stages) {
  const int64_t warps = threads / kWarpThreads, teams = warps / SharingWarps(spec);
  const int64_t row =
      std::max(SharedRowBytes(spec.d, KvBytes(spec)), SharedRowBytes(spec.dv, KvBytes(spec)));
  const int64_t slot = RoundUp(kTileTokens * row, 128);
  const bool may_share = stages / SharingWarps(spec) > kChunkTokens / kTileTokens / warps;
  const int64_t of_chunk =
      FewRows(spec) * (SharedRowBytes(kChunkTokens) + kChunkTokens / kTileTokens * 4);
  const int64_t sums = FewRows(spec) / 8 * (DivideUp(spec.dv, 16) + 1) * 32 * 16;
  return teams * stages * slot + (may_share ? std::max(of_chunk, sums) : sums) + 2 * kOpenPairBytes;
}
int64_t SharedBytes(const AttentionSpec& spec, const CudaAttentionConfig& config, int64_t stages) {
  if (config.body == Body::kFew) return FewSharedBytes(spec, config.threads, stages);
  if (config.by_warpgroups()) {
    const bool wide = config.body == Body::kWide;
    const int64_t row = RoundUp(spec.d, 64) * 2, tiles = wide ? 1 : 2, halves = wide ? 1 : 2;
    const int64_t byte_stages = IsNarrow(spec) ? DivideUp(stages, 2) : 0;
    const int64_t barriers = 2 * (halves * stages + byte_stages) + 3 * tiles + (wide ? 4 : 0);
    const int64_t of_bytes = byte_stages * 2 * kStepTokens * 128;
    return tiles * ManyRows(spec, config) * row + stages * halves * kStepTokens * row + of_bytes +
           (wide ? 2 * kSharedWeightsBytes : 0) + kOnesBytes + RoundUp(8 * barriers, 16) +
           tiles * kTileNoteBytes;
  }
  const int64_t key_row = SharedRowBytes(spec.d, KvBytes(spec));
  const int64_t value_row = SharedRowBytes(spec.dv, KvBytes(spec));
  const int64_t query = ManyRows(spec, config) * SharedRowBytes(spec.d);
  const int64_t wide_key = SharedRowBytes(spec.d), wide_value = SharedRowBytes(spec.dv);
  const int64_t wide_row = !IsNarrow(spec)    ? 0
                           : config.both_wide ? wide_key + wide_value
                                              : std::max(wide_key, wide_value);
  const int64_t runs = kStepTokens / std::gcd(int64_t{kStepTokens}, spec.page_tokens);
  return RoundUp(query, 128) + stages * kStepTokens * (key_row + value_row) +
         kStepTokens * wide_row + kNoteBytes +
         kPlaceTables * runs * 4 * (spec.d == spec.dv ? 1 : 2);
}

// `config` with as many stages as fit where `resident` blocks do.
CudaAttentionConfig Fitted(const AttentionSpec& spec, const CudaLimits& limits,
                           CudaAttentionConfig config) {
  constexpr int kReserved = 1024;  // of every block
  const int all = limits.shared_bytes + kReserved;
  const int most = all / config.resident - kReserved;
  const int most_stages = config.body == Body::kFew ? kMostTileStages : kMostStages;
  while (config.stages < most_stages && SharedBytes(spec, config, config.stages + 1) <= most) {
    ++config.stages;
  }
  config.shared_bytes =
      std::max(static_cast<int>(SharedBytes(spec, config, config.stages)),
               static_cast<int>(RoundUp(all / (config.resident + 1) - kReserved + 1, 128)));
  return config;
}

// Whether tensor copies bring whole runs of tokens, and warpgroups' registers hold 64 rows' sums.
// Of wide heads there is no room for bytes beside the elements that they become.
bool HasWarpgroups(const AttentionSpec& spec, const CudaLimits& limits) {
  return limits.major == 9 && spec.d == spec.dv && spec.page_tokens % 8 == 0 &&
         (!IsWide(spec) || (!IsNarrow(spec) && (spec.d == 192 || spec.d == 256)));
}
}  // namespace

// Of few rows two blocks a multiprocessor, or one of twice as many warps where so many rows that
// warps share them want these for their products and would have merges of half the blocks; where
// stages are enough. Otherwise one block.
CudaAttentionConfig CudaAttentionForFew(const AttentionSpec& spec, const CudaLimits& limits) {
  const CudaAttentionConfig two =
      Fitted(spec, limits,
             SharingWarps(spec) == 1 ? CudaAttentionConfig{Body::kFew, kFewThreads, 0, 2, 0}
                                     : CudaAttentionConfig{Body::kFew, 2 * kFewThreads, 0, 1, 0});
  if (two.stages >= kGoodTileStages) return two;
  return Fitted(spec, limits, {Body::kFew, kFewThreads, 0, 1, 0});
}
// A tile's keys and values in registers.
CudaAttentionConfig CudaAttentionForShort(const AttentionSpec& spec) {
  const int64_t most = std::max(spec.d, spec.dv);
  const int resident = most > 96 ? 2 : most > 64 || spec.tree_words > 0 ? 3 : 4;
  return {Body::kShort, kFewThreads, 0, resident, 0};
}
CudaAttentionConfig CudaAttentionForMany(const AttentionSpec& spec, const CudaLimits& limits) {
  if (HasWarpgroups(spec, limits)) {
    const Body body = IsWide(spec) ? Body::kWide : Body::kWarpgroups;
    return Fitted(spec, limits, {body, kWarpgroupThreads, 0, 1, 0});
  }
  for (const int threads : {256, 128}) {
    for (const bool both_wide : {true, false}) {
      const CudaAttentionConfig config =
          Fitted(spec, limits, {Body::kMany, threads, 0, 1, 0, both_wide});
      if (config.stages >= 1) return config;
    }
  }
  return {Body::kMany, 128, 0, 1, 0};
}

namespace cuda_attention {

int64_t KvBytes(const AttentionSpec& spec) { return InfoOf(spec.kv).block_bytes; }
bool IsNarrow(const AttentionSpec& spec) { return KvBytes(spec) == 1; }
bool IsWide(const AttentionSpec& spec) { return std::max(spec.d, spec.dv) > 128; }
int64_t FewRows(const AttentionSpec& spec) { return WarpRows(spec) * SharingWarps(spec); }
int64_t ManyRows(const AttentionSpec& spec, const CudaAttentionConfig& many) {
  if (many.body == Body::kWarpgroups) return kWarpgroupRows;
  if (many.body == Body::kWide) return kWideRows;
  return many.threads / 2 / (IsWide(spec) ? 2 : 1);
}

}  // namespace cuda_attention

}  // namespace quire
