// Columns of a linear that its kernel appends to the KV cache itself:
//
//   linear
//   slice         of its first columns, for other kernels; or none
//   slice, reshape, kv_append    K of a layer, then V of it; then those of the next layer
//
// Of one layer it may turn heads by rope before they leave:
//
//   slice, reshape, rope               of its first columns, queries; or none
//   slice, reshape, rope, kv_append    K; then V as above
//
// Which targets' kernels do that, their traits say (codegen/target.h).
#ifndef QUIRE_COMPILER_LINEAR_APPEND_H_
#define QUIRE_COMPILER_LINEAR_APPEND_H_

#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "compiler/pass.h"
#include "compiler/storage_types.h"
#include "ir/graph.h"

namespace quire {

struct LinearAppend {
  const Op* kept = nullptr;  // the slice of the first columns, or nullptr
  std::vector<const Op*>
      appends;                    // K, V, in the order of columns; none: the linear appends nothing
  std::vector<const Op*> slices;  // of each
  // Of K and of the first columns, if K is turned.
  const Op *rope = nullptr, *kept_rope = nullptr;

  // What other kernels read, or nullptr.
  const Op* result() const { return kept_rope != nullptr ? kept_rope : kept; }
};

using ReaderMap = absl::flat_hash_map<const Op*, std::vector<Op*>>;

// What the kernel of `linear` appends. Without a note where no column of it is appended as it is,
// or where it is read by another op than slices of its columns. Declines, with one, if
//   - other columns than the first are read otherwise, or some by nobody;
//   - the cache keeps them by a scale, or in another type than y's;
//   - a K is not followed by its V, or layers are not those that follow each other in one cache,
//     of one geometry;
//   - the rows are not T, or K, V or the first columns are not a multiple of 8 elements;
//   - K is turned by rope and the first columns otherwise, or not in whole heads like it;
//   - a norm of heads stands before the rope: it sums over what a tile has a part of;
//   - the rope is of a part of a head, of pairs half a head of no multiple of 8 apart, or of
//     positions or factors that are no argument and no weight, or not those of all of the
//     function's ropes: what turns a step's rows is computed once;
//   - V is turned, or more layers than one are appended.
LinearAppend FindAppends(const Func& func, const Op& linear, const ReaderMap& readers,
                         const StorageTypes& types, Notes& notes);

// That of a fused group. Nothing is appended if it has no kv_append.
LinearAppend ReadAppends(absl::Span<const Op* const> ops);

}  // namespace quire

#endif  // QUIRE_COMPILER_LINEAR_APPEND_H_
