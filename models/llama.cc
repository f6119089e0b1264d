// Llama and the families that differ from it by a few keys: Mistral, Qwen2, Qwen3.
//
//   x += o(attention(rope(q(norm(x))), rope(k(norm(x))), v(norm(x))))
//   x += down(silu(gate(norm(x))) * up(norm(x)))
//
// Defaults for absent keys are those of transformers 5.24.
#include <iterator>
#include <vector>

#include "models/family.h"
#include "models/rope_config.h"

namespace quire {
namespace {

constexpr TensorName kNames[] = {
    {TensorRole::kEmbed, "embed_tokens"},
    {TensorRole::kAttnNorm, "layers.{}.input_layernorm"},
    {TensorRole::kQ, "layers.{}.self_attn.q_proj"},
    {TensorRole::kK, "layers.{}.self_attn.k_proj"},
    {TensorRole::kV, "layers.{}.self_attn.v_proj"},
    {TensorRole::kQNorm, "layers.{}.self_attn.q_norm"},
    {TensorRole::kKNorm, "layers.{}.self_attn.k_norm"},
    {TensorRole::kAttnOut, "layers.{}.self_attn.o_proj"},
    {TensorRole::kMlpNorm, "layers.{}.post_attention_layernorm"},
    {TensorRole::kGate, "layers.{}.mlp.gate_proj"},
    {TensorRole::kUp, "layers.{}.mlp.up_proj"},
    {TensorRole::kDown, "layers.{}.mlp.down_proj"},
    {TensorRole::kFinalNorm, "norm"},
    {TensorRole::kHead, "lm_head"},
};

// What the four share. `kv_heads_required`: the absent key stands for a number of its own there,
// not for as many as query heads, so nothing is assumed.
DecoderConfig ReadShared(KeyReader& keys, bool kv_heads_required, int64_t default_positions) {
  DecoderConfig config;
  config.vocab = keys.Dim({"vocab_size"}, kMaxVocab);
  config.width = keys.Dim({"hidden_size"}, kMaxWidth);
  config.ffn = keys.Dim({"intermediate_size"}, kMaxWidth);
  config.layers = keys.Dim({"num_hidden_layers"}, kMaxLayers);
  config.heads = keys.Dim({"num_attention_heads"}, kMaxHeads);
  config.kv_heads = kv_heads_required ? keys.Dim({"num_key_value_heads"}, kMaxHeads)
                                      : keys.DimOr("num_key_value_heads", kMaxHeads, config.heads);
  config.max_positions = keys.DimOr("max_position_embeddings", kMaxPositions,
                                    {default_positions, "max_position_embeddings"});
  config.norm_eps = keys.Float("rms_norm_eps", 1e-6, 0, 1);
  config.activation = keys.ReadActivation("hidden_act", "silu");
  config.gated_mlp = true;
  config.tied_head = keys.Bool("tie_word_embeddings", false);
  return config;
}

// After head_dim is known: layers and their rope.
void ReadLayers(KeyReader& keys, DecoderConfig& config) {
  CheckHeads(keys, config);
  config.layer = PlainLayers(config);
  config.ropes = {ReadRope(keys, 10000, config.max_positions)};
  for (LayerConfig& layer : config.layer) layer.rope = 0;
}

// The sliding windows of Qwen2 and Qwen3: off unless use_sliding_window, and then on for the layers
// from max_window_layers on, or for those that layer_types names.
void ReadQwenWindows(KeyReader& keys, DecoderConfig& config) {
  const bool sliding = keys.Bool("use_sliding_window", false);
  keys.config().Ignore({"sliding_window", "max_window_layers", "layer_types"});
  const int64_t window = sliding ? keys.Dim({"sliding_window"}, kMaxPositions).value : 0;
  if (keys.Has("layer_types")) {
    ReadLayerTypes(keys, window, config);
    return;
  }
  if (window == 0) return;
  const double first = keys.Float("max_window_layers", 28, 0, static_cast<double>(kMaxLayers));
  for (size_t i = 0; i < config.layer.size(); ++i) {
    if (static_cast<double>(i) >= first) config.layer[i].window = window;
  }
}

}  // namespace

absl::Span<const TensorName> LlamaNames() { return kNames; }

std::vector<TensorName> WithLlamaNames(absl::Span<const TensorName> own) {
  std::vector<TensorName> names(own.begin(), own.end());
  names.insert(names.end(), std::begin(kNames), std::end(kNames));
  return names;
}

DecoderConfig ReadLlama(KeyReader& keys) {
  DecoderConfig config = ReadShared(keys, /*kv_heads_required=*/false, 2048);
  config.head_dim = ReadHeadDim(keys, config);
  config.qkv_bias = config.out_bias = keys.Bool("attention_bias", false);
  config.mlp_bias = keys.Bool("mlp_bias", false);
  ReadLayers(keys, config);
  return config;
}

DecoderConfig ReadMistral(KeyReader& keys) {
  DecoderConfig config = ReadShared(keys, /*kv_heads_required=*/true, 4096 * 32);
  config.head_dim = ReadHeadDim(keys, config);
  ReadLayers(keys, config);
  keys.config().Ignore({"sliding_window"});
  if (keys.Has("sliding_window")) {
    const int64_t window = keys.Dim({"sliding_window"}, kMaxPositions);
    for (LayerConfig& layer : config.layer) layer.window = window;
  }
  return config;
}

DecoderConfig ReadQwen2(KeyReader& keys) {
  DecoderConfig config = ReadShared(keys, /*kv_heads_required=*/true, 32768);
  config.head_dim = ReadHeadDim(keys, config);
  config.qkv_bias = true;
  ReadLayers(keys, config);
  ReadQwenWindows(keys, config);
  return config;
}

DecoderConfig ReadQwen3(KeyReader& keys) {
  DecoderConfig config = ReadShared(keys, /*kv_heads_required=*/true, 32768);
  config.head_dim = keys.DimOr("head_dim", kMaxHeadDim, {128, "head_dim"});
  config.qkv_bias = config.out_bias = keys.Bool("attention_bias", false);
  config.qk_norm = true;
  ReadLayers(keys, config);
  ReadQwenWindows(keys, config);
  return config;
}

}  // namespace quire
