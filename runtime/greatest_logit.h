// What a greedy choice needs of a row of logits.
#ifndef QUIRE_RUNTIME_GREATEST_LOGIT_H_
#define QUIRE_RUNTIME_GREATEST_LOGIT_H_

#include <cstdint>

#include "absl/types/span.h"

namespace quire {

struct GreatestLogit {
  int32_t id = 0;  // of equal logits the lowest
  float logit = 0;
  int32_t is_sound = 0;  // 1: no logit of the row is NaN or +infinity
};
static_assert(sizeof(GreatestLogit) == 12);  // as codegen/cuda/kernels/greatest.cuh writes it

// REQUIRES: not empty.
GreatestLogit GreatestOf(absl::Span<const float> logits);

}  // namespace quire

#endif  // QUIRE_RUNTIME_GREATEST_LOGIT_H_
