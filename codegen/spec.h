// Kernel specs: what one generated kernel computes, as plain data. A spec's text is the kernel's
// name everywhere: cache key, trace, plan and `quire dump`. Every property that changes the
// arithmetic is in the spec; nothing is a run-time switch.
//
//   linear n=960 k=576 w=q4_1 x=f32 y=f32 bias=0 residual=0 layout=rows16
//   linear n=14336 k=4096 w=bf16 x=bf16 y=bf16 bias=0 residual=0 layout=rows norm=rms eps=0.00001
//       offset=0 norm_w=f32 act=silu gated=1
//   linear n=4096 k=4096 w=f8e4m3_128 x=bf16 y=bf16 bias=0 residual=0 layout=rows quantize=row
//       most=0 row_scales=1
//   linear n=24576 k=1024 w=bf16 x=bf16 y=bf16 bias=1 residual=0 layout=rows append=12 heads=16
//       d=64 dv=64 page=16
//   linear n=6144 k=4096 w=bf16 x=bf16 y=bf16 bias=0 residual=0 layout=rows append=1 heads=8 d=128
//       dv=128 page=16 rope=theta=500000 factors=f32
//   attention hq=9 hkv=3 d=64 dv=64 kv=f16 page=16 mask=causal window=0 scale=0.125 cap=0 alibi=0
//   attention ... alibi=0 buckets=32 distance=128 direction=back
//   attention ... kv=f8e4m3 page=16 ... alibi=0 k_scale=1 v_scale=1
//   row func @row(%x: f32[T,576], %w: f32[576]) {...}
//
// Fields that not every kernel has stand last, and only where they are not the default: canonical
// text has no other form. On one line, but for a row kernel's function.
//
// Operands, in the order of a plan's Launch:
//   linear     inputs: x [rows,k], weight [n,k] ([2n,k] if gated), bias [n] ([2n]) if bias,
//   residual [rows,n] of y's type if residual, weight [k] of the norm if it has one, bias [k] of
//   the norm if it has one, the scale of x (one float) if quantize is scale, positions i32 [rows]
//   if rope and factors [d/2] if it has them, which all launches of the kernel in a program have in
//   common, the KV layers if it appends, which follow each other in the plan's list
//              outputs: y [rows,n] = x . w^T (+ bias) (+ residual); the columns of y that are not
//   appended, if there are any
//   attention  inputs: q [T,hq,d], the KV layer, scales of K if k_scale, scales of V if v_scale,
//   bias [hq,distances] f32 if bias, sinks [hq] f32 if sinks, tree [T,words] i32 if tree; or table
//   [buckets,hq] of any floats if buckets
//              outputs: y [T,hq,dv], of q's type x
//   row        inputs: the function's arguments, then the KV layer of each kv_append in program
//   order
//              outputs: its returns, each [rows, ...]
// Scales, of attention and of a row kernel's kv_append, are one float, or one a head: a device
// makes f32 [hkv] of them when it loads them; of a quantize, f32 [1].
// A linear with norm or act computes what these launches would, to the bit:
//   norm       a row kernel that computes the norm of x in f32 and rounds it to x's type
//   quantize   x, or the norm of x, to f8e4m3 by scales, as the op of ir/ops.def; of the products
//              of two f8e4m3 the sums, and not the operands, may be what is multiplied by scales
//   product    (+ bias), rounded to y's type: n columns, 2n if gated
//   rope       a row kernel that turns heads of d, all columns but those of V, in f32, and rounds
//              them to y's type
//   act        a row kernel that computes act(a), or act(a) * b if gated, a being the first n
//              columns and b the others, in f32, and rounds it to y's type
// With a residual there is no act.
#ifndef QUIRE_CODEGEN_SPEC_H_
#define QUIRE_CODEGEN_SPEC_H_

#include <cstdint>
#include <optional>
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

// A norm of the rows of x before the product; rms_norm and layer_norm of ir/ops.def.
struct NormSpec {
  enum class Kind : uint8_t { kRms, kLayer };
  Kind kind = Kind::kRms;
  double eps = 0;
  double weight_offset = 0;           // kRms
  std::optional<DType> weight, bias;  // f32, f16 or bf16; a bias with kLayer and a weight only
};

// Pointwise functions of ir/ops.def, gelu in its three approximations.
enum class LinearAct : uint8_t {
  kNone,
  kSilu,
  kGelu,
  kGeluTanh,
  kGeluQuick,
  kRelu,
  kTanh,
  kSigmoid
};

// How rows of x are brought to f8e4m3 before the product; the op quantize of ir/ops.def.
struct QuantizeSpec {
  int64_t columns = 0;     // that have a scale in common; 0: the whole row
  double most = 0;         // of the greatest |x| that a scale is of; 0: unlimited
  bool has_scale = false;  // one that is given, instead
};

// Columns of a product that are appended to the KV cache, as y's type has them, and are not in y:
// the last ones, of one layer after another K [heads,d], then V [heads,dv].
struct AppendSpec {
  int64_t layers = 0, heads = 0;
  int64_t d = 0, dv = 0;  // multiples of 8
  int64_t page_tokens = 0;

  int64_t columns() const { return layers * heads * (d + dv); }
};

// How heads of queries and keys are turned before they leave; the op rope of ir/ops.def.
struct RopeSpec {
  std::string attributes;        // as the op's text has them, without blanks
  std::optional<DType> factors;  // f32, f16 or bf16
};

struct LinearSpec {
  int64_t n = 0, k = 0;
  DType weight = DType::kF32;
  bool bias = false, residual = false;
  WeightLayout layout = WeightLayout::kRows16;
  DType x = DType::kF32, y = DType::kF32;  // f32, f16 or bf16
  std::optional<NormSpec> norm;
  std::optional<QuantizeSpec> quantize;
  bool row_scales = false;  // of a w of f8e4m3_128: a row's blocks all have the same scale
  LinearAct act = LinearAct::kNone;
  bool gated = false;  // with an act only
  std::optional<AppendSpec>
      append;  // with neither residual nor act; the rest of n is a multiple of 8
  // With an append of one layer only: its K, and y in heads of its d, a multiple of 16 where the
  // style is half.
  std::optional<RopeSpec> rope;

  int64_t weight_rows() const { return gated ? 2 * n : n; }
  int64_t y_columns() const { return append.has_value() ? n - append->columns() : n; }
};

struct AttentionSpec {
  int64_t hq = 0, hkv = 0, d = 0, dv = 0;
  DType kv = DType::kF16;
  int64_t page_tokens = 0;
  bool causal = true;
  int64_t window = 0;  // 0: unlimited
  double scale = 1, cap = 0, alibi_max = 0;
  DType x = DType::kF32;  // of q and y: f32, f16 or bf16
  // Added to the scores of head h: bias[h, i] at i = query's position - key's, plus distances / 2
  // if not causal, clamped to the table. 0: none.
  int64_t bias_distances = 0;
  // Of each head a score that takes part in the softmax, with no value.
  bool sinks = false;
  // Of each row, bits of which of the step's first 32 * tree_words tokens of its own sequence it
  // sees, lowest bit of the first word first; such tokens after it are not seen whatever their bit.
  // 0: none. Needs causal.
  int64_t tree_words = 0;
  // The op relative_bias with a table of so many rows, which a device unrolls into biases by
  // distance when it loads the table (codegen/relative_bias.h). 0: none.
  int64_t buckets = 0, max_distance = 0;
  bool both_directions = false;
  // Whether what the layer keeps of K, and of V, is multiplied by scales [hkv].
  bool k_scale = false, v_scale = false;
};

// A fused group of row-wise ops, as a function of the IR in its own text with canonical names (%0,
// %1, ...).
//
// Types of arguments and returns are those in memory: where values are stored as f16 or bf16, the
// function casts them to f32 first and its results back last. A matrix of blocks that embed looks
// up in layout rows is one of the checkpoint's bytes: a row is a sequence of whole blocks.
//
// page_tokens: of a function that appends to the KV cache, on devices whose row kernels have to
// know it (codegen/target.h); otherwise 0. There a layer's K and V of one page lie one after the
// other, and a function that appends to one of them appends to both.
struct RowSpec {
  std::string func;
  int64_t page_tokens = 0;
};

using KernelSpec = std::variant<LinearSpec, AttentionSpec, RowSpec>;

absl::string_view LinearActText(LinearAct act);

std::string SpecText(const KernelSpec& spec);
// The text on one line, for messages: of a row kernel, whose function may be long, its operations.
//   "row: embed, rms_norm"
std::string SpecTitle(absl::string_view text);
// INVALID_ARGUMENT on a malformed text, or on a value outside the ranges that kernels exist for.
absl::StatusOr<KernelSpec> ParseSpec(absl::string_view text);

}  // namespace quire

#endif  // QUIRE_CODEGEN_SPEC_H_
