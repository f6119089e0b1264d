// The greatest of a row of logits: what a greedy choice needs of it, and those that are chosen
// among.
#ifndef QUIRE_RUNTIME_GREATEST_LOGIT_H_
#define QUIRE_RUNTIME_GREATEST_LOGIT_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace quire {

struct GreatestLogit {
  int32_t id = 0;  // of equal logits the lowest
  float logit = 0;
  int32_t is_sound = 0;  // 1: no logit of the row is NaN or +infinity
};
static_assert(sizeof(GreatestLogit) == 12);  // as codegen/cuda/kernels/greatest.cuh writes it

// What errors say of a row that is not; a program that knows the plan's name puts it for PLAN.
inline constexpr absl::string_view kUnsoundLogits =
    "the logits hold a NaN or +infinity\n  fix: quire check PLAN --contents names the first weight "
    "that is a NaN or an infinity";

// REQUIRES: not empty.
GreatestLogit GreatestOf(absl::Span<const float> logits);

// The ids of the `count` greatest, or of all, in descending order; of equal ones the lower id
// first. REQUIRES: no NaN. Little time where `count` is small beside the vocabulary.
std::vector<int32_t> GreatestIds(absl::Span<const float> logits, size_t count);
// Likewise of log-probabilities.
std::vector<int32_t> GreatestIds(absl::Span<const double> logprobs, size_t count);

}  // namespace quire

#endif  // QUIRE_RUNTIME_GREATEST_LOGIT_H_
