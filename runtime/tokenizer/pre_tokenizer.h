// Pre-tokenizers: steps that cut text into words.
#ifndef QUIRE_RUNTIME_TOKENIZER_PRE_TOKENIZER_H_
#define QUIRE_RUNTIME_TOKENIZER_PRE_TOKENIZER_H_

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ir/plan_generated.h"
#include "runtime/tokenizer/piece.h"

namespace quire::tokenizer {

class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;

  // Appends the words of `piece` to `out`. REQUIRES: piece is text, not an added token.
  virtual absl::Status Split(const Piece& piece, TextArena* arena,
                             std::vector<Piece>* out) const = 0;
};

// Errors: those of Regex::Compile; INVALID_ARGUMENT on a kind or field out of its range.
absl::StatusOr<std::unique_ptr<PreTokenizer>> MakePreTokenizer(const plan::PreTokenizerT& spec);

// ByteLevel without its last part: words stay bytes, for a model that maps bytes to ids itself.
std::unique_ptr<PreTokenizer> MakeRawByteLevel(const plan::PreTokenizerT& spec);

}  // namespace quire::tokenizer

#endif  // QUIRE_RUNTIME_TOKENIZER_PRE_TOKENIZER_H_
