#include <cmath>
#include <fstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "tests/ir/one_op.h"
#include "tests/testdata.h"

namespace quire::testing {
namespace {

using ::testing::HasSubstr;

TEST(ReferenceRopeTest, RotatesPairsOfHalves) {
  // theta 100 and 4 dims: frequencies 1 and 0.1. Two rows, at positions 0 and 2, of one head.
  const double c0 = std::cos(2.0), s0 = std::sin(2.0), c1 = std::cos(0.2), s1 = std::sin(0.2);
  ExpectOp("rope", {{"f32[2,1,4]", {1, 2, 3, 4, 1, 2, 3, 4}}, {"i32[2]", {0, 2}}}, "{theta=100}",
           "f32[2,1,4]", {1, 2, 3, 4, c0 - 3 * s0, 2 * c1 - 4 * s1, 3 * c0 + s0, 4 * c1 + 2 * s1});
}

TEST(ReferenceRopeTest, RotatesNeighboursWhenInterleaved) {
  const double c0 = std::cos(2.0), s0 = std::sin(2.0), c1 = std::cos(0.2), s1 = std::sin(0.2);
  ExpectOp("rope", {{"f32[1,1,4]", {1, 2, 3, 4}}, {"i32[1]", {2}}}, "{theta=100, style=interleave}",
           "f32[1,1,4]", {c0 - 2 * s0, 2 * c0 + s0, 3 * c1 - 4 * s1, 4 * c1 + 3 * s1});
}

TEST(ReferenceRopeTest, LeavesElementsPastDimsAlone) {
  const double c = std::cos(3.0), s = std::sin(3.0);
  // Two heads, both at the row's position; magnitude scales what is rotated only.
  ExpectOp("rope", {{"f32[1,2,3]", {1, 2, 7, 5, 6, 8}}, {"i32[1]", {3}}},
           "{theta=10000, dims=2, magnitude=2}", "f32[1,2,3]",
           {2 * (c - 2 * s), 2 * (2 * c + s), 7, 2 * (5 * c - 6 * s), 2 * (6 * c + 5 * s), 8});
}

TEST(ReferenceRopeTest, DividesByFactors) {
  const double c0 = std::cos(0.5), s0 = std::sin(0.5), c1 = std::cos(0.025), s1 = std::sin(0.025);
  ExpectOp("rope", {{"f32[1,1,4]", {1, 2, 3, 4}}, {"i32[1]", {1}}, {"f32[2]", {2, 4}}},
           "{theta=100}", "f32[1,1,4]",
           {c0 - 3 * s0, 2 * c1 - 4 * s1, 3 * c0 + s0, 4 * c1 + 2 * s1});
}

// A row's angle is its own: the same token at the same position rotates alike, whatever stands
// beside it in the step.
TEST(ReferenceRopeTest, DynamicScalingIsRowWise) {
  const char* attrs = "{theta=10000, scaling=dynamic, scale_factor=2, original_tokens=4}";
  const auto alone =
      OneOp("rope", {{"f32[1,1,4]", {1, 2, 3, 4}}, {"i32[1]", {7}}}, attrs, "f32[1,1,4]");
  const auto together = OneOp(
      "rope", {{"f32[2,1,4]", {1, 2, 3, 4, 1, 2, 3, 4}}, {"i32[2]", {7, 90}}}, attrs, "f32[2,1,4]");
  ASSERT_TRUE(alone.ok() && together.ok());
  EXPECT_EQ(*alone, std::vector<double>(together->begin(), together->begin() + 4));
  EXPECT_NE(*alone, std::vector<double>(together->begin() + 4, together->end()));
}

TEST(ReferenceRopeTest, RefusesScalingWithoutItsParameters) {
  const std::vector<Operand> operands = {{"f32[1,1,4]", {1, 2, 3, 4}}, {"i32[1]", {7}}};
  const std::pair<const char*, const char*> cases[] = {
      {"{theta=10000, scaling=dynamic}", "scaling=dynamic needs original_tokens"},
      {"{theta=10000, scaling=dynamic, dims=2, original_tokens=8}", "dims=2"},
      {"{theta=10000, scaling=llama3, original_tokens=8, low_factor=4}", "is not below"},
      {"{theta=1, scaling=yarn, original_tokens=8}", "theta over 1"},
  };
  for (const auto& [attrs, message] : cases) {
    const auto got = OneOp("rope", operands, attrs, "f32[1,1,4]");
    EXPECT_EQ(got.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(got.status().message()), HasSubstr(message));
  }
}

// Every line of the fixture: rotating (1, 0) in each pair gives the cosine and the sine of position
// times the recorded frequency, which is a float that some ten roundings led to.
TEST(ReferenceRopeTest, FrequenciesAreThoseOfTransformers) {
  std::ifstream file(TestData("ir/rope_fixture.txt"));
  int lines = 0;
  for (std::string line; std::getline(file, line); ++lines) {
    SCOPED_TRACE(line.substr(0, 120));
    const std::vector<std::string> fields = absl::StrSplit(line, " | ");
    ASSERT_EQ(fields.size(), 5u);
    int64_t head;
    double position, magnitude;
    ASSERT_TRUE(absl::SimpleAtoi(fields[0], &head) && absl::SimpleAtod(fields[2], &position) &&
                absl::SimpleAtod(fields[3], &magnitude));
    const std::vector<std::string> frequencies = absl::StrSplit(fields[4], ' ');
    const auto pairs = static_cast<size_t>(head / 2);
    ASSERT_EQ(frequencies.size(), pairs);
    const std::string type = absl::StrCat("f32[1,1,", head, "]");
    std::vector<double> x(static_cast<size_t>(head), 0);
    std::fill_n(x.begin(), pairs, 1);
    const auto got = OneOp("rope", {{type, x}, {"i32[1]", {position}}},
                           absl::StrCat("{", fields[1], ", magnitude=", fields[3], "}"), type);
    ASSERT_TRUE(got.ok()) << got.status();
    for (size_t i = 0; i < pairs; ++i) {
      double frequency;
      ASSERT_TRUE(absl::SimpleAtod(frequencies[i], &frequency));
      const double angle = position * frequency;
      const double bound = magnitude * (10 * 0x1p-24 * angle + 1e-15);
      EXPECT_NEAR((*got)[i], magnitude * std::cos(angle), bound) << "pair " << i;
      EXPECT_NEAR((*got)[i + pairs], magnitude * std::sin(angle), bound) << "pair " << i;
    }
  }
  EXPECT_EQ(lines, 29);
}

}  // namespace
}  // namespace quire::testing
