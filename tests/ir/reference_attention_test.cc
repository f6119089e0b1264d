#include <cmath>
#include <fstream>
#include <limits>

#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "tests/ir/one_op.h"
#include "tests/testdata.h"

namespace quire::testing {
namespace {

using ::testing::HasSubstr;

constexpr double kInf = std::numeric_limits<double>::infinity();

TEST(ReferenceAttentionTest, CausalMask) {
  const Operand square = {"f32[1,3,3]", {1, 2, 3, 4, 5, 6, 7, 8, 9}};
  ExpectOp("causal_mask", {square}, "", "f32[1,3,3]", {1, -kInf, -kInf, 4, 5, -kInf, 7, 8, 9});
  ExpectOp("causal_mask", {square}, "{window=2}", "f32[1,3,3]",
           {1, -kInf, -kInf, 4, 5, -kInf, -kInf, 8, 9});
  ExpectOp("causal_mask", {square}, "{window=1}", "f32[1,3,3]",
           {1, -kInf, -kInf, -kInf, 5, -kInf, -kInf, -kInf, 9});
}

TEST(ReferenceAttentionTest, RowsStandAtTheEndOfTheContext) {
  // Two rows over four keys stand at positions 2 and 3.
  const Operand scores = {"f32[1,2,4]", {1, 2, 3, 4, 5, 6, 7, 8}};
  ExpectOp("causal_mask", {scores}, "", "f32[1,2,4]", {1, 2, 3, -kInf, 5, 6, 7, 8});
  ExpectOp("causal_mask", {scores}, "{window=2}", "f32[1,2,4]",
           {-kInf, 2, 3, -kInf, -kInf, -kInf, 7, 8});
  ExpectOp("alibi", {scores}, "{alibi_max=1}", "f32[1,2,4]",
           {1 - 2 * 0.5, 2 - 0.5, 3, 4 + 0.5, 5 - 3 * 0.5, 6 - 2 * 0.5, 7 - 0.5, 8});
}

// Score 0 of the second of two rows against the key before it is minus the slope. The fixture has
// float32 powers of a float32 base: as many roundings as the exponent.
TEST(ReferenceAttentionTest, AlibiSlopesAreThoseOfBloom) {
  std::ifstream file(TestData("ir/alibi_fixture.txt"));
  int lines = 0;
  for (std::string line; std::getline(file, line); ++lines) {
    const std::vector<std::string> fields = absl::StrSplit(line, " | ");
    ASSERT_EQ(fields.size(), 2u);
    const std::vector<std::string> slopes = absl::StrSplit(fields[1], ' ');
    const std::string type = absl::StrCat("f32[", fields[0], ",2,2]");
    const auto got =
        OneOp("alibi", {{type, std::vector<double>(4 * slopes.size(), 0)}}, "{alibi_max=8}", type);
    ASSERT_TRUE(got.ok()) << got.status();
    for (size_t head = 0; head < slopes.size(); ++head) {
      double slope;
      ASSERT_TRUE(absl::SimpleAtod(slopes[head], &slope));
      const double roundings = static_cast<double>(slopes.size()) + 1;
      EXPECT_NEAR(-(*got)[4 * head + 2], slope, slope * roundings * 0x1p-24)
          << "head " << head << " of " << slopes.size();
      EXPECT_EQ((*got)[4 * head + 3], 0);
    }
  }
  EXPECT_EQ(lines, 11);
}

TEST(ReferenceAttentionTest, Softmax) {
  ExpectOp("softmax", {{"f32[2,3]", {1, 2, 3, 1003, 1002, 1001}}}, "", "f32[2,3]",
           {0.09003057317038046, 0.24472847105479764, 0.6652409557748218, 0.6652409557748218,
            0.24472847105479764, 0.09003057317038046});
  ExpectOp("softmax", {{"f32[2,2]", {-kInf, 5, -kInf, -kInf}}}, "", "f32[2,2]", {0, 1, 0, 0});
}

// Weights of two keys whose scores differ by `d`.
double First(double d) { return 1 / (1 + std::exp(-d)); }

TEST(ReferenceAttentionTest, AttentionWeighsValues) {
  // One row, one head of 2, two keys; scores 11 and -1, scaled by 0.25.
  const std::vector<Operand> operands = {
      {"f32[1,1,2]", {1, 2}}, {"f32[2,1,2]", {3, 4, 1, -1}}, {"f32[2,1,1]", {10, 20}}};
  const double p = First(0.25 * 12);
  ExpectOp("attention", operands, "{scale=0.25}", "f32[1,1,1]", {10 * p + 20 * (1 - p)});
  const double capped = First(2 * std::tanh(11 * 0.25 / 2) - 2 * std::tanh(-0.25 / 2));
  ExpectOp("attention", operands, "{scale=0.25, cap=2}", "f32[1,1,1]",
           {10 * capped + 20 * (1 - capped)});
  // The bias is added after the cap: slope 1/2, one key further back.
  const double biased = First(2 * std::tanh(11 * 0.25 / 2) - 2 * std::tanh(-0.25 / 2) - 0.5);
  ExpectOp("attention", operands, "{scale=0.25, cap=2, alibi_max=1}", "f32[1,1,1]",
           {10 * biased + 20 * (1 - biased)});
}

TEST(ReferenceAttentionTest, AttentionIsCausalFromTheEndOfTheContext) {
  // Keys that score 0, so that every visible one weighs the same. Two rows over three keys.
  const std::vector<Operand> operands = {
      {"f32[2,1,1]", {1, 1}}, {"f32[3,1,1]", {0, 0, 0}}, {"f32[3,1,1]", {1, 3, 11}}};
  ExpectOp("attention", operands, "{scale=1}", "f32[2,1,1]", {5, 5});
  ExpectOp("attention", operands, "{scale=1, mask=causal}", "f32[2,1,1]", {2, 5});
  ExpectOp("attention", operands, "{scale=1, mask=causal, window=2}", "f32[2,1,1]", {2, 7});
  ExpectOp("attention", operands, "{scale=1, mask=causal, window=1}", "f32[2,1,1]", {3, 11});
  const auto refused = OneOp("attention", operands, "{scale=1, window=1}", "f32[2,1,1]");
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("window needs mask=causal"));
}

TEST(ReferenceAttentionTest, QueryHeadsShareKvHeadsInGroups) {
  // Six query heads over two KV heads, one key each: the head's value is what comes out.
  ExpectOp("attention",
           {{"f32[1,6,1]", {1, 2, 3, 4, 5, 6}}, {"f32[1,2,1]", {1, 1}}, {"f32[1,2,1]", {7, 8}}},
           "{scale=1}", "f32[1,6,1]", {7, 7, 7, 8, 8, 8});
  // And which keys are scored: query head 1 reads KV head 0, query head 2 KV head 1.
  const double p0 = First(1), p1 = First(-2);
  ExpectOp(
      "attention",
      {{"f32[1,4,1]", {1, 1, 1, 1}}, {"f32[2,2,1]", {1, 0, 0, 2}}, {"f32[2,2,1]", {1, 1, 0, 0}}},
      "{scale=1}", "f32[1,4,1]", {p0, p0, p1, p1});
}

TEST(ReferenceAttentionTest, AlibiSlopesGoByQueryHead) {
  // Scores 0; slopes 2^-1 and 2^-2; the second of two rows.
  ExpectOp("attention", {{"f32[1,2,1]", {0, 0}}, {"f32[2,1,1]", {5, 5}}, {"f32[2,1,1]", {1, 0}}},
           "{scale=1, alibi_max=2}", "f32[1,2,1]", {First(-0.5), First(-0.25)});
}

TEST(ReferenceAttentionTest, ARowBeforeTheContextSeesNothing) {
  ExpectOp("attention", {{"f32[2,1,1]", {1, 1}}, {"f32[1,1,1]", {1}}, {"f32[1,1,1]", {9}}},
           "{scale=1, mask=causal}", "f32[2,1,1]", {0, 9});
}

// Four buckets up to a distance of 4: 0, 1, 2 and more; in both directions two for each.
TEST(RelativeBiasTest, AddsTheBucketOfTheDistance) {
  const std::vector<Operand> operands = {{"f32[1,2,3]", {0, 0, 0, 1, 1, 1}},
                                         {"f32[4,1]", {10, 20, 30, 40}}};
  // Queries stand at positions 1 and 2.
  ExpectOp("relative_bias", operands, "{max_distance=4, direction=back}", "f32[1,2,3]",
           {20, 10, 10, 31, 21, 11});
  ExpectOp("relative_bias", operands, "{max_distance=4, direction=both}", "f32[1,2,3]",
           {20, 10, 40, 21, 21, 11});
}

TEST(RelativeBiasTest, AttentionAddsItToo) {
  // One head; values tell which key was seen, and a bias of 1000 leaves no other.
  ExpectOp("attention",
           {{"f32[1,1,1]", {0}},
            {"f32[3,1,1]", {1, 1, 1}},
            {"f32[3,1,1]", {5, 6, 7}},
            {"f32[4,1]", {0, 1000, 0, 0}}},
           "{mask=causal, scale=1, max_distance=4, direction=back}", "f32[1,1,1]", {6});
}

}  // namespace
}  // namespace quire::testing
