// The activation that a body computes itself, of the product as Output has it, rounded once more.
//
// Constants expected, beside those of linear.cuh: kHasAct, kGated and a function Act. Of a gated
// linear the weight has the rows of `a`, then as many of `b`, in act(a) * b.
#ifndef QUIRE_LINEAR_ACT_CUH_
#define QUIRE_LINEAR_ACT_CUH_

#include "linear.cuh"

// The value of y, from the sums of both of its rows of the weight if gated.
DEVICE Output FinishAct(float sum, float bias, float gated_sum, float gated_bias) {
  const float a = Act(ToFloat(Finish(sum, bias, 0)));
  return FromFloat<Output>(kGated ? Mul(a, ToFloat(Finish(gated_sum, gated_bias, 0))) : a);
}

#endif  // QUIRE_LINEAR_ACT_CUH_
