// How a row kernel for CUDA divides its work, decided from the function alone: never from the
// number of rows, so that a row's bits do not depend on it.
//
// A value is computed where it is read: what is written to memory (returns, appends) is evaluated
// in vectors of V neighbouring elements, through all ops above it. Two things need more than that,
// where a quantize by scales that it computes is a norm, too, whose sum is the greatest magnitude:
//
// - A norm over the whole row needs a sum over all threads of the row. It is a step of its own;
//   after it every thread knows mean and inverse.
// - A norm over heads needs sums over each head. A head belongs to a few neighbouring lanes of one
//   warp, which first sum, then compute all that reads the norm at the head's elements.
//
// A norm over heads that something reads at other places (a slice, a norm over the row) is written
// to shared memory first, as a step of its own.
#ifndef QUIRE_CODEGEN_CUDA_ROW_PLAN_H_
#define QUIRE_CODEGEN_CUDA_ROW_PLAN_H_

#include <cstdint>
#include <map>
#include <vector>

#include "absl/status/statusor.h"
#include "ir/graph.h"

namespace quire {

// What is written: a value's elements, to an output, to the KV cache, or to shared memory.
struct RowSink {
  enum class Kind { kReturn, kAppend, kStage };
  Kind kind = Kind::kReturn;
  const Op* value = nullptr;  // of an append, what is appended
  const Op* append = nullptr;
  size_t output = 0;  // kReturn
};

// Sinks whose elements are walked together.
struct RowWalk {
  enum class Kind {
    kRow,       // all threads of the row, chunks of 8 elements: the norms' own order
    kFlat,      // warps of the row, a vector a lane
    kSegments,  // warps of the row, a segment (the last extent) on `lanes` neighbouring lanes
  };
  Kind kind = Kind::kFlat;
  int64_t segments = 1, length = 0;
  int lanes = 1;
  int64_t chunks = 1;  // a thread's, of 8 elements (kRow) or of one vector (a pair of them)
  // kSegments: a lane has the same places of a segment's first and second half, which a rope turns.
  bool pairs = false;
  std::vector<const Op*> norms;  // over segments, in order
  std::vector<RowSink> sinks;
  int64_t units = 0;  // kFlat, kSegments: pieces of work of one warp
};

struct RowPlan {
  int vector = 8;        // V
  int row_threads = 32;  // a warp, or a block of several
  // Any number of warps can share a row's units: nothing is summed over the row or staged.
  bool divisible = true;
  std::map<const Op*, int64_t> staged;  // float offset in shared memory
  int64_t staged_floats = 0;
  std::vector<RowWalk> steps;  // kRow: its one norm; otherwise a stage
  std::vector<RowWalk> last;   // all other sinks; kRow first
  int64_t units = 0;           // of `last`
};

// Neighbouring elements that a norm, or a quantize by their greatest, is over.
int64_t NormedElements(const Op& op);

absl::StatusOr<RowPlan> PlanRow(const Func& func);

// Operands whose element at a place is read for the op's at the same place of row-major order.
std::vector<const Op*> SamePlaceOperands(const Op& op);

}  // namespace quire

#endif  // QUIRE_CODEGEN_CUDA_ROW_PLAN_H_
