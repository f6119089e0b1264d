// Hand-written matchers for the split patterns that most models use.
//
// A scanner returns the end of the match that starts at `p`, as the pattern's leftmost alternative
// would match there. These patterns match at every place, so repeated calls cut a text into words
// with no gap.
#ifndef QUIRE_RUNTIME_TOKENIZER_WORD_SCANNER_H_
#define QUIRE_RUNTIME_TOKENIZER_WORD_SCANNER_H_

#include "absl/strings/string_view.h"

namespace quire::tokenizer {

// REQUIRES: p < end, and [p, end) is valid UTF-8.
using WordScanner = const char* (*)(const char* p, const char* end);

// GPT-2's pattern, and those of Llama 3 and Qwen 2, which differ in the digits that a number may
// have.
extern const absl::string_view kGpt2Pattern;
extern const absl::string_view kLlama3Pattern;
extern const absl::string_view kQwen2Pattern;

// The scanner for `pattern`, or null if there is none.
WordScanner FindWordScanner(absl::string_view pattern);

}  // namespace quire::tokenizer

#endif  // QUIRE_RUNTIME_TOKENIZER_WORD_SCANNER_H_
