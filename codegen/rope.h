// Frequencies of rotary position embedding, as the attributes of a rope op state them.
#ifndef QUIRE_CODEGEN_ROPE_H_
#define QUIRE_CODEGEN_ROPE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ir/graph.h"

namespace quire {

// Radians per position for each of dims / 2 pairs. For dynamic scaling: below original_tokens;
// beyond, pair i is divided by growth^exponents[i] with
//   growth = factor * (position + 1) / original_tokens - (factor - 1).
std::vector<double> RopeFrequencies(const Op& rope, int64_t dims);
std::vector<double> RopeGrowthExponents(int64_t dims);

// A rope by its attributes alone, as kernel specs have them: "theta=10000,style=interleave".
std::string RopeAttributes(const Op& rope);
// One of heads of `d`, without factors. INVALID_ARGUMENT where the text is none.
struct RopeOp {
  Module module;
  const Op* op = nullptr;
};
absl::StatusOr<RopeOp> ParseRopeOp(absl::string_view attributes, int64_t d);
// What is allowed instead of them for a linear that turns heads of `d`, K behind so many columns;
// "" where they are.
std::string AllowedRope(absl::string_view attributes, int64_t d, int64_t columns);

}  // namespace quire

#endif  // QUIRE_CODEGEN_ROPE_H_
