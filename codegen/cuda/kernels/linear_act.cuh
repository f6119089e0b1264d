// The activation that a body computes itself, of the product as Output has it, rounded once more.
//
// Constants expected, beside those of linear.cuh: kHasAct, kGated and a function Act. Of a gated
// linear the weight has the rows of `a`, then as many of `b`, in act(a) * b.
#ifndef QUIRE_LINEAR_ACT_CUH_
#define QUIRE_LINEAR_ACT_CUH_

#include "linear.cuh"

// The value of y, from the sums of both of its rows of the weight if gated, with their biases.
DEVICE Output FinishAct(float sum, float gated_sum) {
  const float a = Act(ToFloat(FromFloat<Output>(sum)));
  return FromFloat<Output>(kGated ? Mul(a, ToFloat(FromFloat<Output>(gated_sum))) : a);
}
DEVICE Output FinishAct(float sum, float bias, float gated_sum, float gated_bias) {
  if constexpr (kHasBias) {
    sum = Add(sum, bias);
    gated_sum = Add(gated_sum, gated_bias);
  }
  return FinishAct(sum, gated_sum);
}

#endif  // QUIRE_LINEAR_ACT_CUH_
