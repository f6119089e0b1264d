// T5, Flan-T5 and mT5: an encoder-decoder without positions but learned biases of relative ones,
// rms norms before each sublayer, no biases, and attention without a scale.
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "models/family.h"

namespace quire {
namespace {

constexpr TensorName kNames[] = {
    {TensorRole::kEmbed, "shared"},
    {TensorRole::kAttnNorm, "decoder.block.{}.layer.0.layer_norm"},
    {TensorRole::kQ, "decoder.block.{}.layer.0.SelfAttention.q"},
    {TensorRole::kK, "decoder.block.{}.layer.0.SelfAttention.k"},
    {TensorRole::kV, "decoder.block.{}.layer.0.SelfAttention.v"},
    {TensorRole::kAttnOut, "decoder.block.{}.layer.0.SelfAttention.o"},
    {TensorRole::kCrossNorm, "decoder.block.{}.layer.1.layer_norm"},
    {TensorRole::kCrossQ, "decoder.block.{}.layer.1.EncDecAttention.q"},
    {TensorRole::kCrossK, "decoder.block.{}.layer.1.EncDecAttention.k"},
    {TensorRole::kCrossV, "decoder.block.{}.layer.1.EncDecAttention.v"},
    {TensorRole::kCrossOut, "decoder.block.{}.layer.1.EncDecAttention.o"},
    {TensorRole::kMlpNorm, "decoder.block.{}.layer.2.layer_norm"},
    {TensorRole::kOnlyUp, "decoder.block.{}.layer.2.DenseReluDense.wi"},
    {TensorRole::kGate, "decoder.block.{}.layer.2.DenseReluDense.wi_0"},
    {TensorRole::kUp, "decoder.block.{}.layer.2.DenseReluDense.wi_1"},
    {TensorRole::kDown, "decoder.block.{}.layer.2.DenseReluDense.wo"},
    {TensorRole::kRelativeBias, "decoder.block.0.layer.0.SelfAttention.relative_attention_bias"},
    {TensorRole::kFinalNorm, "decoder.final_layer_norm"},
    {TensorRole::kHead, "lm_head"},
};

constexpr TensorName kEncoderNames[] = {
    {TensorRole::kAttnNorm, "encoder.block.{}.layer.0.layer_norm"},
    {TensorRole::kQ, "encoder.block.{}.layer.0.SelfAttention.q"},
    {TensorRole::kK, "encoder.block.{}.layer.0.SelfAttention.k"},
    {TensorRole::kV, "encoder.block.{}.layer.0.SelfAttention.v"},
    {TensorRole::kAttnOut, "encoder.block.{}.layer.0.SelfAttention.o"},
    {TensorRole::kMlpNorm, "encoder.block.{}.layer.1.layer_norm"},
    {TensorRole::kOnlyUp, "encoder.block.{}.layer.1.DenseReluDense.wi"},
    {TensorRole::kGate, "encoder.block.{}.layer.1.DenseReluDense.wi_0"},
    {TensorRole::kUp, "encoder.block.{}.layer.1.DenseReluDense.wi_1"},
    {TensorRole::kDown, "encoder.block.{}.layer.1.DenseReluDense.wo"},
    {TensorRole::kRelativeBias, "encoder.block.0.layer.0.SelfAttention.relative_attention_bias"},
    {TensorRole::kFinalNorm, "encoder.final_layer_norm"},
};

// "relu" or "gated-gelu"; that gelu is the approximation by tanh, whatever its name says. The keys
// derived from it, saved since 4.17, decide where they are there, as in transformers.
void ReadFeedForward(KeyReader& keys, absl::string_view fallback, EncoderDecoderConfig& config) {
  const std::string text = keys.Text("feed_forward_proj", fallback);
  absl::string_view word = text;
  const bool is_gated = absl::ConsumePrefix(&word, "gated-");
  const absl::string_view function = is_gated && word == "gelu" ? "gelu_new" : word;
  config.gated_mlp = keys.Bool("is_gated_act", is_gated);
  keys.ActivationOf("feed_forward_proj", function);  // refuses one that is not known
  config.activation = keys.ReadActivation("dense_act_fn", function);
}

// Half of the buckets are of one distance each, in the decoder, whose rows look back only; the
// others reach up to the greatest. The encoder halves them again, for either direction.
void CheckBuckets(KeyReader& keys, int64_t buckets, int64_t max_distance) {
  constexpr absl::string_view kBuckets = "relative_attention_num_buckets";
  constexpr absl::string_view kDistance = "relative_attention_max_distance";
  if (buckets % 4 != 0) {
    keys.Invalid(kBuckets, "cannot be halved twice", "a multiple of 4");
  } else if (max_distance <= buckets / 2 && keys.Has(kDistance)) {
    keys.Invalid(kDistance, absl::StrCat("is too small for ", buckets, " buckets"),
                 absl::StrCat(buckets / 2 + 1, " or more"));
  } else if (max_distance <= buckets / 2) {
    keys.Invalid(kBuckets, absl::StrCat("are too many for ", kDistance, "=", max_distance),
                 absl::StrCat("multiples of 4 below ", 2 * max_distance));
  }
}

EncoderDecoderConfig ReadShared(KeyReader& keys, absl::string_view feed_forward) {
  EncoderDecoderConfig config;
  config.vocab = keys.Dim({"vocab_size"}, kMaxVocab);
  config.width = keys.Dim({"d_model", "hidden_size"}, kMaxWidth);
  config.head_dim = keys.Dim({"d_kv", "head_dim"}, kMaxHeadDim);
  config.encoder = {keys.Dim({"num_layers", "num_hidden_layers"}, kMaxLayers),
                    keys.Dim({"num_heads", "num_attention_heads"}, kMaxHeads),
                    keys.Dim({"d_ff"}, kMaxWidth)};
  config.decoder = config.encoder;
  config.decoder.layers = keys.DimOr("num_decoder_layers", kMaxLayers, config.encoder.layers);
  CheckHeadDim(keys, config.head_dim, config.width, config.encoder.heads);
  config.norm = NormKind::kRms;
  config.norm_eps = keys.Float("layer_norm_epsilon", 1e-6, 0, 1);
  config.norm_first = config.final_norms = true;
  config.relative_buckets =
      keys.DimOr("relative_attention_num_buckets", 4096, {32, "relative_attention_num_buckets"});
  config.max_distance = keys.DimOr("relative_attention_max_distance", 1 << 20,
                                   {128, "relative_attention_max_distance"});
  CheckBuckets(keys, config.relative_buckets.value, config.max_distance);
  ReadFeedForward(keys, feed_forward, config);
  // Published files hold a head of their own beside tie_word_embeddings=true, or none beside false:
  // what is stored decides, as in transformers.
  keys.config().Ignore({"tie_word_embeddings"});
  config.tied_unless_stored = true;
  keys.Only("is_encoder_decoder", true);
  return config;
}

}  // namespace

absl::Span<const TensorName> T5Names() { return kNames; }
absl::Span<const TensorName> T5EncoderNames() { return kEncoderNames; }

EncoderDecoderConfig ReadT5(KeyReader& keys) {
  EncoderDecoderConfig config = ReadShared(keys, "relu");
  // The first T5 scaled what its tied head reads; later ones said that they do not by an untied
  // head.
  const bool is_first = keys.Bool("tie_word_embeddings", true);
  if (keys.Bool("scale_decoder_outputs", is_first)) {
    config.head_scale = 1 / std::sqrt(static_cast<double>(config.width.value));
  }
  return config;
}

EncoderDecoderConfig ReadMt5(KeyReader& keys) { return ReadShared(keys, "gated-gelu"); }

}  // namespace quire
