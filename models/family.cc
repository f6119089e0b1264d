#include "models/family.h"

#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace quire {

Dimension DeriveHeadDim(KeyReader& keys, const Dimension& width, const Dimension& heads) {
  const Dimension derived = {width / heads, absl::StrCat(width.key, " / ", heads.key)};
  if (width % heads != 0) {
    keys.Invalid(heads.key, absl::StrCat("does not divide ", width.key, "=", width.value),
                 "a divisor");
  }
  return derived;
}

Dimension ReadHeadDim(KeyReader& keys, const DecoderConfig& config) {
  if (keys.Has("head_dim")) return keys.Dim({"head_dim"}, kMaxHeadDim);
  keys.config().Ignore({"head_dim"});
  return DeriveHeadDim(keys, config.width, config.heads);
}

void CheckHeads(KeyReader& keys, const DecoderConfig& config) {
  if (config.heads % config.kv_heads != 0) {
    keys.Invalid(config.kv_heads.key,
                 absl::StrCat("does not divide ", config.heads.key, "=", config.heads.value),
                 "a divisor");
  }
  CheckHeadDim(keys, config.head_dim, config.width, config.heads);
}

void CheckHeadDim(KeyReader& keys, const Dimension& head_dim, const Dimension& width,
                  const Dimension& heads) {
  if (head_dim % 8 == 0) return;
  const bool derived = absl::StrContains(head_dim.key, '/');
  keys.Fail(absl::UnimplementedError(absl::StrCat(
      "head_dim=", head_dim.value, " is not a multiple of 8\n  from: ", keys.config().file(), " ",
      derived ? absl::StrCat(width.key, "=", width.value, ", ", heads.key, "=", heads.value)
              : head_dim.key,
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
