#include "models/encoder_decoder.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ir/builder.h"
#include "ir/status.h"
#include "models/blocks.h"

namespace quire {
namespace {

constexpr int64_t kNoLayer = -1;

// Of one attention: its own, or that over the encoder's output.
struct AttentionRoles {
  TensorRole q, k, v, out;
  absl::string_view word;  // before the names of its values
};
constexpr AttentionRoles kOwn = {TensorRole::kQ, TensorRole::kK, TensorRole::kV,
                                 TensorRole::kAttnOut, ""};
constexpr AttentionRoles kCross = {TensorRole::kCrossQ, TensorRole::kCrossK, TensorRole::kCrossV,
                                   TensorRole::kCrossOut, "cross_"};

class EncoderDecoderBuilder {
 public:
  EncoderDecoderBuilder(const EncoderDecoderConfig& config, WeightsMap& weights, Func& func)
      : config_(config), weights_(weights), func_(func), b_(&func) {}

  absl::Status Build() {
    const auto tokens = [&](absl::string_view name, char letter) {
      return func_.AddArg(name, Type{DType::kI32, {Extent::Letter(letter)}});
    };
    Op* ids = tokens("ids", 'T');
    Op* pos = tokens("pos", 'T');
    Op* source = tokens("source", 'S');
    Op* source_pos = tokens("source_pos", 'S');
    Op* memory = Stack(/*encoder=*/true, source, source_pos, nullptr);
    Op* x = Stack(/*encoder=*/false, ids, pos, memory);
    if (config_.head_scale != 1) x = b_.Named("head.scaled").Scale(x, config_.head_scale);
    Op* logits = b_.Named("logits").Linear(x, HeadWeight());
    QUIRE_RETURN_IF_ERROR(weights_.status());
    QUIRE_RETURN_IF_ERROR(b_.status());
    func_.set_returns({logits});
    return absl::OkStatus();
  }

 private:
  // All layers of one stack over embedded tokens; `memory` is the encoder's output, for the
  // decoder.
  Op* Stack(bool encoder, Op* ids, Op* pos, Op* memory) {
    encoder_ = encoder;
    stack_ = encoder ? &config_.encoder : &config_.decoder;
    prefix_ = encoder ? "source_" : "";
    b_.set_scope(absl::StrCat(encoder ? "encoder" : "decoder", ".embed"));
    Op* x = Embedding(ids, pos);
    for (int64_t layer = 0; layer < stack_->layers; ++layer) {
      prefix_ = absl::StrCat(encoder ? "e" : "l", layer, ".");
      b_.set_scope(absl::StrCat(encoder ? "encoder" : "decoder", ".layers.", layer));
      x = Layer(layer, x, memory);
      if (!weights_.status().ok()) return x;
    }
    prefix_ = encoder ? "source_" : "";
    return config_.final_norms ? Norm(TensorRole::kFinalNorm, kNoLayer, "norm", x) : x;
  }

  Op* Embedding(Op* ids, Op* pos) {
    const WeightRequest own = {.role = TensorRole::kOwnEmbed,
                               .encoder = encoder_,
                               .extents = {config_.vocab, config_.width},
                               .from = {&config_.vocab, &config_.width}};
    const bool has_own = config_.own_embeddings && weights_.Has(own);
    Op* table = has_own ? weights_.Get(b_, absl::StrCat(prefix_, "embed.w"), own) : EmbedTable();
    Op* x = Named("embed").Embed(table, ids);
    if (config_.embed_scale != 1) x = Named("embed_scaled").Scale(x, config_.embed_scale);
    if (config_.learned_positions) {
      // A limit of the configuration, and the rows before position 0, make the table.
      Op* rows =
          weights_.Get(b_, absl::StrCat(prefix_, "positions.w"),
                       {.role = TensorRole::kPositions,
                        .encoder = encoder_,
                        .extents = {config_.max_positions + config_.position_offset, config_.width},
                        .from = {&config_.max_positions, &config_.width}});
      Op* positions = Named("positions").Embed(rows, pos, config_.position_offset);
      x = Named("embed_at").Add(x, positions);
    }
    return config_.embed_norm ? Norm(TensorRole::kEmbedNorm, kNoLayer, "embed_norm", x) : x;
  }

  Op* EmbedTable() {
    return weights_.Get(b_, "embed.w",
                        {.role = TensorRole::kEmbed,
                         .extents = {config_.vocab, config_.width},
                         .from = {&config_.vocab, &config_.width}});
  }

  Op* HeadWeight() {
    b_.set_scope("head");
    const WeightRequest head = {.role = TensorRole::kHead,
                                .extents = {config_.vocab, config_.width},
                                .from = {&config_.vocab, &config_.width}};
    const bool is_tied = config_.tied_head || (config_.tied_unless_stored && !weights_.Has(head));
    return is_tied ? EmbedTable() : weights_.Get(b_, "head.w", head);
  }

  Op* Layer(int64_t layer, Op* x, Op* memory) {
    x = Sublayer(TensorRole::kAttnNorm, layer, "attn_norm", "x", x,
                 [&](Op* h) { return Attention(kOwn, layer, h, h); });
    if (memory != nullptr) {
      x = Sublayer(TensorRole::kCrossNorm, layer, "cross_norm", "z", x,
                   [&](Op* h) { return Attention(kCross, layer, h, memory); });
    }
    return Sublayer(TensorRole::kMlpNorm, layer, "mlp_norm", "y", x,
                    [&](Op* h) { return Mlp(layer, h); });
  }

  // x + f(norm(x)), or norm(x + f(x)).
  template <typename F>
  Op* Sublayer(TensorRole norm, int64_t layer, absl::string_view norm_name, absl::string_view sum,
               Op* x, F f) {
    if (config_.norm_first) {
      Op* out = f(Norm(norm, layer, norm_name, x));
      return Named(sum).Add(x, out);
    }
    Op* out = f(x);
    return Norm(norm, layer, norm_name, Named(sum).Add(x, out));
  }

  // Of rows `x` over rows `memory`, which are the same for a stack's own attention.
  Op* Attention(const AttentionRoles& roles, int64_t layer, Op* x, Op* memory) {
    const auto heads = [&](TensorRole role, absl::string_view name, Op* rows) {
      const std::string word = absl::StrCat(roles.word, name);
      Op* projected = Project(role, layer, word, rows, stack_->heads * config_.head_dim,
                              config_.width, {&stack_->heads, &config_.head_dim, &config_.width});
      return Named(absl::StrCat(word, "h"))
          .Reshape(projected, {RowsOf(rows), stack_->heads.value, config_.head_dim.value});
    };
    Op* q = heads(roles.q, "q", x);
    Op* k = heads(roles.k, "k", memory);
    Op* v = heads(roles.v, "v", memory);
    const auto scale = [&](TensorRole role, char slot) -> Op* {
      if (encoder_) return nullptr;
      return weights_.KvScale(b_, absl::StrCat(prefix_, roles.word, std::string(1, slot), "_scale"),
                              {.role = role, .layer = layer}, slot, stack_->heads);
    };
    Op* a = Attend(b_, absl::StrCat(prefix_, roles.word), q, k, v,
                   {.heads = stack_->heads,
                    .kv_heads = stack_->heads,
                    .head_dim = config_.head_dim,
                    .scale = config_.attention_scale,
                    .causal = x == memory && !encoder_,
                    .relative = x == memory ? RelativeTable() : nullptr,
                    .max_distance = config_.max_distance,
                    .k_scale = scale(roles.k, 'k'),
                    .v_scale = scale(roles.v, 'v')});
    return Project(roles.out, layer, absl::StrCat(roles.word, "o"), a, config_.width,
                   stack_->heads * config_.head_dim,
                   {&config_.width, &stack_->heads, &config_.head_dim});
  }

  // Stored with the stack's first layer.
  Op* RelativeTable() {
    if (config_.relative_buckets == 0) return nullptr;
    return weights_.Get(b_, encoder_ ? "source_relative.w" : "relative.w",
                        {.role = TensorRole::kRelativeBias,
                         .encoder = encoder_,
                         .extents = {config_.relative_buckets, stack_->heads},
                         .from = {&config_.relative_buckets, &stack_->heads}});
  }

  Op* Mlp(int64_t layer, Op* x) {
    const std::vector<const Dimension*> from = {&stack_->ffn, &config_.width};
    const auto wide = [&](TensorRole role, absl::string_view name) {
      return Project(role, layer, name, x, stack_->ffn, config_.width, from);
    };
    Op* inner = wide(config_.gated_mlp ? TensorRole::kGate : TensorRole::kOnlyUp,
                     config_.gated_mlp ? "gate" : "up");
    Named("act");
    inner = Activate(b_, inner, config_.activation);
    if (config_.gated_mlp) {
      Op* up = wide(TensorRole::kUp, "up");
      inner = Named("gated").Mul(inner, up);
    }
    return Project(TensorRole::kDown, layer, "down", inner, config_.width, stack_->ffn, from);
  }

  Op* Norm(TensorRole role, int64_t layer, absl::string_view name, Op* x) {
    return Normed(b_, weights_, absl::StrCat(prefix_, name), x,
                  {.role = role,
                   .layer = layer,
                   .encoder = encoder_,
                   .extents = {config_.width},
                   .from = {&config_.width}},
                  {config_.norm, config_.norm_eps});
  }

  // x [rows,columns] times a matrix [n,columns].
  Op* Project(TensorRole role, int64_t layer, absl::string_view name, Op* x, int64_t n,
              int64_t columns, std::vector<const Dimension*> from) {
    return quire::Project(b_, weights_, absl::StrCat(prefix_, name), x,
                          {.role = role,
                           .layer = layer,
                           .encoder = encoder_,
                           .extents = {n, columns},
                           .from = std::move(from)},
                          {config_.bias});
  }

  Builder& Named(absl::string_view name) { return b_.Named(absl::StrCat(prefix_, name)); }

  const EncoderDecoderConfig& config_;
  WeightsMap& weights_;
  Func& func_;
  Builder b_;
  bool encoder_ = false;
  const StackConfig* stack_ = nullptr;
  std::string prefix_;  // "e7." within a layer of the encoder, "l7." of the decoder
};

}  // namespace

absl::Status BuildEncoderDecoder(const EncoderDecoderConfig& config, WeightsMap& weights,
                                 Func& func) {
  return EncoderDecoderBuilder(config, weights, func).Build();
}

absl::Status CheckLogitsBias(const Checkpoint& checkpoint) {
  const TensorInfo* bias = checkpoint.Find("final_logits_bias");
  if (bias == nullptr) return absl::OkStatus();
  QUIRE_ASSIGN_OR_RETURN(const std::string bytes, checkpoint.ReadSmallTensor(*bias));
  if (std::all_of(bytes.begin(), bytes.end(), [](char byte) { return byte == 0; })) {
    return absl::OkStatus();
  }
  return WithLine(WithLine(absl::UnimplementedError("tensor final_logits_bias is not zero"), "from",
                           checkpoint.path()),
                  "allowed", "zeros, or no such tensor");
}

}  // namespace quire
