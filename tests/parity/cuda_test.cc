// The whole CUDA path on every fixture, where there is a GPU: logits beside transformers' and bits
// beside other ways of cutting the same work.
#include <algorithm>
#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "runtime/cuda/driver.h"
#include "tests/parity/fixture_runner.h"

namespace quire {
namespace {

using testing::ChunksOf;
using testing::Fixture;
using testing::Loaded;
using testing::PromptThenTokens;
using testing::RunIds;

// With an encoder, f16: T5's attention, whose scores are not scaled, passes errors of its input on
// several times as large.
absl::StatusOr<Loaded> Load(const std::string& name, const Fixture& fixture, int page_tokens,
                            bool eager = false, bool portable = false) {
  static const testing::PlanPath& cache = *new testing::PlanPath;
  TargetRequest target;
  target.name = "cuda";
  target.page_tokens = page_tokens;
  const bool has_encoder = !fixture.source.empty() || !fixture.states.empty();
  target.activation = target.kv_dtype = has_encoder ? DType::kF16 : DType::kBF16;
  DeviceOptions options;
  options.eager = eager;
  options.portable = portable;
  // Kernels are built once for all tests of a fixture.
  options.kernel_cache_dir = cache.path();
  return testing::LoadFixture(name, target, options);
}

class CudaParityTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const absl::Status driver = CudaDriver::Get().status();
    if (!driver.ok()) GTEST_SKIP() << driver;
  }
};

// Values between kernels and weights are bf16: 2^-9 of each on average. Some forty of them follow
// each other in these models, whose errors add up in quadrature, to 1.2% of a row's deviation; a
// product of blocks is computed from the same weights as transformers computes it from.
TEST_P(CudaParityTest, EqualsTransformersAtPrefillAndEachStep) {
  const absl::StatusOr<Fixture> fixture = testing::ReadFixture(GetParam());
  ASSERT_TRUE(fixture.ok()) << fixture.status();
  const absl::StatusOr<Loaded> loaded = Load(GetParam(), *fixture, 16);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const absl::StatusOr<std::vector<float>> logits =
      RunIds(*loaded, *fixture, PromptThenTokens(*fixture), 1);
  ASSERT_TRUE(logits.ok()) << logits.status();
  const auto vocabulary = static_cast<size_t>(fixture->vocab_size);
  double all_errors = 0, all_logits = 0;
  for (size_t i = 0; i < fixture->ids.size(); ++i) {
    for (size_t v = 0; v < vocabulary; ++v) {
      const double expected = fixture->row(i)[v];
      const float got = (*logits)[i * vocabulary + v];
      ASSERT_TRUE(std::isfinite(got)) << "row " << i << ", logit " << v;
      all_errors += (got - expected) * (got - expected);
      all_logits += expected * expected;
    }
  }
  // Where linears round what they read to 8 bits, to numbers of four, what differs at all from what
  // transformers rounds may fall to another: off by 2^-4 / sqrt(3), two of them by sqrt(2) of that,
  // and the four inputs of a layer's linears by twice that.
  const bool quantizes =
      std::any_of(loaded->target->kernels.begin(), loaded->target->kernels.end(),
                  [](const auto& kernel) { return absl::StrContains(kernel->spec, "quantize"); });
  EXPECT_LE(std::sqrt(all_errors / all_logits), quantizes ? 0.102 : 0.02);
  RecordProperty("relative_error", absl::StrCat(std::sqrt(all_errors / all_logits)));
}

TEST_P(CudaParityTest, SameBitsHoweverTheWorkIsCut) {
  const absl::StatusOr<Fixture> fixture = testing::ReadFixture(GetParam());
  ASSERT_TRUE(fixture.ok()) << fixture.status();
  const absl::StatusOr<Loaded> eager = Load(GetParam(), *fixture, 16, /*eager=*/true);
  ASSERT_TRUE(eager.ok()) << eager.status();
  const absl::StatusOr<std::vector<float>> expected =
      RunIds(*eager, *fixture, PromptThenTokens(*fixture), 1);
  ASSERT_TRUE(expected.ok()) << expected.status();
  const auto whole = static_cast<int32_t>(fixture->ids.size());
  for (const int page_tokens : {16, 3}) {
    const absl::StatusOr<Loaded> graphs = Load(GetParam(), *fixture, page_tokens);
    ASSERT_TRUE(graphs.ok()) << graphs.status();
    for (const int32_t chunk : {1, 7, whole}) {
      for (const int copies : {1, 3, 40}) {
        const absl::StatusOr<std::vector<float>> logits =
            RunIds(*graphs, *fixture, ChunksOf(*fixture, chunk), copies);
        ASSERT_TRUE(logits.ok()) << logits.status();
        EXPECT_TRUE(*logits == *expected) << "pages of " << page_tokens << ", chunks of " << chunk
                                          << ", " << copies << " sequences";
      }
    }
  }
}

// The bodies of devices before sm_90, and from 512 rows on what a library multiplies for them.
TEST_P(CudaParityTest, PortableKernelsHaveTheSameBits) {
  const absl::StatusOr<Fixture> fixture = testing::ReadFixture(GetParam());
  ASSERT_TRUE(fixture.ok()) << fixture.status();
  const absl::StatusOr<Loaded> native = Load(GetParam(), *fixture, 16);
  ASSERT_TRUE(native.ok()) << native.status();
  for (const auto& kernel : native->target->kernels) {
    if (absl::StrContains(kernel->spec, " quantize=")) {
      GTEST_SKIP() << "sm_90 multiplies 8-bit floats in an arithmetic of its own";
    }
  }
  const auto whole = static_cast<int32_t>(fixture->ids.size());
  const absl::StatusOr<std::vector<float>> expected = RunIds(*native, *fixture, {whole}, 1);
  ASSERT_TRUE(expected.ok()) << expected.status();
  const absl::StatusOr<Loaded> portable =
      Load(GetParam(), *fixture, 16, /*eager=*/false, /*portable=*/true);
  ASSERT_TRUE(portable.ok()) << portable.status();
  for (const int rows : {1, 100, 512, 1024, 1300}) {
    const int copies = std::max(1, rows / whole);
    const absl::StatusOr<std::vector<float>> logits = RunIds(*portable, *fixture, {whole}, copies);
    ASSERT_TRUE(logits.ok()) << logits.status();
    EXPECT_TRUE(*logits == *expected) << copies << " sequences";
  }
  RecordProperty("linears_by_library", portable->program->Kernels().by_library);
}

std::string NameOf(const ::testing::TestParamInfo<std::string>& fixture) { return fixture.param; }

INSTANTIATE_TEST_SUITE_P(Fixtures, CudaParityTest, ::testing::ValuesIn(testing::FixtureNames()),
                         NameOf);

}  // namespace
}  // namespace quire
