#include "models/blocks.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace quire {

Op* Attend(Builder& b, absl::string_view prefix, Op* q, Op* k, Op* v, const AttentionShape& spec) {
  const Extent rows = RowsOf(q);
  const auto named = [&](absl::string_view word) -> Builder& {
    return b.Named(absl::StrCat(prefix, word));
  };
  if (spec.k_scale != nullptr) k = named("ks").Make(OpKind::kKvScale, {k, spec.k_scale});
  if (spec.v_scale != nullptr) v = named("vs").Make(OpKind::kKvScale, {v, spec.v_scale});
  const int64_t group = spec.heads / spec.kv_heads;
  if (group > 1) {
    k = named("kx").ExpandHeads(k, group);
    v = named("vx").ExpandHeads(v, group);
  }
  q = named("qt").Transpose(q, {1, 0, 2});
  k = named("kt").Transpose(k, {1, 0, 2});
  v = named("vt").Transpose(v, {1, 0, 2});
  Op* scores = named("qk").MatMul(q, k, /*transpose_b=*/true);
  scores = named("scaled").Scale(scores, spec.scale);
  if (spec.softcap != 0) {
    scores = named("capped").Unary(OpKind::kSoftcap, scores, {{AttrKind::kCap, spec.softcap}});
  }
  if (spec.alibi_max != 0) {
    scores = named("biased").Unary(OpKind::kAlibi, scores, {{AttrKind::kAlibiMax, spec.alibi_max}});
  }
  if (spec.relative != nullptr) {
    scores = named("placed").RelativeBias(scores, spec.relative, spec.max_distance,
                                          spec.causal ? "back" : "both");
  }
  if (spec.causal) {
    scores = named("masked").Unary(OpKind::kCausalMask, scores, {{AttrKind::kWindow, spec.window}});
  }
  Op* weights = named("probs").Softmax(scores);
  Op* out = named("pv").MatMul(weights, v, /*transpose_b=*/false);
  out = named("heads").Transpose(out, {1, 0, 2});
  return named("attn").Reshape(out, {rows, spec.heads * spec.head_dim});
}

Op* Rotate(Builder& b, Op* x, Op* pos, Op* factors, const RopeConfig& rope, bool interleaved) {
  std::vector<Op*> operands = {x, pos};
  if (factors != nullptr) operands.push_back(factors);
  Builder::AttrList attrs = {{AttrKind::kTheta, rope.theta}};
  if (interleaved) attrs.emplace_back(AttrKind::kStyle, std::string("interleave"));
  if (rope.scaling != "none") {
    attrs.emplace_back(AttrKind::kScaling, rope.scaling);
    attrs.emplace_back(AttrKind::kScaleFactor, rope.factor);
  }
  if (rope.original_tokens != 0) {
    attrs.emplace_back(AttrKind::kOriginalTokens, rope.original_tokens);
  }
  if (rope.scaling == "llama3") {
    attrs.emplace_back(AttrKind::kLowFactor, rope.low_factor);
    attrs.emplace_back(AttrKind::kHighFactor, rope.high_factor);
  }
  if (rope.scaling == "yarn") {
    attrs.emplace_back(AttrKind::kBetaFast, rope.beta_fast);
    attrs.emplace_back(AttrKind::kBetaSlow, rope.beta_slow);
    attrs.emplace_back(AttrKind::kTruncate, int64_t{rope.truncate});
    attrs.emplace_back(AttrKind::kMagnitude, rope.magnitude);
  }
  return b.Make(OpKind::kRope, std::move(operands), std::move(attrs));
}

Op* Activate(Builder& b, Op* x, const ActivationConfig& activation) {
  if (activation.kind != OpKind::kGelu) return b.Unary(activation.kind, x);
  return b.Unary(OpKind::kGelu, x, {{AttrKind::kApproximate, activation.approximate}});
}

Op* Project(Builder& b, WeightsMap& weights, absl::string_view name, Op* x, WeightRequest request,
            const ProjectionForm& form) {
  const int64_t rows = request.extents[0];
  if (form.transposed) std::swap(request.extents[0], request.extents[1]);
  Op* w = weights.Get(b, absl::StrCat(name, ".w"), request);
  if (form.transposed) w = b.Named(absl::StrCat(name, ".wt")).Transpose(w, {1, 0});
  x = weights.Rounded(b, x, w, request);
  Op* bias = nullptr;
  if (form.bias) {
    request.part = "bias";
    request.extents = {rows};
    bias = weights.Get(b, absl::StrCat(name, ".b"), request);
  }
  return b.Named(name).Linear(x, w, bias);
}

Op* Normed(Builder& b, WeightsMap& weights, absl::string_view name, Op* x, WeightRequest request,
           const NormForm& form) {
  Op* w = weights.Get(b, absl::StrCat(name, ".w"), request);
  if (form.kind == NormKind::kRms) return b.Named(name).RmsNorm(x, w, form.eps, form.weight_offset);
  request.part = "bias";
  Op* bias = weights.Get(b, absl::StrCat(name, ".b"), request);
  return b.Named(name).LayerNorm(x, w, bias, form.eps);
}

}  // namespace quire
