#include "models/model.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "ir/file.h"
#include "ir/status.h"
#include "ir/verify.h"
#include "models/config_keys.h"
#include "models/decoder.h"
#include "models/import/config_reader.h"
#include "models/import/gguf_config.h"
#include "models/registry.h"
#include "models/weights_map.h"

namespace quire {
namespace {

// A Hugging Face checkpoint's own configuration, or what a GGUF file's metadata stand for.
absl::StatusOr<GgufConfig> ConfigOf(const Checkpoint& checkpoint) {
  if (checkpoint.format() == CheckpointFormat::kGguf) return ConfigFromGguf(checkpoint);
  GgufConfig out;
  out.config = checkpoint.config();
  return out;
}

// The families read how Hugging Face stores their weights; GGUF stores some otherwise.
void ApplyGgufLayout(const GgufConfig& gguf, DecoderConfig& decoder) {
  decoder.rope_interleaved = gguf.rope_interleaved;
  decoder.rope_factors = gguf.rope_factors;
  if (gguf.norm_weights_include_one) decoder.norm_weight_offset = 0;
  if (gguf.linear_untransposed) decoder.transposed_linear = false;
  if (gguf.qkv_in_blocks) decoder.qkv_layout = QkvLayout::kBlocks;
}

}  // namespace

absl::StatusOr<ModelDef> BuildModel(const Checkpoint& checkpoint, const ModelOptions& options) {
  const bool is_gguf = checkpoint.format() == CheckpointFormat::kGguf;
  QUIRE_ASSIGN_OR_RETURN(const GgufConfig source, ConfigOf(checkpoint));
  const ConfigReader config(
      source.config, is_gguf ? checkpoint.path() : JoinPath(checkpoint.path(), "config.json"));
  QUIRE_ASSIGN_OR_RETURN(const std::string model_type, config.GetString("model_type"));
  QUIRE_ASSIGN_OR_RETURN(const Family* family, FindFamily(model_type, config.file()));

  KeyReader keys(config);
  DecoderConfig decoder = family->read(keys);
  if (is_gguf) ApplyGgufLayout(source, decoder);
  QUIRE_RETURN_IF_ERROR(keys.status());
  QUIRE_RETURN_IF_ERROR(RefuseUnknownKeys(config, source.config, options.allowed_config_keys));

  ModelDef model;
  auto step = std::make_unique<Func>("step");
  WeightsMap weights(checkpoint, *family, config.file());
  QUIRE_RETURN_IF_ERROR(BuildDecoder(decoder, weights, *step));
  model.module.funcs.push_back(std::move(step));
  QUIRE_RETURN_IF_ERROR(Verify(model.module));
  model.architecture = model_type;
  model.vocab_size = decoder.vocab;
  model.max_positions = decoder.max_positions;
  model.parameter_count = weights.parameter_count();
  return model;
}

}  // namespace quire
