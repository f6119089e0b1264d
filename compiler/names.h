// Names of values that passes make: definitions prefix the values of a layer ("l7.q", "l7.q.1"),
// and what stands in for them keeps the prefix.
#ifndef QUIRE_COMPILER_NAMES_H_
#define QUIRE_COMPILER_NAMES_H_

#include "absl/strings/string_view.h"

namespace quire {

// "l7." of "l7.q.1"; "" of "q".
absl::string_view ScopeOf(absl::string_view name);
// "q" of "l7.q.1": without the scope and without the suffix that made the name unique.
absl::string_view WordOf(absl::string_view name);

}  // namespace quire

#endif  // QUIRE_COMPILER_NAMES_H_
