#include <cmath>

#include "tests/ir/one_op.h"

namespace quire::testing {
namespace {

// Mean square of the first row 12.5, of the second 8; means 0.5 and 2, variances 12.25 and 4.
const Operand kX = {"f32[2,2]", {4, -3, 4, 0}};

TEST(ReferenceNormTest, RmsNorm) {
  const double a = std::sqrt(12.5), b = std::sqrt(8.0);
  ExpectOp("rms_norm", {kX}, "{eps=0}", "f32[2,2]", {4 / a, -3 / a, 4 / b, 0});
  ExpectOp("rms_norm", {kX}, "{eps=1}", "f32[2,2]",
           {4 / std::sqrt(13.5), -3 / std::sqrt(13.5), 4.0 / 3, 0});
  ExpectOp("rms_norm", {kX, {"f32[2]", {2, 10}}}, "{eps=1}", "f32[2,2]",
           {8 / std::sqrt(13.5), -30 / std::sqrt(13.5), 8.0 / 3, 0});
  ExpectOp("rms_norm", {kX, {"f32[2]", {2, 10}}}, "{eps=1, weight_offset=1}", "f32[2,2]",
           {12 / std::sqrt(13.5), -33 / std::sqrt(13.5), 4, 0});
}

TEST(ReferenceNormTest, LayerNorm) {
  ExpectOp("layer_norm", {kX}, "{eps=0}", "f32[2,2]", {1, -1, 1, -1});
  ExpectOp(
      "layer_norm", {kX}, "{eps=0.75}", "f32[2,2]",
      {3.5 / std::sqrt(13.0), -3.5 / std::sqrt(13.0), 2 / std::sqrt(4.75), -2 / std::sqrt(4.75)});
  ExpectOp("layer_norm", {kX, {"f32[2]", {2, 10}}}, "{eps=0}", "f32[2,2]", {2, -10, 2, -10});
  ExpectOp("layer_norm", {kX, {"f32[2]", {2, 10}}, {"f32[2]", {0.5, -1}}}, "{eps=0}", "f32[2,2]",
           {2.5, -11, 2.5, -11});
}

}  // namespace
}  // namespace quire::testing
