#include "tests/ir/one_op.h"
#include "tests/random_tensor.h"

namespace quire::testing {
namespace {

using ::testing::HasSubstr;

const Operand kTable = {"f32[3,2]", {1, 2, 3, 4, 5, 6}};

TEST(ReferenceProductsTest, Embed) {
  ExpectOp("embed", {kTable, {"i32[4]", {2, 0, 2, 1}}}, "", "f32[4,2]", {5, 6, 1, 2, 5, 6, 3, 4});
  ExpectOp("embed", {kTable, {"i32[2]", {0, -1}}}, "{offset=2}", "f32[2,2]", {5, 6, 3, 4});
}

TEST(ReferenceProductsTest, EmbedRefusesAnIdOutsideTheTable) {
  for (double id : {-1.0, 3.0, 2147483647.0}) {
    const auto got = OneOp("embed", {kTable, {"i32[1]", {id}}}, "", "f32[1,2]");
    EXPECT_EQ(got.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(got.status().message()), HasSubstr("of a table of 3"));
  }
  EXPECT_EQ(OneOp("embed", {kTable, {"i32[1]", {1}}}, "{offset=2}", "f32[1,2]").status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(ReferenceProductsTest, LinearMultipliesRowsOfTheWeight) {
  const Operand x = {"f32[2,3]", {1, 2, 3, 4, 5, 6}};
  const Operand w = {"f32[2,3]", {1, 10, 100, -1, 0, 2}};
  ExpectOp("linear", {x, w}, "", "f32[2,2]", {321, 5, 654, 8});
  ExpectOp("linear", {x, w, {"f32[2]", {0.5, -3}}}, "", "f32[2,2]", {321.5, 2, 654.5, 5});
  ExpectOp("linear", {{"f32[3]", {1, 2, 3}}, w}, "", "f32[2]", {321, 5});
}

// Longer than the unrolled part of the sum, and not a multiple of it.
TEST(ReferenceProductsTest, LinearSumsEveryTerm) {
  for (int64_t depth : {1, 7, 8, 9, 31}) {
    std::vector<double> x, w;
    double want = 0;
    for (int64_t k = 0; k < depth; ++k) {
      x.push_back(static_cast<double>(k + 1));
      w.push_back(static_cast<double>(3 * k - 5));
      want += x.back() * w.back();
    }
    ExpectOp("linear",
             {{absl::StrCat("f32[1,", depth, "]"), x}, {absl::StrCat("f32[1,", depth, "]"), w}}, "",
             "f32[1,1]", {want});
  }
}

TEST(ReferenceProductsTest, MatMulIsBatched) {
  const Operand a = {"f32[2,1,2]", {1, 2, 3, 4}};
  ExpectOp("matmul", {a, {"f32[2,2,3]", {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}}}, "", "f32[2,1,3]",
           {9, 12, 15, 61, 68, 75});
  ExpectOp("matmul", {a, {"f32[2,3,2]", {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}}},
           "{transpose_b=1}", "f32[2,1,3]", {5, 11, 17, 53, 67, 81});
  ExpectOp("matmul", {{"f32[2,2]", {1, 2, 3, 4}}, {"f32[2,2]", {5, 6, 7, 8}}}, "", "f32[2,2]",
           {19, 22, 43, 50});
}

TEST(ReferenceProductsTest, ProductsOverNothingAreZero) {
  ExpectOp("linear", {{"f32[2,0]", {}}, {"f32[1,0]", {}}}, "", "f32[2,1]", {0, 0});
  ExpectOp("matmul", {{"f32[2,0]", {}}, {"f32[0,1]", {}}}, "", "f32[2,1]", {0, 0});
  // No element, though an extent is far too long to count to.
  ExpectOp("rms_norm", {{"f32[1099511627776,0]", {}}}, "{eps=0}", "f32[1099511627776,0]", {});
}

}  // namespace
}  // namespace quire::testing
