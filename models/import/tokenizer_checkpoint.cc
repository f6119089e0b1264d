#include "models/import/tokenizer_checkpoint.h"

#include <utility>

#include "ir/status.h"
#include "models/import/json.h"
#include "models/import/tokenizer_gguf.h"
#include "models/import/tokenizer_json.h"

namespace quire {

absl::StatusOr<std::unique_ptr<plan::TokenizerT>> ImportTokenizer(const Checkpoint& checkpoint) {
  absl::StatusOr<plan::TokenizerT> tokenizer;
  if (checkpoint.format() == CheckpointFormat::kGguf) {
    if (!checkpoint.metadata().Has("tokenizer.ggml.model")) return nullptr;
    tokenizer = ImportTokenizerGguf(checkpoint.metadata());
  } else {
    tokenizer = ImportTokenizerDirectory(checkpoint.path());
    if (absl::IsNotFound(tokenizer.status())) return nullptr;
  }
  QUIRE_RETURN_IF_ERROR(WithFileFix(tokenizer.status()));
  return std::make_unique<plan::TokenizerT>(*std::move(tokenizer));
}

}  // namespace quire
