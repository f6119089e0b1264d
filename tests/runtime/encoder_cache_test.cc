#include "runtime/encoder_cache.h"

#include <limits>
#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/runtime/fake_program.h"

namespace quire {
namespace {

using ::testing::ElementsAre;
using testing::FakePool;

TEST(EncoderCacheTest, EqualInputsShareAnEntryUntilTheLastLeaves) {
  FakePool pool(6, 4);
  EncoderCache cache(&pool, 4);
  const std::vector<int32_t> ids = {1, 2, 3, 4, 5};
  EXPECT_EQ(cache.PagesToAcquire(ids), 2);
  const auto first = cache.Acquire(ids);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_FALSE(cache.encoded(*first));
  cache.set_encoded(*first);
  EXPECT_EQ(cache.PagesToAcquire(ids), 0);
  const auto second = cache.Acquire(ids);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(*second, *first);
  EXPECT_TRUE(cache.encoded(*second));
  EXPECT_EQ(cache.available_pages(), 4);
  EXPECT_THAT(cache.pages(*first), ElementsAre(0, 1));
  cache.Hold(*first);
  for (int i = 0; i < 2; ++i) cache.Release(*first);
  EXPECT_EQ(cache.available_pages(), 4);
  EXPECT_TRUE(cache.Verify().ok()) << cache.Verify();
  cache.Release(*first);
  EXPECT_EQ(cache.available_pages(), 6);
  EXPECT_EQ(cache.PagesToAcquire(ids), 2);
  EXPECT_TRUE(cache.Verify().ok()) << cache.Verify();
  // The same input again is another entry, on which nothing ran.
  const auto again = cache.Acquire(ids);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_NE(*again, *first);
  EXPECT_FALSE(cache.encoded(*again));
}

// Images at 3 and 4 are a run, the one at 9 is another.
TEST(EncoderCacheTest, ARunOfImagesBeginsWithAPageOfItsOwn) {
  const auto states = std::make_shared<const std::vector<float>>(2 * 12);
  const EncoderInput input(states, 2, {{3, 4}, {4, 1}, {9, 7}});
  EXPECT_EQ(input.tokens(), 12);
  EXPECT_THAT(input.Runs(), ElementsAre(5, 7));
  const auto sight = [&](int32_t position) {
    const EncoderInput::Sight seen = input.SightAt(position);
    return std::vector<int32_t>{static_cast<int32_t>(seen.run), seen.tokens, seen.end};
  };
  constexpr int32_t kNever = std::numeric_limits<int32_t>::max();
  EXPECT_THAT(sight(0), ElementsAre(0, 0, 3));
  EXPECT_THAT(sight(3), ElementsAre(0, 4, 4));
  EXPECT_THAT(sight(4), ElementsAre(0, 5, 9));
  EXPECT_THAT(sight(8), ElementsAre(0, 5, 9));
  EXPECT_THAT(sight(9), ElementsAre(1, 7, kNever));
  const EncoderInput all(states, 2);
  EXPECT_THAT(all.Runs(), ElementsAre(12));
  EXPECT_EQ(all.SightAt(0).tokens, 12);
  EXPECT_EQ(all.SightAt(0).end, kNever);

  FakePool pool(9, 4);
  EncoderCache cache(&pool, 4);
  EXPECT_EQ(cache.PagesToAcquire(input), 4);
  const auto entry = cache.Acquire(input);
  ASSERT_TRUE(entry.ok()) << entry.status();
  EXPECT_THAT(cache.pages(*entry, 0), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(cache.pages(*entry, 1), ElementsAre(2, 3));
  // The same states, seen by other rows, are another input.
  EXPECT_EQ(cache.PagesToAcquire(all), 3);
  EXPECT_TRUE(cache.Verify().ok()) << cache.Verify();
}

TEST(EncoderCacheTest, OtherInputsHaveOtherPages) {
  FakePool pool(3, 4);
  EncoderCache cache(&pool, 4);
  const auto one = cache.Acquire({1, 2});
  const auto other = cache.Acquire({1, 2, 3});
  ASSERT_TRUE(one.ok() && other.ok());
  EXPECT_NE(*one, *other);
  EXPECT_THAT(cache.pages(*one), ElementsAre(0));
  EXPECT_THAT(cache.pages(*other), ElementsAre(1));
  EXPECT_EQ(cache.Acquire({1, 2, 3, 4, 5}).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(cache.available_pages(), 1);
  EXPECT_TRUE(cache.Verify().ok()) << cache.Verify();
}

}  // namespace
}  // namespace quire
