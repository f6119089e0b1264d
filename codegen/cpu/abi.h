// What generated kernels look like to their caller: entry points and the structures they read.
//
// Every entry works on ranges, so that a launch can be divided between threads in any way; the
// division never changes a result. Float arrays that kernels read or write in 16-lane steps are
// 4-byte aligned; packed weights and activations are 64-byte aligned.
#ifndef QUIRE_CODEGEN_CPU_ABI_H_
#define QUIRE_CODEGEN_CPU_ABI_H_

#include <cstddef>
#include <cstdint>

namespace quire {

// linear, block-quantised weights: x is first quantised, 32 columns at a time, by "quantize".
struct ActivationBlock {
  int8_t q[32];
  float scale;        // x = scale * q
  float scaled_sum;   // scale * sum of q
  int32_t offset[2];  // -offset * sum of q over each of the weight type's scale units
};
static_assert(sizeof(ActivationBlock) == 48);

// Rows [row_begin, row_end) of x [rows,k] into blocks [rows, k / 32].
using QuantizeEntry = void (*)(const float* x, ActivationBlock* blocks, int64_t row_begin,
                               int64_t row_end);

// Rows [row_begin, row_end) and strips [strip_begin, strip_end) of y; a strip is 16 outputs of
// block-quantised weights, 64 of float ones. `x` holds ActivationBlocks or floats [rows,k]. bias
// holds f32 for n rounded up to 16; bias and residual are null when the spec has none.
using LinearEntry = void (*)(const void* x, const void* weight, const float* bias,
                             const float* residual, float* y, int64_t row_begin, int64_t row_end,
                             int64_t strip_begin, int64_t strip_end);

// row: operands are the spec's inputs (arguments, then KV layers), then its outputs. `scratch`
// holds CpuKernel::scratch_bytes for the calling thread.
struct RowStep {
  // Where each row's token goes in a KV layer, for kernels that append.
  const int64_t* page_offset;  // bytes of its page from the layer's first
  const int64_t* slot;         // token in the page
  int64_t page_tokens;
};
using RowEntry = void (*)(void* const* operands, const RowStep* step, void* scratch,
                          int64_t row_begin, int64_t row_end);

// attention: a context is cut into splits of kSplitTokens at absolute positions. A split's maximum,
// sum and outputs are computed from scratch and splits are merged in ascending order, so it does
// not matter who computes which split.
inline constexpr int64_t kSplitTokens = 256;

// Work on the queries of one KV head in one sequence. Query i is of row i / group, head
// kv_head * group + i % group.
struct AttentionItem {
  const int32_t* pages;    // block table; only pages with tokens that the queries see are read
  int64_t page_bytes;      // from one page of the layer to the next
  int64_t first_row;       // of the sequence in the step
  int64_t rows;            // of the sequence in the step
  int64_t context_tokens;  // its last row stands at context_tokens - 1
  int64_t kv_head;
  int64_t query_begin, query_end;
  int64_t split_begin, split_end;
  // Null when the item has all splits of its queries: outputs go to y. Otherwise sums of its one
  // split go here, for "merge": [queries, dv + 2], a query's outputs, maximum and sum.
  float* partial;
};
// Null but where the spec has them.
struct AttentionTables {
  // [hq, RelativeBiases(max_distance)], of key - query = -(max_distance + 15) .. max_distance + 15;
  // so that the biases of 16 keys in a row lie side by side, however far away they are.
  const float* biases = nullptr;
  const float *k_scales = nullptr, *v_scales = nullptr;  // [hkv]
};
constexpr int64_t RelativeBiases(int64_t max_distance) { return 2 * (max_distance + 15) + 1; }
// `layer`: the layer's place in page 0 of the pool. `scratch` as for rows.
using AttentionEntry = void (*)(const float* q, const void* layer, float* y,
                                const AttentionItem* item, void* scratch,
                                const AttentionTables* tables);
// Merges partial [splits, queries, dv + 2] of the item's splits into y.
using MergeEntry = void (*)(float* y, const AttentionItem* item, void* scratch,
                            const AttentionTables* tables);

// A layer of a KV page: K [Hkv, D, page_tokens], then V [Hkv, page_tokens, Dv]. Tokens lie
// innermost in K, so that a vector holds one column of 16 keys. The operand of a kv_append of
// slot v points at V.

// Entry names.
inline constexpr char kQuantizeEntry[] = "quantize";
inline constexpr char kMergeEntry[] = "merge";
inline constexpr char kMainEntry[] = "kernel";

}  // namespace quire

#endif  // QUIRE_CODEGEN_CPU_ABI_H_
