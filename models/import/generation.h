// How a checkpoint asks to be decoded: generation_config.json, the ids of config.json, or GGUF
// metadata.
//
// generation_config.json wins over config.json, as in transformers, and stands alone for all but
// the ids. Keys that would change what is generated and that Quire does not act on are no errors,
// since published models have them: they are noted.
#ifndef QUIRE_MODELS_IMPORT_GENERATION_H_
#define QUIRE_MODELS_IMPORT_GENERATION_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ir/plan_generated.h"
#include "models/import/checkpoint.h"

namespace quire {

// Of one search, by a file's num_beams or a run's --beams.
inline constexpr int32_t kMaxBeams = 1024;

struct ImportedGeneration {
  std::unique_ptr<plan::GenerationT> generation;
  std::vector<std::string> notes;  // "key=value of FILE is not honoured"
};

// `vocabulary`: ids are below it. INVALID_ARGUMENT when a key that is acted on has a value of
// another type or out of its range.
absl::StatusOr<ImportedGeneration> ImportGeneration(const Checkpoint& checkpoint,
                                                    int64_t vocabulary);

}  // namespace quire

#endif  // QUIRE_MODELS_IMPORT_GENERATION_H_
