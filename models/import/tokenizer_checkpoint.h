// The tokenizer of a checkpoint, whatever its format.
#ifndef QUIRE_MODELS_IMPORT_TOKENIZER_CHECKPOINT_H_
#define QUIRE_MODELS_IMPORT_TOKENIZER_CHECKPOINT_H_

#include <memory>

#include "absl/status/statusor.h"
#include "ir/plan_generated.h"
#include "models/import/checkpoint.h"

namespace quire {

// Null if the checkpoint has none: no tokenizer.json, or no tokenizer.ggml.model. Errors: those of
// tokenizer_json.h and tokenizer_gguf.h.
absl::StatusOr<std::unique_ptr<plan::TokenizerT>> ImportTokenizer(const Checkpoint& checkpoint);

}  // namespace quire

#endif  // QUIRE_MODELS_IMPORT_TOKENIZER_CHECKPOINT_H_
