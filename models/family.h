// One architecture: how its configuration is read and what it calls its tensors.
#ifndef QUIRE_MODELS_FAMILY_H_
#define QUIRE_MODELS_FAMILY_H_

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "models/config.h"
#include "models/key_reader.h"

namespace quire {

// What a tensor is for, whatever a family calls it.
enum class TensorRole {
  kEmbed,
  kPositions,
  kEmbedNorm,
  kAttnNorm,
  kQ,
  kK,
  kV,
  kQkv,
  kQNorm,
  kKNorm,
  kAttnOut,
  kPostAttnNorm,
  kMlpNorm,
  kGate,
  kUp,
  kDown,
  kPostMlpNorm,
  kFinalNorm,
  kHead,
  kRopeFactors,  // GGUF only
  kCrossNorm,    // these of an encoder-decoder's decoder
  kCrossQ,
  kCrossK,
  kCrossV,
  kCrossOut,
  kCrossQNorm,
  kCrossKNorm,
  kCrossAttnGate,  // one number, as is the next
  kCrossMlpGate,
  kOnlyUp,    // of an MLP without a gate
  kOwnEmbed,  // a stack's own table, where both do not share one
  kRelativeBias,
};

// A name without ".weight" or ".bias", if it has one; "{}" stands for the layer.
struct TensorName {
  TensorRole role;
  absl::string_view name;
};

struct Family {
  absl::string_view model_type;
  // Stands before every name but the head's; published checkpoints have it or lack it.
  absl::string_view prefix;
  absl::Span<const TensorName> names;
  // Errors are kept by the reader. One of both is set.
  DecoderConfig (*read)(KeyReader&) = nullptr;
  EncoderDecoderConfig (*read_encoder_decoder)(KeyReader&) = nullptr;
  // Of an encoder-decoder: what its encoder's tensors are called; `names` are the decoder's.
  absl::Span<const TensorName> encoder_names = {};
};

// Limits on sizes, wide enough for any model and narrow enough that products of a few of them fit
// 64 bits.
inline constexpr int64_t kMaxWidth = 1 << 20;
inline constexpr int64_t kMaxHeads = 1 << 14;
inline constexpr int64_t kMaxHeadDim = 1 << 12;
inline constexpr int64_t kMaxLayers = 1 << 12;
inline constexpr int64_t kMaxVocab = int64_t{1} << 30;
inline constexpr int64_t kMaxPositions = int64_t{1} << 30;

// llama.cc, mllama.cc, gemma3.cc, gpt2.cc, bloom.cc, bart.cc, t5.cc
DecoderConfig ReadLlama(KeyReader& keys);
DecoderConfig ReadMistral(KeyReader& keys);
DecoderConfig ReadQwen2(KeyReader& keys);
DecoderConfig ReadQwen3(KeyReader& keys);
DecoderConfig ReadMllama(KeyReader& keys);
DecoderConfig ReadGemma3(KeyReader& keys);
DecoderConfig ReadGpt2(KeyReader& keys);
DecoderConfig ReadGptBigCode(KeyReader& keys);
DecoderConfig ReadBloom(KeyReader& keys);
EncoderDecoderConfig ReadBart(KeyReader& keys);
EncoderDecoderConfig ReadMbart(KeyReader& keys);
EncoderDecoderConfig ReadT5(KeyReader& keys);
EncoderDecoderConfig ReadMt5(KeyReader& keys);
absl::Span<const TensorName> LlamaNames();
// A family's own names, which come first, and Llama's.
std::vector<TensorName> WithLlamaNames(absl::Span<const TensorName> own);
absl::Span<const TensorName> MllamaNames();
absl::Span<const TensorName> Gemma3Names();
absl::Span<const TensorName> Gpt2Names();
absl::Span<const TensorName> BloomNames();
absl::Span<const TensorName> BartNames();
absl::Span<const TensorName> BartEncoderNames();
absl::Span<const TensorName> T5Names();
absl::Span<const TensorName> T5EncoderNames();

// Pieces that several families read alike.

// width / heads; refuses sizes that do not divide.
Dimension DeriveHeadDim(KeyReader& keys, const Dimension& width, const Dimension& heads);
// head_dim, or the same where it is absent.
Dimension ReadHeadDim(KeyReader& keys, const DecoderConfig& config);
// Refuses head counts and head sizes that attention cannot be split by.
void CheckHeads(KeyReader& keys, const DecoderConfig& config);
void CheckHeadDim(KeyReader& keys, const Dimension& head_dim, const Dimension& width,
                  const Dimension& heads);
// One entry for each layer, with the usual 1 / sqrt(D).
std::vector<LayerConfig> PlainLayers(const DecoderConfig& config);
// Windows of `window` keys for the layers that layer_types calls sliding_attention.
void ReadLayerTypes(KeyReader& keys, int64_t window, DecoderConfig& config);

}  // namespace quire

#endif  // QUIRE_MODELS_FAMILY_H_
