// From a checkpoint, or from a user's own .qir file, to a definition.
//
// Errors:  UNIMPLEMENTED for an architecture, key or value that is not supported; INVALID_ARGUMENT
//          for a configuration, tensor or text that is wrong; what models/import/ reports.
#ifndef QUIRE_MODELS_MODEL_H_
#define QUIRE_MODELS_MODEL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ir/graph.h"
#include "models/import/checkpoint.h"

namespace quire {

struct ModelDef {
  // One function that returns logits f32[T,V]: @step(%ids: i32[T], %pos: i32[T]), and for an
  // encoder-decoder also %source: i32[S] and %source_pos: i32[S], of the encoder's tokens; or
  // %states: f32[S,E], which something else computed. Weight ops name the checkpoint's tensors.
  Module module;
  std::string architecture;     // "llama"; "qir" for a user's own
  int64_t vocab_size = 0;       // V
  int64_t max_positions = 0;    // longest sequence the model was made for; 0: none stated
  int64_t max_source = 0;       // the same for an encoder's input
  int64_t parameter_count = 0;  // elements of the distinct weights
};

struct ModelOptions {
  // Configuration keys that are not known and may be left out of the mathematics.
  std::vector<std::string> allowed_config_keys;
  // Activations keep their type, also where a checkpoint of 8-bit floats means them to be rounded.
  bool keeps_activations = false;
};

absl::StatusOr<ModelDef> BuildModel(const Checkpoint& checkpoint, const ModelOptions& options = {});

// Reads a module whose @step has the form above. Each weight goes by the tensor that the name map
// gives it, or else by its own name, and must be in `checkpoint` with the type that the text
// declares. The map is a JSON object from weight to tensor; an empty path stands for an empty map.
// The longest sequence and source are those that every table of positions has rows for.
absl::StatusOr<ModelDef> LoadQirModel(absl::string_view path, absl::string_view map_path,
                                      const Checkpoint& checkpoint);

}  // namespace quire

#endif  // QUIRE_MODELS_MODEL_H_
