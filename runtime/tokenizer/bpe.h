// Byte-pair encoding: by merge ranks (tokenizer.json, GGUF gpt2), and by scores of merged tokens
// (GGUF llama).
#ifndef QUIRE_RUNTIME_TOKENIZER_BPE_H_
#define QUIRE_RUNTIME_TOKENIZER_BPE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "runtime/tokenizer/model.h"

namespace quire::tokenizer {

absl::StatusOr<std::unique_ptr<Model>> MakeBpe(const plan::TokenizerT& spec,
                                               const Vocabulary& vocabulary, bool raw_bytes);

absl::StatusOr<std::unique_ptr<Model>> MakeScoredBpe(const plan::TokenizerT& spec,
                                                     const Vocabulary& vocabulary);

}  // namespace quire::tokenizer

#endif  // QUIRE_RUNTIME_TOKENIZER_BPE_H_
