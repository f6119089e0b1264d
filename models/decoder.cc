#include "models/decoder.h"

#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ir/builder.h"
#include "ir/status.h"
#include "models/blocks.h"

namespace quire {
namespace {

constexpr int64_t kNoLayer = -1;

class DecoderBuilder {
 public:
  DecoderBuilder(const DecoderConfig& config, WeightsMap& weights, Func& func)
      : config_(config), weights_(weights), func_(func), b_(&func) {}

  absl::Status Build() {
    ids_ = func_.AddArg("ids", Type{DType::kI32, {Extent::Letter('T')}});
    pos_ = func_.AddArg("pos", Type{DType::kI32, {Extent::Letter('T')}});
    if (config_.states_width > 0) {
      states_ = func_.AddArg("states",
                             Type{DType::kF32, {Extent::Letter('S'), config_.states_width.value}});
    }
    Op* x = Embedding();
    if (states_ != nullptr) sees_ = SeesStates(x);
    for (int64_t layer = 0; layer < config_.layers; ++layer) {
      x = Layer(layer, x);
      // A checkpoint that lacks a tensor of one layer tends to lack them all.
      if (!weights_.status().ok()) return weights_.status();
    }
    Op* logits = Head(x);
    QUIRE_RETURN_IF_ERROR(weights_.status());
    QUIRE_RETURN_IF_ERROR(b_.status());
    func_.set_returns({logits});
    return absl::OkStatus();
  }

 private:
  Op* Embedding() {
    b_.set_scope("embed");
    Op* table = EmbedTable();
    Op* x = b_.Named("embed").Embed(table, ids_);
    if (config_.embed_scale != 1) x = b_.Named("embed.scaled").Scale(x, config_.embed_scale);
    if (config_.learned_positions) {
      Op* positions = weights_.Get(b_, "positions.w",
                                   {.role = TensorRole::kPositions,
                                    .extents = {config_.max_positions, config_.width},
                                    .from = {&config_.max_positions, &config_.width}});
      x = b_.Named("embed.at").Add(x, b_.Named("positions").Embed(positions, pos_));
    }
    return config_.embed_norm ? Norm(TensorRole::kEmbedNorm, kNoLayer, "embed.norm", x) : x;
  }

  Op* EmbedTable() {
    return weights_.Get(b_, "embed.w",
                        {.role = TensorRole::kEmbed,
                         .extents = {config_.vocab + config_.more_tokens, config_.width},
                         .from = {&config_.vocab, &config_.width}});
  }

  // [T,1]: 1 in rows that see a state, and 0 where there are none. An attention over ones is
  // that.
  Op* SeesStates(Op* x) {
    constexpr int64_t kWidth = 8;
    b_.set_scope("states");
    const auto zeros = [&](absl::string_view name, Op* rows) {
      Op* some = b_.Named(absl::StrCat(name, ".some")).Slice(rows, 1, 0, kWidth);
      some = b_.Named(absl::StrCat(name, ".zeros")).Scale(some, 0);
      return b_.Named(name).Reshape(some, {RowsOf(rows), 1, kWidth});
    };
    Op* q = zeros("sees.q", x);
    Op* k = zeros("sees.k", states_);
    Op* half = b_.Named("sees.half").Unary(OpKind::kSigmoid, k);
    Op* v = b_.Named("sees.v").Scale(half, 2);
    Op* sees = Attend(b_, "sees.", q, k, v, {.head_dim = kWidth, .causal = false});
    return b_.Named("sees").Slice(sees, 1, 0, 1);
  }

  // tanh(gate * sees) * x
  Op* Gated(TensorRole role, int64_t layer, absl::string_view name, Op* x) {
    Op* w = weights_.Get(b_, absl::StrCat(prefix_, name, ".w"),
                         {.role = role, .layer = layer, .part = "", .extents = {1}});
    const auto named = [&](absl::string_view word) -> Builder& {
      return Named(absl::StrCat(name, ".", word));
    };
    Op* gate = named("seen").Mul(sees_, w);
    gate = named("open").Unary(OpKind::kTanh, gate);
    gate = named("one").Reshape(gate, {RowsOf(x), 1, 1});
    gate = named("wide").ExpandHeads(gate, config_.width);
    gate = named("row").Reshape(gate, {RowsOf(x), config_.width.value});
    return Named(name).Mul(x, gate);
  }

  Op* Layer(int64_t layer, Op* x) {
    prefix_ = absl::StrCat("l", layer, ".");
    const auto residual = [&](Op* before, Op* normed) {
      return config_.residual_from_norm ? normed : before;
    };
    b_.set_scope(absl::StrCat("layers.", layer, ".self_attn"));
    Op* h = Norm(TensorRole::kAttnNorm, layer, "attn_norm", x);
    const bool over_states = config_.layer[static_cast<size_t>(layer)].over_states;
    Op* a = over_states ? StatesAttention(layer, h) : Attention(layer, h);
    if (over_states) a = Gated(TensorRole::kCrossAttnGate, layer, "attn_gate", a);
    if (config_.post_norms) a = Norm(TensorRole::kPostAttnNorm, layer, "attn_post_norm", a);
    x = Named("x").Add(residual(x, h), a);

    b_.set_scope(absl::StrCat("layers.", layer, ".mlp"));
    h = Norm(TensorRole::kMlpNorm, layer, "mlp_norm", x);
    Op* m = Mlp(layer, h);
    if (over_states) m = Gated(TensorRole::kCrossMlpGate, layer, "mlp_gate", m);
    if (config_.post_norms) m = Norm(TensorRole::kPostMlpNorm, layer, "mlp_post_norm", m);
    x = Named("y").Add(residual(x, h), m);
    prefix_.clear();
    return x;
  }

  Op* Attention(int64_t layer, Op* h) {
    const LayerConfig& settings = config_.layer[static_cast<size_t>(layer)];
    Op *q, *k, *v;
    const bool packed = config_.qkv_layout != QkvLayout::kSeparate;
    if (!packed) {
      q = Heads("qh", Project(TensorRole::kQ, layer, "q", h, config_.heads), config_.heads);
      k = Heads("kh", Project(TensorRole::kK, layer, "k", h, config_.kv_heads), config_.kv_heads);
      v = Heads("vh", Project(TensorRole::kV, layer, "v", h, config_.kv_heads), config_.kv_heads);
    } else {
      std::tie(q, k, v) = SplitQkv(PackedQkv(layer, h));
    }
    if (config_.qk_norm) {
      q = Norm(TensorRole::kQNorm, layer, "q_norm", q, &config_.head_dim);
      k = Norm(TensorRole::kKNorm, layer, "k_norm", k, &config_.head_dim);
    }
    if (settings.rope >= 0) {
      const RopeConfig& rope = config_.ropes[static_cast<size_t>(settings.rope)];
      Op* factors = RopeFactors();
      Named("qr");
      q = Rotate(b_, q, pos_, factors, rope, config_.rope_interleaved);
      Named("kr");
      k = Rotate(b_, k, pos_, factors, rope, config_.rope_interleaved);
    }
    Op* a = Attend(b_, prefix_, q, k, v,
                   {.heads = config_.heads,
                    .kv_heads = config_.kv_heads,
                    .head_dim = config_.head_dim,
                    .scale = settings.attention_scale,
                    .softcap = config_.attn_softcap,
                    .alibi_max = config_.alibi_max,
                    .window = settings.window,
                    .k_scale = KvScale(packed ? TensorRole::kQkv : TensorRole::kK, layer, 'k'),
                    .v_scale = KvScale(packed ? TensorRole::kQkv : TensorRole::kV, layer, 'v')});
    return Linear(TensorRole::kAttnOut, layer, "o", a, config_.width,
                  config_.heads * config_.head_dim, config_.out_bias,
                  {&config_.width, &config_.heads, &config_.head_dim});
  }

  Op* StatesAttention(int64_t layer, Op* h) {
    const auto heads = [&](TensorRole role, absl::string_view name, Op* rows,
                           const Dimension& count, const Dimension& width) {
      Op* projected = Linear(role, layer, name, rows, count * config_.head_dim, width, false,
                             {&count, &config_.head_dim, &width});
      return Named(absl::StrCat(name, "h"))
          .Reshape(projected, {RowsOf(rows), count.value, config_.head_dim.value});
    };
    Op* q = heads(TensorRole::kCrossQ, "q", h, config_.heads, config_.width);
    Op* k = heads(TensorRole::kCrossK, "k", states_, config_.kv_heads, config_.states_width);
    Op* v = heads(TensorRole::kCrossV, "v", states_, config_.kv_heads, config_.states_width);
    q = Norm(TensorRole::kCrossQNorm, layer, "q_norm", q, &config_.head_dim);
    k = Norm(TensorRole::kCrossKNorm, layer, "k_norm", k, &config_.head_dim);
    Op* a = Attend(b_, prefix_, q, k, v,
                   {.heads = config_.heads,
                    .kv_heads = config_.kv_heads,
                    .head_dim = config_.head_dim,
                    .scale = config_.layer[static_cast<size_t>(layer)].attention_scale,
                    .causal = false,
                    .k_scale = KvScale(TensorRole::kCrossK, layer, 'k'),
                    .v_scale = KvScale(TensorRole::kCrossV, layer, 'v')});
    return Linear(TensorRole::kCrossOut, layer, "o", a, config_.width,
                  config_.heads * config_.head_dim, false,
                  {&config_.width, &config_.heads, &config_.head_dim});
  }

  Op* KvScale(TensorRole projection, int64_t layer, char slot) {
    return weights_.KvScale(b_, absl::StrCat(prefix_, std::string(1, slot), "_scale"),
                            {.role = projection, .layer = layer}, slot, config_.kv_heads);
  }

  Op* Mlp(int64_t layer, Op* h) {
    const std::vector<const Dimension*> from = {&config_.ffn, &config_.width};
    const auto wide = [&](TensorRole role, absl::string_view name) {
      return Linear(role, layer, name, h, config_.ffn, config_.width, config_.mlp_bias, from);
    };
    const auto activate = [&](Op* x) {
      Named("act");
      return Activate(b_, x, config_.activation);
    };
    Op* inner;
    if (config_.gated_mlp) {
      Op* gate = activate(wide(TensorRole::kGate, "gate"));
      Op* up = wide(TensorRole::kUp, "up");
      inner = Named("gated").Mul(gate, up);
    } else {
      inner = activate(wide(TensorRole::kUp, "up"));
    }
    return Linear(TensorRole::kDown, layer, "down", inner, config_.width, config_.ffn,
                  config_.mlp_bias, from);
  }

  Op* Head(Op* x) {
    b_.set_scope("head");
    x = Norm(TensorRole::kFinalNorm, kNoLayer, "norm", x);
    const WeightRequest own = {.role = TensorRole::kHead,
                               .extents = {config_.vocab, config_.width},
                               .from = {&config_.vocab, &config_.width}};
    Op* w = config_.tied_head ? EmbedTable() : weights_.Get(b_, "head.w", own);
    if (!config_.tied_head) x = weights_.Rounded(b_, x, w, own);
    if (config_.final_softcap == 0) return b_.Named("logits").Linear(x, w);
    x = b_.Named("logits.raw").Linear(x, w);
    return b_.Named("logits").Unary(OpKind::kSoftcap, x, {{AttrKind::kCap, config_.final_softcap}});
  }

  // [T,E] to [T, heads*D].
  Op* Project(TensorRole role, int64_t layer, absl::string_view name, Op* x,
              const Dimension& heads) {
    return Linear(role, layer, name, x, heads * config_.head_dim, config_.width, config_.qkv_bias,
                  {&heads, &config_.head_dim, &config_.width});
  }

  Op* PackedQkv(int64_t layer, Op* x) {
    const int64_t heads = config_.heads + 2 * config_.kv_heads;
    return Linear(TensorRole::kQkv, layer, "qkv", x, heads * config_.head_dim, config_.width,
                  config_.qkv_bias,
                  {&config_.heads, &config_.kv_heads, &config_.head_dim, &config_.width});
  }

  // q, k and v as heads, from the packed projection [T, (Hq + 2 Hkv) * D].
  std::tuple<Op*, Op*, Op*> SplitQkv(Op* qkv) {
    if (config_.qkv_layout == QkvLayout::kInterleaved) {
      Op* heads = Named("qkvh").Reshape(
          qkv, {Extent::Letter('T'), config_.heads.value, 3, config_.head_dim.value});
      const auto part = [&](absl::string_view name, int64_t at) {
        Op* slice = Named(absl::StrCat(name, "s")).Slice(heads, 2, at, at + 1);
        return Heads(absl::StrCat(name, "h"), slice, config_.heads);
      };
      Op* q = part("q", 0);
      Op* k = part("k", 1);
      return {q, k, part("v", 2)};
    }
    const int64_t q_end = config_.heads * config_.head_dim;
    const int64_t kv_columns = config_.kv_heads * config_.head_dim;
    const auto part = [&](absl::string_view name, int64_t begin, int64_t columns, int64_t heads) {
      Op* slice = Named(name).Slice(qkv, 1, begin, begin + columns);
      return Heads(absl::StrCat(name, "h"), slice, heads);
    };
    Op* q = part("q", 0, q_end, config_.heads);
    Op* k = part("k", q_end, kv_columns, config_.kv_heads);
    return {q, k, part("v", q_end + kv_columns, kv_columns, config_.kv_heads)};
  }

  Op* Heads(absl::string_view name, Op* x, int64_t heads) {
    return Named(name).Reshape(x, {Extent::Letter('T'), heads, config_.head_dim.value});
  }

  // Divisors of the rope frequencies, which GGUF files carry as a tensor.
  Op* RopeFactors() {
    if (!config_.rope_factors) return nullptr;
    return weights_.Get(b_, "rope.factors",
                        {.role = TensorRole::kRopeFactors,
                         .extents = {config_.head_dim / 2},
                         .from = {&config_.head_dim}});
  }

  Op* Norm(TensorRole role, int64_t layer, absl::string_view name, Op* x,
           const Dimension* over = nullptr) {
    const Dimension& dim = over == nullptr ? config_.width : *over;
    return Normed(b_, weights_, absl::StrCat(prefix_, name), x,
                  {.role = role, .layer = layer, .extents = {dim}, .from = {&dim}},
                  {config_.norm, config_.norm_eps, config_.norm_weight_offset});
  }

  Op* Linear(TensorRole role, int64_t layer, absl::string_view name, Op* x, int64_t rows,
             int64_t columns, bool has_bias, std::vector<const Dimension*> from) {
    return quire::Project(
        b_, weights_, absl::StrCat(prefix_, name), x,
        {.role = role, .layer = layer, .extents = {rows, columns}, .from = std::move(from)},
        {has_bias, config_.transposed_linear});
  }

  Builder& Named(absl::string_view name) { return b_.Named(absl::StrCat(prefix_, name)); }

  const DecoderConfig& config_;
  WeightsMap& weights_;
  Func& func_;
  Builder b_;
  std::string prefix_;  // "l7." within a layer
  Op* ids_ = nullptr;
  Op* pos_ = nullptr;
  Op* states_ = nullptr;  // null where there are none; [S,E]
  Op* sees_ = nullptr;    // which rows see some of them
};

}  // namespace

absl::Status BuildDecoder(const DecoderConfig& config, WeightsMap& weights, Func& func) {
  return DecoderBuilder(config, weights, func).Build();
}

}  // namespace quire
