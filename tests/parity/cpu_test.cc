// The whole CPU path on every fixture: compiled to a plan file, opened, run step by step; logits
// beside transformers', and bits beside other ways of cutting the same work.
#include <algorithm>
#include <cmath>
#include <variant>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "codegen/spec.h"
#include "gtest/gtest.h"
#include "tests/parity/fixture.h"
#include "tests/parity/fixture_runner.h"

namespace quire {
namespace {

using testing::ChunksOf;
using testing::Encode;
using testing::Encoded;
using testing::Fixture;
using testing::Loaded;
using testing::PromptThenTokens;
using testing::RunIds;

struct LoadOptions {
  int page_tokens = 16;
  int threads = 1;
  DType kv_dtype = DType::kF32;
};

absl::StatusOr<Loaded> Load(const std::string& fixture, const LoadOptions& how) {
  TargetRequest target;
  target.page_tokens = how.page_tokens;
  target.kv_dtype = how.kv_dtype;
  DeviceOptions options;
  options.threads = how.threads;
  return testing::LoadFixture(fixture, target, options);
}

// Whether matrices are stored in blocks, whose products round activations to 8 bits.
bool HasBlocks(const Loaded& loaded) {
  return std::any_of(loaded.target->kernels.begin(), loaded.target->kernels.end(),
                     [](const auto& kernel) {
                       const absl::StatusOr<KernelSpec> spec = ParseSpec(kernel->spec);
                       const auto* linear = spec.ok() ? std::get_if<LinearSpec>(&*spec) : nullptr;
                       return linear != nullptr && IsIntegerBlockType(linear->weight);
                     });
}

// Whether linears read what is rounded to 8 bits as the checkpoint says.
bool Quantizes(const Loaded& loaded) {
  return std::any_of(
      loaded.target->kernels.begin(), loaded.target->kernels.end(),
      [](const auto& kernel) { return absl::StrContains(kernel->spec, "quantize"); });
}

// How far logits are from transformers': of all rows together, and of the worst row by its largest
// logit.
struct Errors {
  double root_mean_square = 0, worst_row = 0;
};

Errors Compare(const Fixture& fixture, const std::vector<float>& logits) {
  const auto V = static_cast<size_t>(fixture.vocab_size);
  Errors errors;
  double all_errors = 0, all_logits = 0;
  for (size_t i = 0; i < fixture.ids.size(); ++i) {
    double largest = 0, worst = 0;
    for (size_t v = 0; v < V; ++v) {
      const double expected = fixture.row(i)[v];
      const double error = logits[i * V + v] - expected;
      largest = std::max(largest, std::abs(expected));
      // Written so that NaN counts.
      if (!(std::abs(error) <= worst)) worst = std::isnan(error) ? INFINITY : std::abs(error);
      all_errors += error * error;
      all_logits += expected * expected;
    }
    errors.worst_row = std::max(errors.worst_row, worst / largest);
  }
  errors.root_mean_square = std::sqrt(all_errors / all_logits);
  return errors;
}

class CpuParityTest : public ::testing::TestWithParam<std::string> {};

TEST_P(CpuParityTest, EqualsTransformersAtPrefillAndEachStep) {
  const absl::StatusOr<Fixture> fixture = testing::ReadFixture(GetParam());
  ASSERT_TRUE(fixture.ok()) << fixture.status();
  for (const DType kv_dtype : {DType::kF32, DType::kBF16}) {
    // Decoders alone: how bf16 keys and values of an encoder add up was not looked into.
    const bool is_alone = fixture->source.empty() && fixture->states.empty();
    if (kv_dtype == DType::kBF16 && !is_alone) continue;
    const absl::StatusOr<Loaded> loaded = Load(GetParam(), {.threads = 2, .kv_dtype = kv_dtype});
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    const absl::StatusOr<std::vector<float>> logits =
        RunIds(*loaded, *fixture, PromptThenTokens(*fixture), 1);
    ASSERT_TRUE(logits.ok()) << logits.status();
    const Errors errors = Compare(*fixture, *logits);
    RecordProperty(kv_dtype == DType::kF32 ? "error_kv_f32" : "error_kv_bf16",
                   absl::StrCat(errors.worst_row));
    if (HasBlocks(*loaded)) {
      // Rounding a block of 32 normal numbers to steps of max / 127 leaves noise of about half a
      // per cent of their size. Some twenty products in a row add it up in quadrature, to 2.3%;
      // twice that is the bound. Keys and values in bf16 add 2^-9 each, a tenth of it.
      EXPECT_LE(errors.root_mean_square, 0.046) << DTypeText(kv_dtype);
    } else if (Quantizes(*loaded) && kv_dtype != DType::kF32) {
      // What differs at all from what transformers rounds may fall to another number. Those have
      // four bits: rounding is off by 2^-4 / sqrt(3), two of them by sqrt(2) of that, and the four
      // inputs of a layer's linears by twice that, in quadrature.
      EXPECT_LE(errors.root_mean_square, 0.102) << DTypeText(kv_dtype);
    } else {
      EXPECT_LE(errors.worst_row, kv_dtype == DType::kF32 ? 1e-4 : 2e-2) << DTypeText(kv_dtype);
    }
  }
}

TEST_P(CpuParityTest, SameBitsHoweverTheWorkIsCut) {
  const absl::StatusOr<Fixture> fixture = testing::ReadFixture(GetParam());
  ASSERT_TRUE(fixture.ok()) << fixture.status();
  const absl::StatusOr<Loaded> one = Load(GetParam(), {});
  ASSERT_TRUE(one.ok()) << one.status();
  const absl::StatusOr<std::vector<float>> expected =
      RunIds(*one, *fixture, PromptThenTokens(*fixture), 1);
  ASSERT_TRUE(expected.ok()) << expected.status();
  const auto whole = static_cast<int32_t>(fixture->ids.size());
  for (int page_tokens : {16, 3}) {
    const absl::StatusOr<Loaded> two = Load(GetParam(), {.page_tokens = page_tokens, .threads = 2});
    ASSERT_TRUE(two.ok()) << two.status();
    for (int32_t chunk : {1, 7, whole}) {
      // The first of five that look at states has none.
      for (int copies : {1, fixture->states.empty() ? 3 : 5}) {
        const absl::StatusOr<std::vector<float>> logits =
            RunIds(*two, *fixture, ChunksOf(*fixture, chunk), copies);
        ASSERT_TRUE(logits.ok()) << logits.status();
        EXPECT_TRUE(*logits == *expected) << "pages of " << page_tokens << ", chunks of " << chunk
                                          << ", " << copies << " sequences";
      }
    }
  }
}

TEST(CpuStepTest, RefusesToDecodeWithoutEncoderOutput) {
  const absl::StatusOr<Loaded> loaded = Load("bart", {});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_TRUE(loaded->program->reads_encoder());
  const absl::StatusOr<Fixture> fixture = testing::ReadFixture("bart");
  ASSERT_TRUE(fixture.ok()) << fixture.status();
  const absl::StatusOr<Encoded> encoded = Encode(*loaded, *fixture, 1);
  ASSERT_TRUE(encoded.ok()) << encoded.status();
  const absl::StatusOr<std::unique_ptr<PagePool>> pool = loaded->program->CreatePool(1);
  ASSERT_TRUE(pool.ok()) << pool.status();
  std::vector<float> logits(static_cast<size_t>(fixture->vocab_size));
  const std::vector<int32_t> ids = {1}, rows = {0}, pages = {0}, beyond = {7, 8};
  const auto run = [&](SequenceRows sequence, PagePool* encoder_pool) {
    const std::vector<SequenceRows> sequences = {sequence};
    return loaded->program
        ->Run({ids, rows, rows, sequences, encoder_pool}, **pool, absl::MakeSpan(logits))
        .code();
  };
  const SequenceRows without = {0, 1, 1, pages};
  SequenceRows with = without;
  with.encoder_tokens = encoded->tokens[0];
  with.encoder_pages = encoded->tables[0];
  EXPECT_EQ(run(with, encoded->pool.get()), absl::StatusCode::kOk);
  EXPECT_EQ(run(without, encoded->pool.get()), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(run(with, nullptr), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(run(with, pool->get()), absl::StatusCode::kInvalidArgument);
  with.encoder_pages = beyond;
  EXPECT_EQ(run(with, encoded->pool.get()), absl::StatusCode::kInvalidArgument);
}

TEST(CpuStepTest, AnEncoderSeesAnInputAsAWhole) {
  const absl::StatusOr<Loaded> loaded = Load("bart", {});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const absl::StatusOr<std::unique_ptr<PagePool>> pool = loaded->encoder->CreatePool(1);
  ASSERT_TRUE(pool.ok()) << pool.status();
  const std::vector<int32_t> ids = {1}, positions = {1}, pages = {0};
  const std::vector<SequenceRows> part = {{0, 1, 2, pages}};
  EXPECT_EQ(loaded->encoder->Run({ids, positions, {}, part}, **pool, {}).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(CpuStepTest, RefusesPositionsBeyondTheirTable) {
  const absl::StatusOr<Loaded> loaded = Load("gpt2", {});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const absl::StatusOr<std::unique_ptr<PagePool>> pool = loaded->program->CreatePool(1);
  ASSERT_TRUE(pool.ok()) << pool.status();
  const absl::StatusOr<Fixture> fixture = testing::ReadFixture("gpt2");
  ASSERT_TRUE(fixture.ok()) << fixture.status();
  std::vector<float> logits(static_cast<size_t>(fixture->vocab_size));
  const std::vector<int32_t> ids = {1}, rows = {0}, pages = {0};
  const std::vector<SequenceRows> sequences = {{0, 1, 1, pages}};
  for (int32_t position : {0, 1 << 20}) {
    const std::vector<int32_t> positions = {position};
    const absl::Status status =
        loaded->program->Run({ids, positions, rows, sequences}, **pool, absl::MakeSpan(logits));
    EXPECT_EQ(status.code(),
              position == 0 ? absl::StatusCode::kOk : absl::StatusCode::kInvalidArgument)
        << status;
  }
}

std::string NameOf(const ::testing::TestParamInfo<std::string>& fixture) { return fixture.param; }

INSTANTIATE_TEST_SUITE_P(Fixtures, CpuParityTest, ::testing::ValuesIn(testing::FixtureNames()),
                         NameOf);

}  // namespace
}  // namespace quire
