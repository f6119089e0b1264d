// GPT-2 and GPT-BigCode: learned positions, biased layer norms, one packed projection for q, k, v.
//
// GPT-2 stores the matrices of its linear layers [K,N]. GPT-BigCode stores them [N,K] and has one
// KV head for all query heads, or, with multi_query=false, q, k and v of each head side by side.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "models/family.h"

namespace quire {
namespace {

constexpr TensorName kNames[] = {
    {TensorRole::kEmbed, "wte"},
    {TensorRole::kPositions, "wpe"},
    {TensorRole::kAttnNorm, "h.{}.ln_1"},
    {TensorRole::kQkv, "h.{}.attn.c_attn"},
    {TensorRole::kAttnOut, "h.{}.attn.c_proj"},
    {TensorRole::kMlpNorm, "h.{}.ln_2"},
    {TensorRole::kUp, "h.{}.mlp.c_fc"},
    {TensorRole::kDown, "h.{}.mlp.c_proj"},
    {TensorRole::kFinalNorm, "ln_f"},
    {TensorRole::kHead, "lm_head"},
};

DecoderConfig ReadShared(KeyReader& keys, absl::string_view default_activation) {
  DecoderConfig config;
  config.vocab = keys.Dim({"vocab_size"}, kMaxVocab);
  config.width = keys.Dim({"n_embd", "hidden_size"}, kMaxWidth);
  config.layers = keys.Dim({"n_layer", "num_hidden_layers"}, kMaxLayers);
  config.heads = keys.Dim({"n_head", "num_attention_heads"}, kMaxHeads);
  config.kv_heads = config.heads;
  config.ffn = keys.DimOr("n_inner", 4 * kMaxWidth,
                          {4 * config.width, absl::StrCat("4 ", config.width.key)});
  config.max_positions = keys.Dim({"n_positions", "max_position_embeddings"}, kMaxPositions);
  config.head_dim = DeriveHeadDim(keys, config.width, config.heads);
  CheckHeads(keys, config);
  config.learned_positions = true;
  config.norm = NormKind::kLayer;
  config.norm_eps = keys.Float("layer_norm_epsilon", 1e-5, 0, 1);
  config.qkv_layout = QkvLayout::kBlocks;
  config.qkv_bias = config.out_bias = config.mlp_bias = true;
  config.activation = keys.ReadActivation("activation_function", default_activation);
  config.tied_head = keys.Bool("tie_word_embeddings", true);
  keys.Only("add_cross_attention", false);
  config.layer = PlainLayers(config);
  if (!keys.Bool("scale_attn_weights", true)) {
    for (LayerConfig& layer : config.layer) layer.attention_scale = 1;
  }
  return config;
}

}  // namespace

absl::Span<const TensorName> Gpt2Names() { return kNames; }

DecoderConfig ReadGpt2(KeyReader& keys) {
  DecoderConfig config = ReadShared(keys, "gelu_new");
  config.transposed_linear = true;
  if (keys.Bool("scale_attn_by_inverse_layer_idx", false)) {
    double divisor = 1;
    for (LayerConfig& layer : config.layer) layer.attention_scale /= divisor++;
  }
  return config;
}

DecoderConfig ReadGptBigCode(KeyReader& keys) {
  DecoderConfig config = ReadShared(keys, "gelu_pytorch_tanh");
  if (keys.Bool("multi_query", true)) {
    config.kv_heads = {1, "multi_query"};
  } else {
    config.qkv_layout = QkvLayout::kInterleaved;
  }
  // Written since 5.0, though it follows from multi_query.
  const Dimension written = keys.DimOr("num_key_value_heads", kMaxHeads, config.kv_heads);
  if (written != config.kv_heads) {
    keys.Invalid("num_key_value_heads", "contradicts multi_query",
                 absl::StrCat(config.kv_heads.value));
  }
  return config;
}

}  // namespace quire
