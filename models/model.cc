#include "models/model.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "ir/file.h"
#include "ir/status.h"
#include "ir/verify.h"
#include "models/config_keys.h"
#include "models/decoder.h"
#include "models/encoder_decoder.h"
#include "models/import/config_reader.h"
#include "models/import/gguf_config.h"
#include "models/import/json.h"
#include "models/registry.h"
#include "models/weights_map.h"

namespace quire {
namespace {

// A Hugging Face checkpoint's own configuration, or what a GGUF file's metadata stand for.
absl::StatusOr<GgufConfig> ConfigOf(const Checkpoint& checkpoint, const ModelOptions& options) {
  if (checkpoint.format() == CheckpointFormat::kGguf) {
    return ConfigFromGguf(checkpoint, options.allowed_config_keys);
  }
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

absl::Status BuildStep(const EncoderDecoderConfig& config, const Checkpoint& checkpoint,
                       WeightsMap& weights, Func& step, ModelDef& model) {
  QUIRE_RETURN_IF_ERROR(CheckLogitsBias(checkpoint));
  QUIRE_RETURN_IF_ERROR(BuildEncoderDecoder(config, weights, step));
  model.vocab_size = config.vocab;
  model.max_positions = model.max_source = config.max_positions;
  return absl::OkStatus();
}

absl::Status BuildStep(const DecoderConfig& config, WeightsMap& weights, Func& step,
                       ModelDef& model) {
  QUIRE_RETURN_IF_ERROR(BuildDecoder(config, weights, step));
  model.vocab_size = config.vocab;
  model.max_positions = config.max_positions;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ModelDef> BuildModel(const Checkpoint& checkpoint, const ModelOptions& options) {
  const bool is_gguf = checkpoint.format() == CheckpointFormat::kGguf;
  QUIRE_ASSIGN_OR_RETURN(const GgufConfig source, ConfigOf(checkpoint, options));
  const ConfigReader config(
      source.config, is_gguf ? checkpoint.path() : JoinPath(checkpoint.path(), "config.json"));
  QUIRE_ASSIGN_OR_RETURN(const std::string model_type, config.GetString("model_type"));
  QUIRE_ASSIGN_OR_RETURN(const Family* family, FindFamily(model_type, config.file()));

  ModelDef model;
  model.architecture = model_type;
  auto step = std::make_unique<Func>("step");
  WeightsMap weights(checkpoint, *family, config.file());
  KeyReader keys(config);
  const auto check_keys = [&]() -> absl::Status {
    QUIRE_RETURN_IF_ERROR(WithFileFix(keys.status()));
    return RefuseUnknownKeys(config, source.config, options.allowed_config_keys);
  };
  const auto quantization = source.config.find("quantization_config");
  const bool is_quantized =
      !is_gguf && quantization != source.config.end() && !quantization->is_null();
  const auto set_rounding = [&]() -> absl::Status {
    if (!is_quantized || options.keeps_activations) return absl::OkStatus();
    QUIRE_ASSIGN_OR_RETURN(const ActivationRounding rounding,
                           ActivationRoundingOf(source.config, config.file()));
    weights.set_rounding(rounding);
    return absl::OkStatus();
  };
  if (family->read_encoder_decoder != nullptr) {
    const EncoderDecoderConfig both = family->read_encoder_decoder(keys);
    QUIRE_RETURN_IF_ERROR(check_keys());
    QUIRE_RETURN_IF_ERROR(set_rounding());
    QUIRE_RETURN_IF_ERROR(BuildStep(both, checkpoint, weights, *step, model));
  } else {
    DecoderConfig decoder = family->read(keys);
    if (is_gguf) ApplyGgufLayout(source, decoder);
    QUIRE_RETURN_IF_ERROR(check_keys());
    QUIRE_RETURN_IF_ERROR(set_rounding());
    QUIRE_RETURN_IF_ERROR(BuildStep(decoder, weights, *step, model));
  }
  model.module.funcs.push_back(std::move(step));
  QUIRE_RETURN_IF_ERROR(Verify(model.module));
  model.parameter_count = weights.parameter_count();
  return model;
}

}  // namespace quire
