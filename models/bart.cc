// BART and mBART: an encoder-decoder with learned positions and biased layer norms; BART's norms
// stand behind each residual's sum, mBART's before each sublayer and behind each stack.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "models/family.h"

namespace quire {
namespace {

constexpr TensorName kNames[] = {
    {TensorRole::kEmbed, "shared"},
    {TensorRole::kOwnEmbed, "decoder.embed_tokens"},
    {TensorRole::kPositions, "decoder.embed_positions"},
    {TensorRole::kEmbedNorm, "decoder.layernorm_embedding"},
    {TensorRole::kAttnNorm, "decoder.layers.{}.self_attn_layer_norm"},
    {TensorRole::kQ, "decoder.layers.{}.self_attn.q_proj"},
    {TensorRole::kK, "decoder.layers.{}.self_attn.k_proj"},
    {TensorRole::kV, "decoder.layers.{}.self_attn.v_proj"},
    {TensorRole::kAttnOut, "decoder.layers.{}.self_attn.out_proj"},
    {TensorRole::kCrossNorm, "decoder.layers.{}.encoder_attn_layer_norm"},
    {TensorRole::kCrossQ, "decoder.layers.{}.encoder_attn.q_proj"},
    {TensorRole::kCrossK, "decoder.layers.{}.encoder_attn.k_proj"},
    {TensorRole::kCrossV, "decoder.layers.{}.encoder_attn.v_proj"},
    {TensorRole::kCrossOut, "decoder.layers.{}.encoder_attn.out_proj"},
    {TensorRole::kMlpNorm, "decoder.layers.{}.final_layer_norm"},
    {TensorRole::kOnlyUp, "decoder.layers.{}.fc1"},
    {TensorRole::kDown, "decoder.layers.{}.fc2"},
    {TensorRole::kFinalNorm, "decoder.layer_norm"},
    {TensorRole::kHead, "lm_head"},
};

constexpr TensorName kEncoderNames[] = {
    {TensorRole::kOwnEmbed, "encoder.embed_tokens"},
    {TensorRole::kPositions, "encoder.embed_positions"},
    {TensorRole::kEmbedNorm, "encoder.layernorm_embedding"},
    {TensorRole::kAttnNorm, "encoder.layers.{}.self_attn_layer_norm"},
    {TensorRole::kQ, "encoder.layers.{}.self_attn.q_proj"},
    {TensorRole::kK, "encoder.layers.{}.self_attn.k_proj"},
    {TensorRole::kV, "encoder.layers.{}.self_attn.v_proj"},
    {TensorRole::kAttnOut, "encoder.layers.{}.self_attn.out_proj"},
    {TensorRole::kMlpNorm, "encoder.layers.{}.final_layer_norm"},
    {TensorRole::kOnlyUp, "encoder.layers.{}.fc1"},
    {TensorRole::kDown, "encoder.layers.{}.fc2"},
    {TensorRole::kFinalNorm, "encoder.layer_norm"},
};

// The tables of positions have two rows that nothing looks up before that of position 0.
constexpr int64_t kPositionOffset = 2;

EncoderDecoderConfig ReadShared(KeyReader& keys) {
  EncoderDecoderConfig config;
  config.vocab = keys.Dim({"vocab_size"}, kMaxVocab);
  config.width = keys.Dim({"d_model", "hidden_size"}, kMaxWidth);
  config.encoder = {keys.Dim({"encoder_layers"}, kMaxLayers),
                    keys.Dim({"encoder_attention_heads"}, kMaxHeads),
                    keys.Dim({"encoder_ffn_dim"}, kMaxWidth)};
  config.decoder = {keys.Dim({"decoder_layers"}, kMaxLayers),
                    keys.Dim({"decoder_attention_heads"}, kMaxHeads),
                    keys.Dim({"decoder_ffn_dim"}, kMaxWidth)};
  // Older files repeat the encoder's numbers under these names.
  keys.config().Ignore({"num_hidden_layers", "num_attention_heads"});
  if (config.encoder.heads.value != config.decoder.heads.value) {
    keys.Unsupported(
        config.decoder.heads.key,
        absl::StrCat("differs from ", config.encoder.heads.key, "=", config.encoder.heads.value),
        "the same number of heads");
  }
  config.head_dim = DeriveHeadDim(keys, config.width, config.encoder.heads);
  CheckHeadDim(keys, config.head_dim, config.width, config.encoder.heads);
  config.max_positions = keys.Dim({"max_position_embeddings"}, kMaxPositions);
  config.learned_positions = true;
  config.position_offset = kPositionOffset;
  if (keys.Bool("scale_embedding", false)) {
    config.embed_scale = std::sqrt(static_cast<double>(config.width.value));
  }
  config.embed_norm = true;
  config.norm = NormKind::kLayer;
  config.norm_eps = 1e-5;
  config.attention_scale = 1 / std::sqrt(static_cast<double>(config.head_dim.value));
  config.bias = true;
  config.activation = keys.ReadActivation("activation_function", "gelu");
  config.tied_head = keys.Bool("tie_word_embeddings", true);
  config.own_embeddings = !config.tied_head;
  keys.Only("is_encoder_decoder", true);
  return config;
}

// What the first releases wrote; transformers no longer reads it, and published files have the
// values at which the function is the one above.
void CheckOldKeys(KeyReader& keys, bool norm_first) {
  keys.Only("normalize_before", norm_first);
  keys.Only("add_final_layer_norm", norm_first);
  keys.Only("normalize_embedding", true);
  keys.Only("add_bias_logits", false);
  keys.Only("static_position_embeddings", false);
  keys.Only("do_blenderbot_90_layernorm", false);
  keys.OnlyNumber("extra_pos_embeddings", kPositionOffset);
}

}  // namespace

absl::Span<const TensorName> BartNames() { return kNames; }
absl::Span<const TensorName> BartEncoderNames() { return kEncoderNames; }

EncoderDecoderConfig ReadBart(KeyReader& keys) {
  EncoderDecoderConfig config = ReadShared(keys);
  CheckOldKeys(keys, /*norm_first=*/false);
  return config;
}

EncoderDecoderConfig ReadMbart(KeyReader& keys) {
  EncoderDecoderConfig config = ReadShared(keys);
  config.norm_first = config.final_norms = true;
  CheckOldKeys(keys, /*norm_first=*/true);
  return config;
}

}  // namespace quire
