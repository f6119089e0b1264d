// Regular expressions of tokenizer files.
//
// Those files are written for Oniguruma in Ruby syntax; this class runs them on ICU. Syntax that
// means something else there is rewritten (\v, \w, \W, \b, \B), and what cannot be is refused:
// inline options but (?i:...) and
// (?-i:...), POSIX brackets, \h \H \G \K \X, back-references, named groups, {n,m}+ and {n}?, set
// difference.
//
// Errors: UNIMPLEMENTED for what is refused, INVALID_ARGUMENT for what is malformed, both with the
// pattern; RESOURCE_EXHAUSTED when a match backtracks beyond bounds or the text has 2^31 bytes.
// Threads: a Regex may be used by several at once.
#ifndef QUIRE_RUNTIME_TOKENIZER_REGEX_H_
#define QUIRE_RUNTIME_TOKENIZER_REGEX_H_

#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/tokenizer/word_scanner.h"

namespace quire::tokenizer {

class Regex {
 public:
  static absl::StatusOr<Regex> Compile(absl::string_view pattern);

  // A regex that matches exactly `text`. REQUIRES: not empty.
  static Regex Literal(absl::string_view text);

  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;
  ~Regex();

  // Calls `match` with the byte range of each match, left to right; matches do not overlap, and an
  // empty match right after another match does not count. REQUIRES: valid UTF-8.
  absl::Status ForEachMatch(absl::string_view text,
                            absl::FunctionRef<void(size_t, size_t)> match) const;

  // The hand-written matcher of this pattern, or null; where there is one, its words cover the
  // text.
  WordScanner scanner() const { return scanner_; }

 private:
  struct Icu;
  Regex();

  std::string literal_;
  WordScanner scanner_ = nullptr;
  std::unique_ptr<const Icu> icu_;  // null for a literal
};

}  // namespace quire::tokenizer

#endif  // QUIRE_RUNTIME_TOKENIZER_REGEX_H_
