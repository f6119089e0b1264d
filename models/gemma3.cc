// Gemma 3, text only: norms on both sides of attention and MLP, stored as w - 1; normed queries and
// keys; local layers with a window and a rope of their own between global ones.
//
// The embedding is scaled by sqrt(E) in the activations' type: transformers rounds the factor to
// the type of the weights it computes with, which in f32 is the nearest float.
#include <cmath>
#include <iterator>
#include <vector>

#include "models/family.h"
#include "models/rope_config.h"

namespace quire {
namespace {

// Where they are not Llama's.
constexpr TensorName kOwnNames[] = {
    {TensorRole::kPostAttnNorm, "layers.{}.post_attention_layernorm"},
    {TensorRole::kMlpNorm, "layers.{}.pre_feedforward_layernorm"},
    {TensorRole::kPostMlpNorm, "layers.{}.post_feedforward_layernorm"},
};

constexpr int kGlobalRope = 0;
constexpr int kLocalRope = 1;

// One layer in `pattern` is global, the last of each run, unless layer_types lists them.
void ReadWindows(KeyReader& keys, DecoderConfig& config) {
  const Dimension window = keys.DimOr("sliding_window", kMaxPositions, {4096, "sliding_window"});
  const Dimension pattern =
      keys.DimOr("sliding_window_pattern", kMaxLayers,
                 keys.DimOr("_sliding_window_pattern", kMaxLayers, {6, "sliding_window_pattern"}));
  if (keys.Has("layer_types")) {
    ReadLayerTypes(keys, window, config);
  } else {
    keys.config().Ignore({"layer_types"});
    for (size_t i = 0; i < config.layer.size(); ++i) {
      const bool global = (static_cast<int64_t>(i) + 1) % pattern == 0;
      if (!global) config.layer[i].window = window;
    }
  }
  for (LayerConfig& layer : config.layer) {
    layer.rope = layer.window == 0 ? kGlobalRope : kLocalRope;
  }
}

// rope_parameters holds an object for each kind of layer; before 5.0, rope_scaling was the global
// layers' alone and the local ones had only a base.
std::vector<RopeConfig> ReadRopes(KeyReader& keys, int64_t max_positions) {
  constexpr double kGlobalTheta = 1e6, kLocalTheta = 1e4;
  RopeConfig local;
  local.theta = keys.Float("rope_local_base_freq", kLocalTheta, 1e-3, 1e12);
  if (!keys.Has("rope_parameters")) return {ReadRope(keys, kGlobalTheta, max_positions), local};

  const double global_theta = keys.Float("rope_theta", kGlobalTheta, 1e-3, 1e12);
  RopeConfig global;
  WithObject(keys, "rope_parameters", [&](KeyReader& kinds) {
    const auto read = [&](absl::string_view kind, double theta) {
      RopeConfig rope;
      rope.theta = theta;
      if (!kinds.Has(kind)) return rope;
      return WithObject(kinds, kind, [&](KeyReader& nested) {
        return ReadRopeObject(nested, {theta, max_positions, 0});
      });
    };
    global = read("full_attention", global_theta);
    local = read("sliding_attention", local.theta);
    return RopeConfig();
  });
  return {global, local};
}

}  // namespace

absl::Span<const TensorName> Gemma3Names() {
  static const auto& names = *new std::vector<TensorName>(WithLlamaNames(kOwnNames));
  return names;
}

DecoderConfig ReadGemma3(KeyReader& keys) {
  DecoderConfig config;
  config.vocab = keys.Dim({"vocab_size"}, kMaxVocab);
  config.width = keys.Dim({"hidden_size"}, kMaxWidth);
  config.ffn = keys.Dim({"intermediate_size"}, kMaxWidth);
  config.layers = keys.Dim({"num_hidden_layers"}, kMaxLayers);
  config.heads = keys.Dim({"num_attention_heads"}, kMaxHeads);
  config.kv_heads = keys.Dim({"num_key_value_heads"}, kMaxHeads);
  config.head_dim = keys.DimOr("head_dim", kMaxHeadDim, {256, "head_dim"});
  config.max_positions =
      keys.DimOr("max_position_embeddings", kMaxPositions, {131072, "max_position_embeddings"});
  CheckHeads(keys, config);

  config.embed_scale = std::sqrt(static_cast<float>(config.width.value));
  config.norm_eps = keys.Float("rms_norm_eps", 1e-6, 0, 1);
  config.norm_weight_offset = 1;
  config.post_norms = true;
  config.qkv_bias = config.out_bias = keys.Bool("attention_bias", false);
  config.qk_norm = true;
  config.activation = keys.ReadActivation("hidden_activation", "gelu_pytorch_tanh");
  config.gated_mlp = true;
  config.tied_head = keys.Bool("tie_word_embeddings", true);
  config.final_softcap = keys.Float("final_logit_softcapping", 0, 0, 1e6);
  // transformers reads it and does not apply it, so that what it means here is not settled.
  if (keys.Has("attn_logit_softcapping")) {
    keys.Unsupported("attn_logit_softcapping", "is not supported", "null");
  }
  keys.config().Ignore({"attn_logit_softcapping"});
  keys.Only("use_bidirectional_attention", false);

  config.layer = PlainLayers(config);
  const double scalar = keys.Float("query_pre_attn_scalar", 256, 1e-3, 1e6);
  for (LayerConfig& layer : config.layer) layer.attention_scale = 1 / std::sqrt(scalar);
  ReadWindows(keys, config);
  config.ropes = ReadRopes(keys, config.max_positions);
  return config;
}

}  // namespace quire
