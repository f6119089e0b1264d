// The rewriting of Oniguruma's Ruby syntax into ICU's.
#ifndef QUIRE_RUNTIME_TOKENIZER_REGEX_SYNTAX_H_
#define QUIRE_RUNTIME_TOKENIZER_REGEX_SYNTAX_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace quire::tokenizer {

// The ICU pattern, for the flags UREGEX_MULTILINE | UREGEX_UNIX_LINES, that matches what `pattern`
// matches. Errors: UNIMPLEMENTED naming the construct. A malformed pattern may pass and is left to
// ICU to refuse.
absl::StatusOr<std::string> ToIcuSyntax(absl::string_view pattern);

}  // namespace quire::tokenizer

#endif  // QUIRE_RUNTIME_TOKENIZER_REGEX_SYNTAX_H_
