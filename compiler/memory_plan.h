// Places buffers in one arena whose size, like every offset, is linear in T and R.
//
// Units:   bytes. Offsets are multiples of 64 for every T and R.
// Domain:  1 <= R <= T.
// Invariants:
//   (1) two buffers that are live in one launch share no byte, for any T and R of the domain;
//   (2) no buffer reaches beyond the arena;
//   (3) the arena is not larger than the sum of all buffers, each rounded up.
// A buffer is live from the launch that writes it to the last that reads it, both included; so a
// launch never writes what it reads. Two launches without a value between them may still use the
// same bytes: whoever runs launches keeps their order.
#ifndef QUIRE_COMPILER_MEMORY_PLAN_H_
#define QUIRE_COMPILER_MEMORY_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace quire {

// constant + t * T + r * R.
struct LinearBytes {
  int64_t constant = 0, t = 0, r = 0;

  int64_t At(int64_t tokens, int64_t rows) const { return constant + t * tokens + r * rows; }
  friend bool operator==(const LinearBytes& a, const LinearBytes& b) {
    return a.constant == b.constant && a.t == b.t && a.r == b.r;
  }
};

// a <= b for every 1 <= R <= T.
bool NeverExceeds(const LinearBytes& a, const LinearBytes& b);

struct BufferUse {
  std::string name;
  LinearBytes bytes;  // each coefficient >= 0
  int first_launch = 0, last_launch = 0;
};

struct MemoryPlan {
  std::vector<LinearBytes> offsets;  // one for each buffer
  LinearBytes arena;
};

// RESOURCE_EXHAUSTED when the sum overflows 62 bits.
absl::StatusOr<MemoryPlan> PlanMemory(absl::Span<const BufferUse> buffers);

// INTERNAL when invariant (1) or (2) does not hold; shares nothing with the planner.
absl::Status CheckMemoryPlan(absl::Span<const BufferUse> buffers, const MemoryPlan& plan);

}  // namespace quire

#endif  // QUIRE_COMPILER_MEMORY_PLAN_H_
