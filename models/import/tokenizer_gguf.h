// The tokenizer in GGUF metadata (tokenizer.ggml.*), to the plan's neutral tokenizer data.
//
// Kind "gpt2" is byte-level BPE; what cuts its text into words is known by a name,
// tokenizer.ggml.pre. Kind "llama" is SentencePiece's BPE, merged by score. Names mean what the
// models' own tokenizer.json files say, which for a few is more than llama.cpp does: text is
// normalized to NFC for qwen2, qwen35 and command-r.
//
// Errors: INVALID_ARGUMENT when keys contradict each other, UNIMPLEMENTED for another kind or name,
// with those known.
#ifndef QUIRE_MODELS_IMPORT_TOKENIZER_GGUF_H_
#define QUIRE_MODELS_IMPORT_TOKENIZER_GGUF_H_

#include "absl/status/statusor.h"
#include "ir/plan_generated.h"
#include "models/import/gguf_metadata.h"

namespace quire {

absl::StatusOr<plan::TokenizerT> ImportTokenizerGguf(const GgufMetadata& metadata);

}  // namespace quire

#endif  // QUIRE_MODELS_IMPORT_TOKENIZER_GGUF_H_
