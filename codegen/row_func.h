// The function of a RowSpec, as emitters of row kernels need it.
#ifndef QUIRE_CODEGEN_ROW_FUNC_H_
#define QUIRE_CODEGEN_ROW_FUNC_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "codegen/spec.h"
#include "ir/graph.h"

namespace quire {

// The module with the spec's one function, checked: every op has a row kernel and treats each row
// on its own; rows of the step or of a table are looked up by arguments alone. INVALID_ARGUMENT on
// a malformed text, UNIMPLEMENTED on what no row kernel computes; `backend` begins the message.
absl::StatusOr<Module> ParseRowFunc(const RowSpec& spec, absl::string_view backend);

// The letter of the rows that the function computes.
char RowLetter(const Func& func);
// Whether the value has rows of the step: its first extent is a letter.
bool HasRowExtent(const Type& type);
// The extents of one row of a value, or all of a weight.
std::vector<int64_t> InnerExtents(const Type& type);
int64_t CountOf(const std::vector<int64_t>& extents);
// Elements of one row of a value, or of a weight.
int64_t ElementsOf(const Op& op);
// The product of the extents from `axis` on.
int64_t ElementsFrom(const Op& op, int64_t axis);

}  // namespace quire

#endif  // QUIRE_CODEGEN_ROW_FUNC_H_
