// Which ops treat every row of a step on its own.
//
// Rows are the entries of axis 0 when its extent is the letter T (or R). An op is row-wise when row
// t of its result depends on row t of its operands and on values without rows alone; then it may
// run on any subset of the rows, in any chunks.
#ifndef QUIRE_COMPILER_ROW_WISE_H_
#define QUIRE_COMPILER_ROW_WISE_H_

#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "ir/graph.h"

namespace quire {

// True when axis 0 has the extent `letter`.
bool HasRows(const Type& type, char letter);
// True when any extent is a letter.
bool HasLetters(const Type& type);

// OK when `op` is row-wise in `letter`, or does not meet the letter at all. Otherwise
// INVALID_ARGUMENT, "%value: op: " and how it mixes rows. Attention and kv_append are not row-wise:
// they read other rows by design, and callers treat them on their own.
absl::Status CheckRowWise(const Op& op, char letter);

// "%value: op: what".
std::string Describe(const Op& op, absl::string_view what);

using OpSet = absl::flat_hash_set<const Op*>;

// Tensors of the checkpoint, and such joined, cut or transposed: what a plan's WeightSlot can
// express.
OpSet WeightExpressionsOf(const Func& func);

// The value whose memory `op` is: reshapes that keep axis 0 are followed to what they reshape.
const Op* Storage(const Op* op);

// What a kv_append of x to a cache of `dtype` takes: x, and the scale that a kv_scale says, if the
// cache keeps by scales.
std::vector<Op*> KeptBy(Op* x, DType dtype);

}  // namespace quire

#endif  // QUIRE_COMPILER_ROW_WISE_H_
