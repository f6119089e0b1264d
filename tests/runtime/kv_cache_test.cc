#include "runtime/kv_cache.h"

#include <map>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/status.h"

namespace quire {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A pool whose pages hold token ids, so that a test can see what a device would read.
class IdPool : public PagePool {
 public:
  IdPool(int32_t pages, int32_t page_tokens)
      : pages_(static_cast<size_t>(pages), std::vector<int32_t>(page_tokens, -1)) {}
  int32_t page_count() const override { return static_cast<int32_t>(pages_.size()); }
  int64_t page_bytes() const override { return 4; }
  absl::Status CopyPage(int32_t from, int32_t to) override {
    if (fail_copies) return absl::InternalError("copy");
    pages_[to] = pages_[from];
    return absl::OkStatus();
  }
  int32_t& At(int32_t page, int32_t token) { return pages_[page][token]; }
  bool fail_copies = false;

 private:
  std::vector<std::vector<int32_t>> pages_;
};

// A cache together with the device's part of a step.
class Rig {
 public:
  Rig(int32_t pages, int32_t page_tokens) : pool(pages, page_tokens), cache(&pool, page_tokens) {}

  absl::Status Append(KvCache::SequenceId sequence, const std::vector<int32_t>& ids) {
    const int32_t before = cache.tokens(sequence);
    QUIRE_RETURN_IF_ERROR(cache.Extend(sequence, static_cast<int32_t>(ids.size())));
    for (size_t i = 0; i < ids.size(); ++i) {
      const int32_t at = before + static_cast<int32_t>(i);
      pool.At(cache.pages(sequence)[at / cache.page_tokens()], at % cache.page_tokens()) = ids[i];
    }
    return cache.Commit(sequence, ids);
  }

  std::vector<int32_t> Read(KvCache::SequenceId sequence) {
    std::vector<int32_t> ids;
    for (int32_t at = 0; at < cache.tokens(sequence); ++at) {
      ids.push_back(
          pool.At(cache.pages(sequence)[at / cache.page_tokens()], at % cache.page_tokens()));
    }
    return ids;
  }

  IdPool pool;
  KvCache cache;
};

TEST(KvCacheTest, GrowsByPages) {
  Rig rig(4, 3);
  const auto a = rig.cache.Create();
  ASSERT_TRUE(rig.Append(a, {1, 2}).ok());
  EXPECT_EQ(rig.cache.pages(a).size(), 1u);
  ASSERT_TRUE(rig.Append(a, {3, 4, 5, 6, 7}).ok());
  EXPECT_EQ(rig.cache.pages(a).size(), 3u);
  EXPECT_EQ(rig.cache.available_pages(), 1);
  EXPECT_THAT(rig.Read(a), ElementsAre(1, 2, 3, 4, 5, 6, 7));
  EXPECT_TRUE(rig.cache.Verify().ok());
}

TEST(KvCacheTest, ExhaustionChangesNothing) {
  Rig rig(2, 4);
  const auto a = rig.cache.Create();
  ASSERT_TRUE(rig.Append(a, {1, 2, 3}).ok());
  EXPECT_EQ(rig.cache.PagesToExtend(a, 6), 2);
  const absl::Status status = rig.cache.Extend(a, 6);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("2 pages are needed, 1 of 2 are free"));
  EXPECT_EQ(rig.cache.tokens(a), 3);
  EXPECT_EQ(rig.cache.available_pages(), 1);
  EXPECT_TRUE(rig.Append(a, {4, 5, 6, 7, 8}).ok());
}

TEST(KvCacheTest, ForkSharesPagesUntilOneWrites) {
  Rig rig(8, 4);
  const auto a = rig.cache.Create();
  ASSERT_TRUE(rig.Append(a, {1, 2, 3, 4, 5, 6}).ok());
  auto b = rig.cache.Fork(a);
  ASSERT_TRUE(b.ok());
  EXPECT_EQ(rig.cache.pages(a), rig.cache.pages(*b));
  EXPECT_EQ(rig.cache.available_pages(), 6);
  EXPECT_EQ(rig.cache.PagesToExtend(*b, 1), 1);
  ASSERT_TRUE(rig.Append(*b, {70}).ok());
  EXPECT_EQ(rig.cache.copied_pages(), 1);
  // The last to write owns its page alone by now and copies nothing.
  ASSERT_TRUE(rig.Append(a, {7}).ok());
  EXPECT_EQ(rig.cache.copied_pages(), 1);
  EXPECT_EQ(rig.cache.pages(a)[0], rig.cache.pages(*b)[0]);
  EXPECT_THAT(rig.Read(a), ElementsAre(1, 2, 3, 4, 5, 6, 7));
  EXPECT_THAT(rig.Read(*b), ElementsAre(1, 2, 3, 4, 5, 6, 70));
  ASSERT_TRUE(rig.cache.Release(a).ok());
  EXPECT_THAT(rig.Read(*b), ElementsAre(1, 2, 3, 4, 5, 6, 70));
  EXPECT_TRUE(rig.cache.Verify().ok());
}

TEST(KvCacheTest, FailedCopyChangesNothing) {
  Rig rig(4, 4);
  const auto a = rig.cache.Create();
  ASSERT_TRUE(rig.Append(a, {1, 2}).ok());
  const auto b = rig.cache.Fork(a);
  rig.pool.fail_copies = true;
  EXPECT_EQ(rig.cache.Extend(*b, 1).code(), absl::StatusCode::kInternal);
  EXPECT_EQ(rig.cache.tokens(*b), 2);
  EXPECT_TRUE(rig.cache.Verify().ok());
}

TEST(KvCacheTest, FindsFullPagesOfReleasedAndLiveSequences) {
  Rig rig(8, 2);
  const auto a = rig.cache.Create();
  ASSERT_TRUE(rig.Append(a, {1, 2, 3, 4, 5}).ok());
  const auto b = rig.cache.CreateWithPrefix({1, 2, 3, 4, 6, 7});
  EXPECT_EQ(rig.cache.tokens(b), 4);
  EXPECT_THAT(rig.Read(b), ElementsAre(1, 2, 3, 4));
  ASSERT_TRUE(rig.cache.Release(a).ok());
  ASSERT_TRUE(rig.cache.Release(b).ok());
  EXPECT_EQ(rig.cache.kept_pages(), 2);
  EXPECT_EQ(rig.cache.available_pages(), 8);
  // Not all of the ids: the last one has to be computed.
  const auto c = rig.cache.CreateWithPrefix({1, 2, 3, 4});
  EXPECT_EQ(rig.cache.tokens(c), 2);
  // The second page's tokens alone are not its prefix.
  const auto d = rig.cache.CreateWithPrefix({3, 4, 5});
  EXPECT_EQ(rig.cache.tokens(d), 0);
  EXPECT_EQ(rig.cache.reused_tokens(), 6);
  EXPECT_TRUE(rig.cache.Verify().ok());
}

TEST(KvCacheTest, KeptPagesAreReusedFromTheEndOfAPrefix) {
  Rig rig(3, 2);
  const auto a = rig.cache.Create();
  ASSERT_TRUE(rig.Append(a, {1, 2, 3, 4, 5, 6}).ok());
  ASSERT_TRUE(rig.cache.Release(a).ok());
  const auto b = rig.cache.Create();
  ASSERT_TRUE(rig.Append(b, {9}).ok());
  const auto c = rig.cache.CreateWithPrefix({1, 2, 3, 4, 5, 6, 7});
  EXPECT_EQ(rig.cache.tokens(c), 4);
}

TEST(KvCacheTest, UnknownSequencesAreErrors) {
  Rig rig(2, 2);
  EXPECT_EQ(rig.cache.Extend(7, 1).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(rig.cache.Fork(7).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(rig.cache.Release(7).code(), absl::StatusCode::kInvalidArgument);
  const auto a = rig.cache.Create();
  EXPECT_EQ(rig.cache.Commit(a, {1}).code(), absl::StatusCode::kInvalidArgument);
}

// Random operations, compared with a map from sequence to the ids that were appended.
void RunAgainstMap(uint32_t seed, int32_t pages, int32_t page_tokens, int32_t id_range) {
  std::mt19937 random(seed);
  const auto draw = [&](int32_t bound) {
    return static_cast<int32_t>(random() % static_cast<uint32_t>(bound));
  };
  const auto draw_ids = [&](int32_t count) {
    std::vector<int32_t> ids(static_cast<size_t>(count));
    for (int32_t& id : ids) id = draw(id_range);
    return ids;
  };
  Rig rig(pages, page_tokens);
  std::map<KvCache::SequenceId, std::vector<int32_t>> model;
  const auto any = [&] {
    return std::next(model.begin(), draw(static_cast<int32_t>(model.size())));
  };
  int exhausted = 0;
  for (int i = 0; i < 4000; ++i) {
    const int32_t action = model.empty() ? 0 : draw(10);
    if (action == 0) {
      const std::vector<int32_t> ids = draw_ids(1 + draw(6 * page_tokens));
      const KvCache::Prefix prefix = rig.cache.FindPrefix(ids);
      const int32_t available = rig.cache.available_pages();
      const auto sequence = rig.cache.CreateWithPrefix(ids);
      ASSERT_EQ(rig.cache.tokens(sequence), prefix.tokens);
      ASSERT_EQ(rig.cache.available_pages(), available - prefix.kept_pages);
      model[sequence] = {ids.begin(), ids.begin() + rig.cache.tokens(sequence)};
      ASSERT_LT(rig.cache.tokens(sequence), static_cast<int32_t>(ids.size()));
    } else if (action == 1) {
      auto from = any();
      const auto fork = rig.cache.Fork(from->first);
      ASSERT_TRUE(fork.ok());
      model[*fork] = from->second;
    } else if (action == 2) {
      auto gone = any();
      ASSERT_TRUE(rig.cache.Release(gone->first).ok());
      model.erase(gone);
    } else {
      auto grown = any();
      const std::vector<int32_t> ids = draw_ids(draw(2 * page_tokens + 2));
      const int32_t needed =
          rig.cache.PagesToExtend(grown->first, static_cast<int32_t>(ids.size()));
      const bool fits = needed <= rig.cache.available_pages();
      const absl::Status status = rig.Append(grown->first, ids);
      ASSERT_EQ(status.ok(), fits) << status;
      if (fits) {
        grown->second.insert(grown->second.end(), ids.begin(), ids.end());
      } else {
        ASSERT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
        ++exhausted;
      }
    }
    ASSERT_TRUE(rig.cache.Verify().ok()) << rig.cache.Verify();
    for (const auto& [sequence, ids] : model) ASSERT_EQ(rig.Read(sequence), ids);
  }
  EXPECT_GT(exhausted, 0);
  EXPECT_GT(rig.cache.copied_pages(), 0);
  EXPECT_GT(rig.cache.reused_tokens(), 0);
  for (const auto& [sequence, ids] : model) ASSERT_TRUE(rig.cache.Release(sequence).ok());
  EXPECT_EQ(rig.cache.available_pages(), pages);
}

TEST(KvCacheTest, AgreesWithAMap) {
  RunAgainstMap(1, 40, 4, 2);
  RunAgainstMap(2, 24, 2, 3);
  RunAgainstMap(3, 64, 7, 1);
}

TEST(KvCacheTest, AgreesWithAMapAtOneTokenPages) {
  // One-token pages are never partly full, so nothing is ever copied.
  Rig rig(6, 1);
  const auto a = rig.cache.Create();
  ASSERT_TRUE(rig.Append(a, {1, 2}).ok());
  const auto b = rig.cache.Fork(a);
  ASSERT_TRUE(rig.Append(*b, {3}).ok());
  ASSERT_TRUE(rig.Append(a, {4}).ok());
  EXPECT_EQ(rig.cache.copied_pages(), 0);
  EXPECT_THAT(rig.Read(*b), ElementsAre(1, 2, 3));
  EXPECT_THAT(rig.Read(a), ElementsAre(1, 2, 4));
}

}  // namespace
}  // namespace quire
