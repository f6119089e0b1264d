#include <cmath>
#include <limits>

#include "tests/ir/one_op.h"

namespace quire::testing {
namespace {

const Operand kX = {"f32[4]", {-2, -1, 0.5, 3}};

TEST(ReferencePointwiseTest, AddRepeatsTheRightSide) {
  ExpectOp("add", {{"f32[2,2,2]", {1, 2, 3, 4, 5, 6, 7, 8}}, {"f32[2]", {10, 20}}}, "",
           "f32[2,2,2]", {11, 22, 13, 24, 15, 26, 17, 28});
  ExpectOp("add", {{"f32[2,2]", {1, 2, 3, 4}}, {"f32[2,2]", {10, 20, 30, 40}}}, "", "f32[2,2]",
           {11, 22, 33, 44});
  ExpectOp("add", {{"f32[2]", {1, 2}}, {"f32[]", {5}}}, "", "f32[2]", {6, 7});
}

TEST(ReferencePointwiseTest, MulRepeatsTheRightSide) {
  ExpectOp("mul", {{"f32[2,3]", {1, 2, 3, 4, 5, 6}}, {"f32[3]", {2, 3, 5}}}, "", "f32[2,3]",
           {2, 6, 15, 8, 15, 30});
}

TEST(ReferencePointwiseTest, Scale) {
  ExpectOp("scale", {kX}, "{factor=-1.5}", "f32[4]", {3, 1.5, -0.75, -4.5});
}

TEST(ReferencePointwiseTest, Softcap) {
  ExpectOp("softcap", {kX}, "{cap=2.5}", "f32[4]",
           {-1.6600919256696227, -0.9498724056380623, 0.49343830056226, 2.084136517530388});
  ExpectOp("softcap", {kX}, "{cap=0}", "f32[4]", kX.values);
}

TEST(ReferencePointwiseTest, Silu) {
  ExpectOp("silu", {kX}, "", "f32[4]",
           {-0.2384058440442351, -0.2689414213699951, 0.3112296656009273, 2.8577223804673});
  // Far to the left exp(-x) is infinite, and the quotient 0.
  ExpectOp("silu", {{"f32[1]", {-1000}}}, "", "f32[1]", {0});
}

TEST(ReferencePointwiseTest, Gelu) {
  ExpectOp("gelu", {kX}, "", "f32[4]",
           {-0.04550026389635842, -0.15865525393145707, 0.34573123063700656, 2.99595030590511});
  ExpectOp("gelu", {kX}, "{approximate=tanh}", "f32[4]",
           {-0.04540230591222494, -0.15880800939172324, 0.34571400982514394, 2.996362607918227});
  ExpectOp("gelu", {kX}, "{approximate=quick}", "f32[4]",
           {-0.06434137685579186, -0.1542042340671787, 0.35038843660638014, 2.981928690292214});
}

TEST(ReferencePointwiseTest, Relu) { ExpectOp("relu", {kX}, "", "f32[4]", {0, 0, 0.5, 3}); }

TEST(ReferencePointwiseTest, Tanh) {
  ExpectOp("tanh", {kX}, "", "f32[4]",
           {-0.9640275800758169, -0.7615941559557649, 0.46211715726000974, 0.9950547536867305});
}

TEST(ReferencePointwiseTest, Sigmoid) {
  ExpectOp("sigmoid", {kX}, "", "f32[4]",
           {0.11920292202211755, 0.2689414213699951, 0.6224593312018546, 0.9525741268224334});
}

TEST(ReferencePointwiseTest, CastRoundsToTheType) {
  const Operand x = {"f32[5]", {1 + 0x1p-11, 1 + 0x1p-8, 1 + 3 * 0x1p-8, 70000, 0x1p-25 * 1.5}};
  ExpectOp("cast", {x}, "", "f16[5]",
           {1, 1 + 0x1p-8, 1 + 3 * 0x1p-8, std::numeric_limits<double>::infinity(), 0x1p-24});
  ExpectOp("cast", {x}, "", "bf16[5]", {1, 1, 1 + 0x1p-6, 70144, 0x1p-25 * 1.5});
  // f32 values keep the precision of a double: the interpreter's arithmetic is exact enough to be
  // the judge of f32 code, which rounding to f32 would not be.
  ExpectOp("cast", {x}, "", "f32[5]", x.values);
}

TEST(ReferencePointwiseTest, EveryResultIsRoundedToItsType) {
  // 1 + 2^-9 does not exist in bf16: 8 bits of significand.
  ExpectOp("add", {{"bf16[2]", {1, 3}}, {"f32[2]", {0x1p-9, 0x1p-9}}}, "", "bf16[2]", {1, 3});
  // An argument is rounded, too.
  ExpectOp("scale", {{"bf16[1]", {1 + 0x1p-9}}}, "{factor=1024}", "bf16[1]", {1024});
}

}  // namespace
}  // namespace quire::testing
