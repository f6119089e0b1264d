#include "tests/near.h"

#include <limits>

#include "gmock/gmock.h"

namespace quire::testing {
namespace {

using ::testing::HasSubstr;

const reference::Tensor kWant = {{2, 3}, {1, 2, 3, 4, 5, 6}};

TEST(NearTest, TheBoundGrowsWithTermsMagnitudeAndStorage) {
  EXPECT_DOUBLE_EQ((Tolerance{.terms = 1, .magnitude = 3, .stores = 0}.Bound()),
                   3 * 0x1p-24 / (1 - 0x1p-24));
  EXPECT_DOUBLE_EQ((Tolerance{.terms = 4096, .magnitude = 1, .stores = 0}.Bound()),
                   0x1p-12 / (1 - 0x1p-12));
  EXPECT_DOUBLE_EQ(
      (Tolerance{.terms = 0, .magnitude = 2, .storage = DType::kBF16, .stores = 3}.Bound()),
      6 * 0x1p-8);
}

TEST(NearTest, NamesTheFirstAndTheWorstElement) {
  const Tolerance tolerance = {.terms = 16, .magnitude = 6};
  std::vector<float> got = {1, 2, 3, 4, 5, 6};
  EXPECT_TRUE(IsNear(got, kWant, tolerance));
  got[4] = 5 + static_cast<float>(tolerance.Bound() / 2);
  EXPECT_TRUE(IsNear(got, kWant, tolerance));
  got[1] = 2.5f;
  got[5] = 16;
  const auto result = IsNear(got, kWant, tolerance);
  EXPECT_FALSE(result);
  EXPECT_THAT(result.message(), HasSubstr("2 of 6 elements"));
  EXPECT_THAT(result.message(), HasSubstr("first [0,1]: got 2.5, want 2"));
  EXPECT_THAT(result.message(), HasSubstr("worst [1,2]: got 16, want 6"));
}

TEST(NearTest, InfinitiesAndNaN) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  const reference::Tensor want = {{2}, {-kInf, 1}};
  EXPECT_TRUE(IsNear(std::vector<double>{-kInf, 1}, want, {}));
  EXPECT_FALSE(IsNear(std::vector<double>{kInf, 1}, want, {}));
  EXPECT_FALSE(IsNear(std::vector<double>{-1e300, 1}, want, {}));
  EXPECT_FALSE(IsNear(std::vector<double>{-kInf, std::nan("")}, want, {}));
  EXPECT_FALSE(IsNear(std::vector<double>{-kInf}, want, {}));
}

}  // namespace
}  // namespace quire::testing
