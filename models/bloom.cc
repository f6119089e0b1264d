// BLOOM: no positions but ALiBi, a norm on the embedding, q, k and v of each head side by side in
// one projection.
#include "absl/strings/str_cat.h"
#include "models/family.h"

namespace quire {
namespace {

constexpr TensorName kNames[] = {
    {TensorRole::kEmbed, "word_embeddings"},
    {TensorRole::kEmbedNorm, "word_embeddings_layernorm"},
    {TensorRole::kAttnNorm, "h.{}.input_layernorm"},
    {TensorRole::kQkv, "h.{}.self_attention.query_key_value"},
    {TensorRole::kAttnOut, "h.{}.self_attention.dense"},
    {TensorRole::kMlpNorm, "h.{}.post_attention_layernorm"},
    {TensorRole::kUp, "h.{}.mlp.dense_h_to_4h"},
    {TensorRole::kDown, "h.{}.mlp.dense_4h_to_h"},
    {TensorRole::kFinalNorm, "ln_f"},
    {TensorRole::kHead, "lm_head"},
};

// The slopes' exponents reach this far over the heads (Press et al. 2022).
constexpr double kAlibiMax = 8;

}  // namespace

absl::Span<const TensorName> BloomNames() { return kNames; }

DecoderConfig ReadBloom(KeyReader& keys) {
  DecoderConfig config;
  config.vocab = keys.Dim({"vocab_size"}, kMaxVocab);
  config.width = keys.Dim({"hidden_size", "n_embed"}, kMaxWidth);
  config.layers = keys.Dim({"n_layer", "num_hidden_layers"}, kMaxLayers);
  config.heads = keys.Dim({"n_head", "num_attention_heads"}, kMaxHeads);
  config.kv_heads = config.heads;
  // Published files carry n_inner; transformers always computes with 4 E.
  const Dimension ffn = {4 * config.width, absl::StrCat("4 ", config.width.key)};
  config.ffn = ffn;
  if (keys.DimOr("n_inner", 4 * kMaxWidth, ffn) != ffn) {
    keys.Unsupported("n_inner", "is not supported", absl::StrCat("null, ", ffn.value));
  }
  config.head_dim = DeriveHeadDim(keys, config.width, config.heads);
  CheckHeads(keys, config);
  // The length of the training sequences; nothing in the mathematics ends there.
  config.max_positions = keys.DimOr("seq_length", kMaxPositions, {0, "seq_length"});
  config.embed_norm = true;
  config.norm = NormKind::kLayer;
  config.norm_eps = keys.Float("layer_norm_epsilon", 1e-5, 0, 1);
  config.residual_from_norm = keys.Bool("apply_residual_connection_post_layernorm", false);
  config.qkv_layout = QkvLayout::kInterleaved;
  config.qkv_bias = config.out_bias = config.mlp_bias = true;
  config.alibi_max = kAlibiMax;
  config.activation = {OpKind::kGelu, "tanh"};
  config.tied_head = keys.Bool("tie_word_embeddings", true);
  config.layer = PlainLayers(config);
  return config;
}

}  // namespace quire
