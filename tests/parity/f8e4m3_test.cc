// Plans whose keys and values are of f8e4m3 on the CPU: bits beside other ways of cutting the same
// work, logits beside the definition within what the type costs, as the model passes errors on.
#include <algorithm>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/parity/fixture.h"
#include "tests/parity/fixture_runner.h"
#include "tools/verify_reference.h"

namespace quire {
namespace {

using testing::ChunksOf;
using testing::Fixture;
using testing::Loaded;
using testing::RunIds;

absl::StatusOr<Loaded> Load(const std::string& fixture, int page_tokens, int threads) {
  TargetRequest target;
  target.page_tokens = page_tokens;
  target.kv_dtype = DType::kF8E4M3;
  DeviceOptions options;
  options.threads = threads;
  return testing::LoadFixture(fixture, target, options);
}

class F8E4M3ParityTest : public ::testing::TestWithParam<const char*> {};

TEST_P(F8E4M3ParityTest, SameBitsHoweverTheWorkIsCut) {
  const absl::StatusOr<Fixture> fixture = testing::ReadFixture(GetParam());
  ASSERT_TRUE(fixture.ok()) << fixture.status();
  const auto whole = static_cast<int32_t>(fixture->ids.size());
  const absl::StatusOr<Loaded> one = Load(GetParam(), 16, 1);
  ASSERT_TRUE(one.ok()) << one.status();
  const absl::StatusOr<std::vector<float>> expected =
      RunIds(*one, *fixture, ChunksOf(*fixture, whole), 1);
  ASSERT_TRUE(expected.ok()) << expected.status();
  for (const int page_tokens : {16, 3}) {
    const absl::StatusOr<Loaded> two = Load(GetParam(), page_tokens, 2);
    ASSERT_TRUE(two.ok()) << two.status();
    for (const int32_t chunk : {1, 7}) {
      const absl::StatusOr<std::vector<float>> logits =
          RunIds(*two, *fixture, ChunksOf(*fixture, chunk), 3);
      ASSERT_TRUE(logits.ok()) << logits.status();
      EXPECT_TRUE(*logits == *expected) << "pages of " << page_tokens << ", chunks of " << chunk;
    }
  }
}

// Attention's part of what is allowed is that of numbers of four bits (tools/verify_reference.h).
TEST_P(F8E4M3ParityTest, IsAsNearTheDefinitionAsItsNumbersAllow) {
  const absl::StatusOr<Fixture> fixture = testing::ReadFixture(GetParam());
  ASSERT_TRUE(fixture.ok()) << fixture.status();
  const absl::StatusOr<Loaded> loaded = Load(GetParam(), 16, 2);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const absl::StatusOr<std::vector<float>> logits =
      RunIds(*loaded, *fixture, testing::PromptThenTokens(*fixture), 1);
  ASSERT_TRUE(logits.ok()) << logits.status();
  const auto reference =
      ComputeReference(loaded->plan->plan(), *loaded->target, "", testing::FixturePath(GetParam()),
                       {fixture->ids, fixture->source, fixture->states});
  ASSERT_TRUE(reference.ok()) << reference.status();
  const auto V = static_cast<size_t>(fixture->vocab_size);
  double nearest = 0;
  for (size_t t = 0; t < fixture->ids.size(); ++t) {
    const double error = RelativeError({logits->data() + t * V, V},
                                       {reference->logits.row(static_cast<int64_t>(t)), V});
    EXPECT_LE(error, reference->allowed[t]) << "row " << t;
    nearest = std::max(nearest, error / reference->allowed[t]);
  }
  // And not much nearer: the cache is what was asked for.
  EXPECT_GT(nearest, 1.0 / 30);
}

INSTANTIATE_TEST_SUITE_P(All, F8E4M3ParityTest,
                         ::testing::Values("llama_gqa_tied", "mistral_window", "bloom", "bart",
                                           "mllama"),
                         [](const auto& fixture) { return std::string(fixture.param); });

}  // namespace
}  // namespace quire
