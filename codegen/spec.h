// Kernel specs: what one generated kernel computes, as plain data. A spec's text is the kernel's
// name everywhere: cache key, trace, plan and `quire dump`. Every property that changes the
// arithmetic is in the spec; nothing is a run-time switch.
//
//   linear n=960 k=576 w=q4_1 x=f32 y=f32 bias=0 residual=0 layout=rows16
//   attention hq=9 hkv=3 d=64 dv=64 kv=f16 page=16 mask=causal window=0 scale=0.125 cap=0 alibi=0
//   row func @row(%x: f32[T,576], %w: f32[576]) {...}
//
// Operands, in the order of a plan's Launch:
//   linear     inputs: x [rows,k], weight [n,k], bias [n] f32 if bias, residual [rows,n] of y's
//   type if residual
//              outputs: y [rows,n] = x . w^T (+ bias) (+ residual)
//   attention  inputs: q [T,hq,d] f32, the KV layer         outputs: y [T,hq,dv] f32
//   row        inputs: the function's arguments, then the KV layer of each kv_append in program
//   order
//              outputs: its returns, each [rows, ...]
#ifndef QUIRE_CODEGEN_SPEC_H_
#define QUIRE_CODEGEN_SPEC_H_

#include <cstdint>
#include <string>
#include <variant>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ir/dtype.h"

namespace quire {

// Where a weight's elements lie.
//   kRows:   as in the checkpoint, row after row.
//   kRows16: for linear kernels: rows in groups of 16 that are interleaved block by block, so that
//   one vector holds the same
//            columns of 16 rows; the last group is padded with zero rows. codegen/cpu/pack.h has
//            the byte layouts.
enum class WeightLayout : uint8_t { kRows, kRows16 };
absl::string_view LayoutText(WeightLayout layout);
absl::StatusOr<WeightLayout> ParseLayout(absl::string_view text);

struct LinearSpec {
  int64_t n = 0, k = 0;
  DType weight = DType::kF32;
  bool bias = false, residual = false;
  WeightLayout layout = WeightLayout::kRows16;
  DType x = DType::kF32, y = DType::kF32;  // f32, f16 or bf16
};

struct AttentionSpec {
  int64_t hq = 0, hkv = 0, d = 0, dv = 0;
  DType kv = DType::kF16;
  int64_t page_tokens = 0;
  bool causal = true;
  int64_t window = 0;  // 0: unlimited
  double scale = 1, cap = 0, alibi_max = 0;
};

// A fused group of row-wise ops, as a function of the IR in its own text with canonical names (%0,
// %1, ...).
struct RowSpec {
  std::string func;
};

using KernelSpec = std::variant<LinearSpec, AttentionSpec, RowSpec>;

std::string SpecText(const KernelSpec& spec);
// INVALID_ARGUMENT on a malformed text, or on a value outside the ranges that kernels exist for.
absl::StatusOr<KernelSpec> ParseSpec(absl::string_view text);

}  // namespace quire

#endif  // QUIRE_CODEGEN_SPEC_H_
