// How a checkpoint asks to be decoded: generation_config.json, the ids of config.json, or GGUF
// metadata.
//
// Keys of generation_config.json that Quire does not act on are left out, and of a model without an
// encoder beams and penalties on n-grams, too: they choose among continuations and do not change
// the model.
#ifndef QUIRE_MODELS_IMPORT_GENERATION_H_
#define QUIRE_MODELS_IMPORT_GENERATION_H_

#include <memory>

#include "absl/status/statusor.h"
#include "ir/plan_generated.h"
#include "models/import/checkpoint.h"

namespace quire {

// INVALID_ARGUMENT when a key that is acted on has a value of another type or out of its range.
absl::StatusOr<std::unique_ptr<plan::GenerationT>> ImportGeneration(const Checkpoint& checkpoint);

}  // namespace quire

#endif  // QUIRE_MODELS_IMPORT_GENERATION_H_
