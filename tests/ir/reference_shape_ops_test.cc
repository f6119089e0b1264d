#include "tests/ir/one_op.h"

namespace quire::testing {
namespace {

using ::testing::HasSubstr;

const Operand kX = {"f32[2,3]", {1, 2, 3, 4, 5, 6}};
const Operand kCube = {"f32[2,2,3]", {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}};

TEST(ReferenceShapeOpsTest, ReshapeKeepsRowMajorOrder) {
  ExpectOp("reshape", {kX}, "", "f32[3,2]", {1, 2, 3, 4, 5, 6});
}

TEST(ReferenceShapeOpsTest, Transpose) {
  ExpectOp("transpose", {kX}, "{perm=[1,0]}", "f32[3,2]", {1, 4, 2, 5, 3, 6});
  ExpectOp("transpose", {kCube}, "{perm=[1,0,2]}", "f32[2,2,3]",
           {0, 1, 2, 6, 7, 8, 3, 4, 5, 9, 10, 11});
  // A cycle, which its inverse must not be mistaken for: y[i,j,k] = x[j,k,i].
  ExpectOp("transpose", {kCube}, "{perm=[2,0,1]}", "f32[3,2,2]",
           {0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11});
  ExpectOp("transpose", {{"i32[1,2]", {3, 4}}}, "{perm=[1,0]}", "i32[2,1]", {3, 4});
}

TEST(ReferenceShapeOpsTest, Slice) {
  ExpectOp("slice", {kX}, "{axis=1, begin=1, end=3}", "f32[2,2]", {2, 3, 5, 6});
  ExpectOp("slice", {kX}, "{axis=0, begin=1, end=2}", "f32[1,3]", {4, 5, 6});
  ExpectOp("slice", {kCube}, "{axis=1, begin=1, end=2}", "f32[2,1,3]", {3, 4, 5, 9, 10, 11});
}

TEST(ReferenceShapeOpsTest, Concat) {
  ExpectOp("concat", {kX, {"f32[2,1]", {7, 8}}, {"f32[2,2]", {9, 10, 11, 12}}}, "{axis=1}",
           "f32[2,6]", {1, 2, 3, 7, 9, 10, 4, 5, 6, 8, 11, 12});
  ExpectOp("concat", {kX, {"f32[1,3]", {7, 8, 9}}}, "{axis=0}", "f32[3,3]",
           {1, 2, 3, 4, 5, 6, 7, 8, 9});
}

TEST(ReferenceShapeOpsTest, Take) {
  ExpectOp("take", {kX, {"i32[3]", {1, 1, 0}}}, "", "f32[3,3]", {4, 5, 6, 4, 5, 6, 1, 2, 3});
  ExpectOp("take", {{"f32[3]", {7, 8, 9}}, {"i32[2]", {2, 0}}}, "", "f32[2]", {9, 7});
  for (double row : {-1.0, 2.0}) {
    const auto got = OneOp("take", {kX, {"i32[1]", {row}}}, "", "f32[1,3]");
    EXPECT_EQ(got.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(got.status().message()), HasSubstr("of a table of 2"));
  }
}

TEST(ReferenceShapeOpsTest, ExpandHeads) {
  // Two rows of two heads of one element.
  const Operand x = {"f32[2,2,1]", {1, 2, 3, 4}};
  ExpectOp("expand_heads", {x}, "{group=3}", "f32[2,6,1]", {1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4});
  ExpectOp("expand_heads", {x}, "{group=3, order=tile}", "f32[2,6,1]",
           {1, 2, 1, 2, 1, 2, 3, 4, 3, 4, 3, 4});
}

}  // namespace
}  // namespace quire::testing
