// Mllama's text decoder: Llama, and layers that look at the states of a vision encoder instead of
// the text, each behind gates.
//
//   s = 1 in a row that sees a state, else 0
//   x += tanh(g s) * o(attention(q_norm(q(norm(x))), k_norm(k(states)), v(states)))
//   x += tanh(h s) * down(silu(gate(norm(x))) * up(norm(x)))
//
// so that a row without an image passes these layers by, as Meta's own code has it. (transformers
// lets such a row of a sequence that has an image attend to all states, and only shuts the second
// gate.) The states are an input: what the vision encoder and its projector give, all tiles of all
// images one after another; a request says which of them a row sees (runtime/encoder_input.h), or
// every row of the sequence sees all.
//
// Defaults for absent keys are those of transformers 5.24.
#include "absl/strings/str_cat.h"
#include "models/family.h"
#include "models/rope_config.h"

namespace quire {
namespace {

constexpr TensorName kOwnNames[] = {
    {TensorRole::kCrossQ, "layers.{}.cross_attn.q_proj"},
    {TensorRole::kCrossK, "layers.{}.cross_attn.k_proj"},
    {TensorRole::kCrossV, "layers.{}.cross_attn.v_proj"},
    {TensorRole::kCrossOut, "layers.{}.cross_attn.o_proj"},
    {TensorRole::kCrossQNorm, "layers.{}.cross_attn.q_norm"},
    {TensorRole::kCrossKNorm, "layers.{}.cross_attn.k_norm"},
    {TensorRole::kCrossAttnGate, "layers.{}.cross_attn_attn_gate"},
    {TensorRole::kCrossMlpGate, "layers.{}.cross_attn_mlp_gate"},
};

// Rows of the embedding behind the vocabulary: the image's token and others that are never chosen.
constexpr int64_t kMoreTokens = 8;

void ReadCrossLayers(KeyReader& keys, DecoderConfig& config) {
  constexpr absl::string_view kKey = "cross_attention_layers";
  std::vector<int64_t> layers = {3, 8, 13, 18, 23, 28, 33, 38};
  if (keys.Has(kKey)) layers = keys.Ints(kKey, 0, config.layers - 1);
  for (const int64_t layer : layers) {
    if (layer >= config.layers) {
      keys.Invalid("num_hidden_layers", "has no layer 38", "cross_attention_layers below it");
      return;
    }
    LayerConfig& settings = config.layer[static_cast<size_t>(layer)];
    settings.over_states = true;
    settings.rope = -1;
  }
  if (!layers.empty()) config.states_width = config.width;
}

}  // namespace

absl::Span<const TensorName> MllamaNames() {
  static const auto& names = *new std::vector<TensorName>(WithLlamaNames(kOwnNames));
  return names;
}

DecoderConfig ReadMllama(KeyReader& keys) {
  DecoderConfig config;
  config.vocab = keys.Dim({"vocab_size"}, kMaxVocab);
  config.more_tokens = kMoreTokens;
  config.width = keys.Dim({"hidden_size"}, kMaxWidth);
  config.ffn = keys.Dim({"intermediate_size"}, kMaxWidth);
  config.layers = keys.Dim({"num_hidden_layers"}, kMaxLayers);
  config.heads = keys.Dim({"num_attention_heads"}, kMaxHeads);
  config.kv_heads = keys.Dim({"num_key_value_heads"}, kMaxHeads);
  config.head_dim = DeriveHeadDim(keys, config.width, config.heads);
  config.max_positions =
      keys.DimOr("max_position_embeddings", kMaxPositions, {131072, "max_position_embeddings"});
  config.norm_eps = keys.Float("rms_norm_eps", 1e-5, 0, 1);
  config.activation = keys.ReadActivation("hidden_act", "silu");
  config.gated_mlp = true;
  config.tied_head = keys.Bool("tie_word_embeddings", false);
  if (config.tied_head) {
    keys.Unsupported("tie_word_embeddings",
                     "is not supported: the table has more rows than the head", "false");
  }
  CheckHeads(keys, config);
  config.layer = PlainLayers(config);
  config.ropes = {ReadRope(keys, 500000, config.max_positions)};
  for (LayerConfig& layer : config.layer) layer.rope = 0;
  if (keys.status().ok()) ReadCrossLayers(keys, config);
  return config;
}

}  // namespace quire
