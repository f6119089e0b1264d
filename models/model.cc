#include "models/model.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "ir/status.h"
#include "ir/verify.h"
#include "models/config_keys.h"
#include "models/decoder.h"
#include "models/import/config_reader.h"
#include "models/import/file.h"
#include "models/registry.h"
#include "models/weights_map.h"

namespace quire {

absl::StatusOr<ModelDef> BuildModel(const Checkpoint& checkpoint, const ModelOptions& options) {
  const ConfigReader config(checkpoint.config(), JoinPath(checkpoint.path(), "config.json"));
  QUIRE_ASSIGN_OR_RETURN(const std::string model_type, config.GetString("model_type"));
  QUIRE_ASSIGN_OR_RETURN(const Family* family, FindFamily(model_type, config.file()));

  KeyReader keys(config);
  const DecoderConfig decoder = family->read(keys);
  QUIRE_RETURN_IF_ERROR(keys.status());
  QUIRE_RETURN_IF_ERROR(
      RefuseUnknownKeys(config, checkpoint.config(), options.allowed_config_keys));

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
