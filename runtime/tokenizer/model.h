// The model of a tokenizer: a word in, ids out.
#ifndef QUIRE_RUNTIME_TOKENIZER_MODEL_H_
#define QUIRE_RUNTIME_TOKENIZER_MODEL_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ir/plan_generated.h"
#include "runtime/tokenizer/vocabulary.h"

namespace quire::tokenizer {

class Model {
 public:
  virtual ~Model() = default;

  // Appends the ids of `word`, which is not empty and valid UTF-8. With raw bytes (see MakeModel)
  // it may be any.
  virtual void Encode(absl::string_view word, std::vector<int32_t>* ids) const = 0;
};

// `raw_bytes`: words come as bytes, and byte b means the vocabulary's character ByteToChar(b). Only
// kBpe, and only if the vocabulary has all 256 of these characters: HasByteAlphabet(). `vocabulary`
// must outlive the model. Errors: INVALID_ARGUMENT on ids out of range, or scores that do not cover
// the vocabulary.
absl::StatusOr<std::unique_ptr<Model>> MakeModel(const plan::TokenizerT& spec,
                                                 const Vocabulary& vocabulary, bool raw_bytes);

bool HasByteAlphabet(const Vocabulary& vocabulary);

}  // namespace quire::tokenizer

#endif  // QUIRE_RUNTIME_TOKENIZER_MODEL_H_
