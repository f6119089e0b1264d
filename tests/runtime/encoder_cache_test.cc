#include "runtime/encoder_cache.h"

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
