// The pre-tokenizers that GGUF files name.
#ifndef QUIRE_MODELS_IMPORT_TOKENIZER_GGUF_PRE_H_
#define QUIRE_MODELS_IMPORT_TOKENIZER_GGUF_PRE_H_

#include <array>
#include <string>

#include "absl/strings/string_view.h"

namespace quire {

struct GgufPreTokenizer {
  // Splits before the bytes become characters, one after the other, each isolating its matches.
  std::array<absl::string_view, 6> patterns{};  // up to the first empty one
  bool single_digits = false;                   // first of all, each numeric character stands alone
  bool gpt2_words = false;                      // last of all, GPT-2's pattern
  bool nfc = false;
  bool ignores_merges = false;
  bool adds_bos = false;  // unless the file says otherwise
};

// Null if there is no such name.
const GgufPreTokenizer* FindGgufPreTokenizer(absl::string_view name);

// Every name, sorted, separated by ", ".
std::string GgufPreTokenizerNames();

}  // namespace quire

#endif  // QUIRE_MODELS_IMPORT_TOKENIZER_GGUF_PRE_H_
