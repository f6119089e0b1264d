#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "gtest/gtest.h"
#include "runtime/tokenizer/word_cache.h"

namespace quire::tokenizer {
namespace {

// Far more words than slots, alike but for a few bytes at each place in turn: what is found is the
// word's own.
TEST(TokenizerWordCacheTest, FindsOnlyTheSameWord) {
  WordCache cache;
  const auto word = [](int place, int i) {
    std::string text(WordCache::kMaxWordBytes, 'x');
    return text.replace(static_cast<size_t>(place), 5, absl::StrFormat("%05d", i));
  };
  int found = 0;
  for (const int place : {0, 9, 18}) {
    for (int i = 0; i < 60000; ++i) {
      std::vector<int32_t> ids;
      ASSERT_FALSE(cache.Find(word(place, i), &ids)) << word(place, i);
      const int32_t id = place * 100000 + i;
      cache.Add(word(place, i), &id, 1);
      if (i > 0 && cache.Find(word(place, i - 1), &ids)) {
        ASSERT_EQ(ids, std::vector<int32_t>{id - 1});
        ++found;
      }
    }
  }
  EXPECT_GT(found, 170000);  // most words outlast the next
}

TEST(TokenizerWordCacheTest, KeepsOutWhatIsTooLong) {
  WordCache cache;
  const std::vector<int32_t> ids(WordCache::kMaxIds + 1, 7);
  std::vector<int32_t> found;
  cache.Add("abc", ids.data(), ids.size());
  EXPECT_FALSE(cache.Find("abc", &found));
  cache.Add(std::string(WordCache::kMaxWordBytes + 1, 'a'), ids.data(), 1);
  EXPECT_FALSE(cache.Find(std::string(WordCache::kMaxWordBytes + 1, 'a'), &found));
  cache.Add("abc", ids.data(), WordCache::kMaxIds);
  EXPECT_TRUE(cache.Find("abc", &found));
  EXPECT_EQ(found.size(), WordCache::kMaxIds);
  EXPECT_FALSE(cache.Find(std::string("abc\0", 4), &found));
}

}  // namespace
}  // namespace quire::tokenizer
