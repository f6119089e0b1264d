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

// 448 is 64 times 7. In 64ths, of four digits: 3.4 is 217.6, between 208 and 224; 0.001 is 0.064,
// between 0.0625 and 0.0703.
TEST(ReferenceNormTest, Quantize) {
  const Operand x = {"f32[2,4]", {7, 0.001, -3.4, 0.25, 0, 0, 0, 0}};
  ExpectOp("quantize", {x}, "{columns=0}", "f32[2,4]", {7, 0.0625 / 64, -3.5, 0.25, 0, 0, 0, 0});
  // Each two by a scale of their own: 3.4 is the greatest, and 0.25 is 32.9 of it, near 32.
  const double scale = 3.4f / 448;
  ExpectOp("quantize", {x}, "{columns=2}", "f32[2,4]",
           {7, 0.0625 / 64, -448 * scale, 32 * scale, 0, 0, 0, 0});
  // What is past `most`, or 448 of a scale that is given, becomes it: in 128ths.
  const std::vector<double> in_128ths = {3.5, 0.125 / 128, -3.5, 0.25, 0, 0, 0, 0};
  ExpectOp("quantize", {x}, "{most=3.5}", "f32[2,4]", in_128ths);
  ExpectOp("quantize", {x, {"bf16[1]", {0.0078125}}}, "{columns=0}", "f32[2,4]", in_128ths);
}

}  // namespace
}  // namespace quire::testing
