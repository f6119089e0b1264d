// The text form of the IR (.qir).
//
//   func   := "func" "@" name "(" [arg {"," arg}] ")" "{" {op} "return" value {"," value} "}"
//   arg    := value ":" type
//   op     := value "=" mnemonic [value {"," value}] ["{" attr {"," attr} "}"] ":" type ["@" group]
//   type   := dtype "[" [extent {"," extent}] "]"        extent := integer | letter
//
// '//' starts a comment that ends with the line. Names hold letters, digits, '_' and '.'. Printing
// is canonical: the text of a parsed text is a fixpoint, attributes stand in the order of
// attrs.def, optional ones equal to their default are left out, numbers are the shortest that read
// back equal. Errors: INVALID_ARGUMENT with "line:col: ".
#ifndef QUIRE_IR_TEXT_H_
#define QUIRE_IR_TEXT_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ir/graph.h"

namespace quire {

std::string Print(const Op& op);
std::string Print(const Func& func);
std::string Print(const Module& module);

// Parses and verifies. `file` stands before the position in messages; it may be empty.
absl::StatusOr<Module> Parse(absl::string_view text, absl::string_view file = "");

}  // namespace quire

#endif  // QUIRE_IR_TEXT_H_
