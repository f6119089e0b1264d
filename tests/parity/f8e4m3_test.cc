// Plans whose keys and values are of f8e4m3, on the CPU and where there is a GPU: bits beside other
// ways of cutting the same work, logits beside the definition within what the type costs, as the
// model passes errors on.
#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/cuda/driver.h"
#include "tests/parity/fixture.h"
#include "tests/parity/fixture_runner.h"
#include "tools/verify_reference.h"

namespace quire {
namespace {

using testing::ChunksOf;
using testing::Fixture;
using testing::Loaded;
using testing::RunIds;

// By device and fixture.
class F8E4M3ParityTest : public ::testing::TestWithParam<std::tuple<const char*, const char*>> {
 protected:
  void SetUp() override {
    const absl::Status driver = CudaDriver::Get().status();
    if (device() == "cuda" && !driver.ok()) GTEST_SKIP() << driver;
  }
  static std::string device() { return std::get<0>(GetParam()); }
  static std::string name() { return std::get<1>(GetParam()); }

  static absl::StatusOr<Loaded> Load(const Fixture& fixture, int page_tokens, int threads) {
    static const testing::PlanPath& cache = *new testing::PlanPath;
    TargetRequest target;
    target.name = device();
    target.page_tokens = page_tokens;
    target.kv_dtype = DType::kF8E4M3;
    DeviceOptions options;
    options.threads = threads;
    if (target.name == "cuda") {
      const bool has_encoder = !fixture.source.empty() || !fixture.states.empty();
      target.activation = has_encoder ? DType::kF16 : DType::kBF16;
      options.kernel_cache_dir = cache.path();
    }
    return testing::LoadFixture(name(), target, options);
  }
};

TEST_P(F8E4M3ParityTest, SameBitsHoweverTheWorkIsCut) {
  const absl::StatusOr<Fixture> fixture = testing::ReadFixture(name());
  ASSERT_TRUE(fixture.ok()) << fixture.status();
  const auto whole = static_cast<int32_t>(fixture->ids.size());
  const absl::StatusOr<Loaded> one = Load(*fixture, 16, 1);
  ASSERT_TRUE(one.ok()) << one.status();
  const absl::StatusOr<std::vector<float>> expected =
      RunIds(*one, *fixture, ChunksOf(*fixture, whole), 1);
  ASSERT_TRUE(expected.ok()) << expected.status();
  for (const int page_tokens : {16, 3}) {
    const absl::StatusOr<Loaded> two = Load(*fixture, page_tokens, 2);
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
  const absl::StatusOr<Fixture> fixture = testing::ReadFixture(name());
  ASSERT_TRUE(fixture.ok()) << fixture.status();
  const absl::StatusOr<Loaded> loaded = Load(*fixture, 16, 2);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const absl::StatusOr<std::vector<float>> logits =
      RunIds(*loaded, *fixture, testing::PromptThenTokens(*fixture), 1);
  ASSERT_TRUE(logits.ok()) << logits.status();
  const auto reference =
      ComputeReference(loaded->plan->plan(), *loaded->target, "", testing::FixturePath(name()),
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

std::string NameOf(const ::testing::TestParamInfo<F8E4M3ParityTest::ParamType>& test) {
  return std::get<1>(test.param);
}
INSTANTIATE_TEST_SUITE_P(Cpu, F8E4M3ParityTest,
                         ::testing::Combine(::testing::Values("cpu"),
                                            ::testing::Values("llama_gqa_tied", "mistral_window",
                                                              "bloom", "bart", "mllama")),
                         NameOf);
// Heads are of multiples of 16 there.
INSTANTIATE_TEST_SUITE_P(Cuda, F8E4M3ParityTest,
                         ::testing::Combine(::testing::Values("cuda"),
                                            ::testing::Values("llama_gqa_tied", "mistral_window",
                                                              "qwen3", "gemma3", "gemma3_scaled",
                                                              "fp8_qwen3_rows")),
                         NameOf);

}  // namespace
}  // namespace quire
