// Frequencies of rotary position embedding, as the attributes of a rope op state them.
#ifndef QUIRE_CODEGEN_ROPE_H_
#define QUIRE_CODEGEN_ROPE_H_

#include <cstdint>
#include <vector>

#include "ir/graph.h"

namespace quire {

// Radians per position for each of dims / 2 pairs. For dynamic scaling: below original_tokens;
// beyond, pair i is divided by growth^exponents[i] with
//   growth = factor * (position + 1) / original_tokens - (factor - 1).
std::vector<double> RopeFrequencies(const Op& rope, int64_t dims);
std::vector<double> RopeGrowthExponents(int64_t dims);

}  // namespace quire

#endif  // QUIRE_CODEGEN_ROPE_H_
