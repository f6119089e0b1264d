#include "models/family.h"

#include <cmath>

#include "absl/strings/str_cat.h"

namespace quire {

Dimension DeriveHeadDim(KeyReader& keys, const DecoderConfig& config) {
  const Dimension derived = {config.width / config.heads,
                             absl::StrCat(config.width.key, " / ", config.heads.key)};
  if (config.width % config.heads != 0) {
    keys.Invalid(config.heads.key,
                 absl::StrCat("does not divide ", config.width.key, "=", config.width.value),
                 "a divisor");
  }
  return derived;
}

Dimension ReadHeadDim(KeyReader& keys, const DecoderConfig& config) {
  if (keys.Has("head_dim")) return keys.Dim({"head_dim"}, kMaxHeadDim);
  keys.config().Ignore({"head_dim"});
  return DeriveHeadDim(keys, config);
}

void CheckHeads(KeyReader& keys, const DecoderConfig& config) {
  if (config.heads % config.kv_heads != 0) {
    keys.Invalid(config.kv_heads.key,
                 absl::StrCat("does not divide ", config.heads.key, "=", config.heads.value),
                 "a divisor");
  }
  if (config.head_dim % 8 == 0) return;
  const bool given = config.head_dim.key == "head_dim";
  keys.Fail(absl::UnimplementedError(
      absl::StrCat("head_dim=", config.head_dim.value,
                   " is not a multiple of 8\n  from: ", keys.config().file(), " ",
                   given ? "head_dim"
                         : absl::StrCat(config.width.key, "=", config.width.value, ", ",
                                        config.heads.key, "=", config.heads.value),
                   "\n  allowed: a multiple of 8, 8..", kMaxHeadDim)));
}

std::vector<LayerConfig> PlainLayers(const DecoderConfig& config) {
  LayerConfig layer;
  layer.attention_scale = 1 / std::sqrt(static_cast<double>(config.head_dim.value));
  return std::vector<LayerConfig>(static_cast<size_t>(config.layers.value), layer);
}

void ReadLayerTypes(KeyReader& keys, int64_t window, DecoderConfig& config) {
  const std::vector<std::string> types = keys.Texts("layer_types");
  if (types.size() != config.layer.size()) {
    keys.Invalid(
        "layer_types",
        absl::StrCat("does not have ", config.layers.key, "=", config.layers.value, " elements"),
        "one element for each layer");
    return;
  }
  for (size_t i = 0; i < types.size(); ++i) {
    if (types[i] == "full_attention") continue;
    if (types[i] != "sliding_attention") {
      keys.Unsupported("layer_types", absl::StrCat("holds ", types[i]),
                       "full_attention, sliding_attention");
    } else if (window == 0) {
      keys.Invalid("layer_types", "has sliding_attention, but no sliding_window is in force",
                   "full_attention");
    }
    config.layer[i].window = window;
  }
}

}  // namespace quire
