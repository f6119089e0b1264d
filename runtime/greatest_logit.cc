#include "runtime/greatest_logit.h"

#include <algorithm>
#include <limits>

namespace quire {

GreatestLogit GreatestOf(absl::Span<const float> logits) {
  bool is_sound = true;
  for (const float logit : logits) {
    is_sound &= logit <= std::numeric_limits<float>::max();  // false for NaN
  }
  const auto greatest = std::max_element(logits.begin(), logits.end());
  return {static_cast<int32_t>(greatest - logits.begin()), *greatest, is_sound ? 1 : 0};
}

}  // namespace quire
