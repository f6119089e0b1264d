// Encoder-decoders on a GPU of host memory: encode into pages that step reads, beside transformers,
// and bits beside other ways of cutting the same work.
#include <cmath>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/file.h"
#include "ir/status.h"
#include "runtime/cuda/cuda_device.h"
#include "runtime/weights.h"
#include "tests/parity/fixture.h"
#include "tests/parity/fixture_runner.h"
#include "tests/runtime/cuda_plan.h"
#include "tests/runtime/fake_blas.h"
#include "tests/runtime/fake_gpu.h"
#include "tests/runtime/fake_kernels.h"
#include "tools/step_runner.h"
#include "tools/verify_launches.h"

namespace quire {
namespace {

using testing::CudaPlan;
using testing::FakeGpu;
using testing::FakeKernels;
using testing::Fixture;
using testing::Loaded;
using testing::RunIds;

struct Rig {
  explicit Rig(const CudaPlan& plan, bool eager = false) {
    gpu.arguments_of = testing::ArgumentsOf;
    gpu.on_launch = FakeKernels::Run;
    const absl::Status status = Load(plan, eager);
    EXPECT_TRUE(status.ok()) << status;
  }
  absl::Status Load(const CudaPlan& plan, bool eager) {
    DeviceOptions options;
    options.eager = eager;
    options.kernel_cache_dir = "none";
    options.jit = JitPolicy::kNever;
    QUIRE_ASSIGN_OR_RETURN(loaded.device,
                           CudaDevice::Create(gpu.driver(), options, &testing::FakeBlas::Open));
    loaded.target = &plan.target();
    for (const char* name : {"step", "encode"}) {
      auto& program = *name == 's' ? loaded.program : loaded.encoder;
      QUIRE_ASSIGN_OR_RETURN(program,
                             loaded.device->Load(plan.target(), name, *OpenWeights(plan.file())));
    }
    return absl::OkStatus();
  }

  FakeGpu gpu;
  Loaded loaded;
};

class CudaEncoderTest : public ::testing::TestWithParam<std::string> {};

TEST_P(CudaEncoderTest, EqualsTransformersHoweverTheWorkIsCutAndLeavesNothing) {
  const absl::StatusOr<Fixture> fixture = testing::ReadFixture(GetParam());
  ASSERT_TRUE(fixture.ok()) << fixture.status();
  const CudaPlan plan(GetParam(), 3, DType::kF16);
  ASSERT_NE(plan.file(), nullptr);
  absl::StatusOr<std::vector<float>> expected;
  {
    Rig eager(plan, /*eager=*/true);
    expected = RunIds(eager.loaded, *fixture, testing::PromptThenTokens(*fixture), 1);
    EXPECT_EQ(eager.gpu.graph_launches, 0);
  }
  ASSERT_TRUE(expected.ok()) << expected.status();
  double all_errors = 0, all_logits = 0;
  for (size_t i = 0; i < fixture->logits.size(); ++i) {
    const double error = (*expected)[i] - fixture->logits[i];
    all_errors += error * error;
    all_logits += fixture->logits[i] * fixture->logits[i];
  }
  // As where there is a GPU (tests/parity/cuda_test.cc).
  EXPECT_LE(std::sqrt(all_errors / all_logits), 0.01);
  Rig graphs(plan);
  const auto logits = RunIds(graphs.loaded, *fixture, testing::ChunksOf(*fixture, 7), 3);
  ASSERT_TRUE(logits.ok()) << logits.status();
  EXPECT_TRUE(*logits == *expected);
  EXPECT_GT(graphs.gpu.graph_launches, 0);
  graphs.loaded.encoder.reset();
  graphs.loaded.program.reset();
  graphs.loaded.device.reset();
  EXPECT_EQ(graphs.gpu.Living(), "");
}

// Each launch of encode and step beside the lowered program, on what the launches before it left;
// what encode leaves for step too.
TEST_P(CudaEncoderTest, EveryLaunchComputesWhatTheProgramSays) {
  const absl::StatusOr<Fixture> fixture = testing::ReadFixture(GetParam());
  ASSERT_TRUE(fixture.ok()) << fixture.status();
  const CudaPlan plan(GetParam(), 3, DType::kF16);
  ASSERT_NE(plan.file(), nullptr);
  Rig rig(plan);
  const TensorFiles files(plan.file()->plan(), FolderOf(plan.file()->path()), "");
  const auto verifier = LaunchVerifier::Create(plan.file()->plan(), plan.target(), files);
  ASSERT_TRUE(verifier.ok()) << verifier.status();
  auto runner = StepRunner::Create(
      rig.loaded.program.get(),
      {static_cast<int32_t>(fixture->vocab_size), plan.target().page_tokens, 1, 8,
       rig.loaded.encoder.get(), fixture->source, fixture->states, verifier->get()},
      1);
  ASSERT_TRUE(runner.ok()) << runner.status();
  const auto prompt = fixture->ids.begin() + 6;
  for (const auto& part : {std::vector<int32_t>(fixture->ids.begin(), prompt),
                           std::vector<int32_t>(prompt, prompt + 1)}) {
    const auto logits = runner->Append({part});
    ASSERT_TRUE(logits.ok()) << logits.status();
  }
  for (const auto& off : (*verifier)->different()) {
    ADD_FAILURE() << off.launch << ": " << off.different << " of " << off.elements << "; "
                  << off.where << " is " << off.got << ", not " << off.expected << ", allowed "
                  << off.allowed;
  }
  EXPECT_GT((*verifier)->launches(), 10);
}

std::vector<std::string> EncoderFixtures() {
  std::vector<std::string> names;
  for (const std::string& name : testing::FixtureNames()) {
    const auto fixture = testing::ReadFixture(name);
    if (fixture.ok() && (!fixture->source.empty() || !fixture->states.empty()))
      names.push_back(name);
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(Fixtures, CudaEncoderTest, ::testing::ValuesIn(EncoderFixtures()),
                         [](const auto& fixture) { return fixture.param; });

// A graph that was captured for one pool of encoder pages must not serve another.
TEST(CudaEncoderProgramTest, StepsFollowThePoolOfTheEncoder) {
  const Fixture fixture = *testing::ReadFixture("bart");
  const CudaPlan plan("bart");
  Rig rig(plan);
  const Loaded& loaded = rig.loaded;
  auto pool = loaded.program->CreatePool(1);
  ASSERT_TRUE(pool.ok()) << pool.status();
  const std::vector<int32_t> id = {3}, position = {0}, row = {0}, pages = {0};
  const auto step = [&](const testing::Encoded& encoded) {
    const std::vector<SequenceRows> sequences = {
        {0, 1, 1, pages, encoded.tokens.back(), encoded.tables.back()}};
    std::vector<float> logits(static_cast<size_t>(fixture.vocab_size));
    const absl::Status status = loaded.program->Run(
        {id, position, row, sequences, encoded.pool.get()}, **pool, absl::MakeSpan(logits));
    EXPECT_TRUE(status.ok()) << status;
    return logits;
  };
  const auto first = testing::Encode(loaded, fixture, 1),
             second = testing::Encode(loaded, fixture, 2);
  ASSERT_TRUE(first.ok()) << first.status();
  ASSERT_TRUE(second.ok()) << second.status();
  const std::vector<float> expected = step(*first);
  // The same source in other pages of another pool.
  EXPECT_TRUE(step(*second) == expected);
  EXPECT_TRUE(step(*first) == expected);
}

TEST(CudaEncoderProgramTest, WhatIsMissingOrOfAnotherProgramIsRefused) {
  const Fixture fixture = *testing::ReadFixture("t5");
  const CudaPlan plan("t5");
  Rig rig(plan);
  const Loaded& loaded = rig.loaded;
  EXPECT_TRUE(loaded.program->reads_encoder());
  EXPECT_FALSE(loaded.encoder->reads_encoder());
  EXPECT_FALSE(loaded.encoder->finds_greatest());
  auto own = loaded.program->CreatePool(2), cross = loaded.encoder->CreatePool(2);
  ASSERT_TRUE(own.ok() && cross.ok());
  const std::vector<int32_t> id = {3}, position = {0}, row = {0}, pages = {0};
  std::vector<float> logits(static_cast<size_t>(fixture.vocab_size));
  const auto run = [&](int32_t encoder_tokens, PagePool* encoder_pool) {
    const std::vector<SequenceRows> sequences = {{0, 1, 1, pages, encoder_tokens, pages}};
    return loaded.program
        ->Run({id, position, row, sequences, encoder_pool}, **own, absl::MakeSpan(logits))
        .code();
  };
  EXPECT_EQ(run(1, cross->get()), absl::StatusCode::kOk);
  EXPECT_EQ(run(0, cross->get()), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(run(1, nullptr), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(run(1, own->get()), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(run(9, cross->get()), absl::StatusCode::kInvalidArgument);
}

// The host prepares the next inputs while the device encodes, and overwrites nothing that it has
// not fetched.
TEST(CudaEncoderProgramTest, EncodeIsNotWaitedFor) {
  const CudaPlan plan("bart");
  Rig rig(plan);
  const Loaded& loaded = rig.loaded;
  auto own = loaded.program->CreatePool(1), cross = loaded.encoder->CreatePool(3);
  ASSERT_TRUE(own.ok() && cross.ok());
  const std::vector<int32_t> position = {0}, row = {0}, own_pages = {0};
  const std::vector<std::vector<int32_t>> pages = {{0}, {1}, {2}};
  const auto encode = [&](int32_t id, size_t table) {
    const std::vector<int32_t> ids = {id, id + 1};
    const std::vector<int32_t> positions = {0, 1};
    const std::vector<SequenceRows> whole = {{0, 2, 2, pages[table]}};
    const absl::Status status = loaded.encoder->Run({ids, positions, {}, whole}, **cross, {});
    EXPECT_TRUE(status.ok()) << status;
  };
  const auto step = [&](size_t table) {
    const std::vector<int32_t> id = {3};
    const std::vector<SequenceRows> one = {{0, 1, 1, own_pages, 2, pages[table]}};
    std::vector<float> logits(static_cast<size_t>(testing::ReadFixture("bart")->vocab_size));
    const absl::Status status =
        loaded.program->Run({id, position, row, one, cross->get()}, **own, absl::MakeSpan(logits));
    EXPECT_TRUE(status.ok()) << status;
    return logits;
  };
  encode(5, 0);
  const std::vector<float> expected = step(0);
  const size_t launches = rig.gpu.launches.size();
  encode(5, 1);
  EXPECT_EQ(rig.gpu.launches.size(), launches);
  encode(9, 2);
  EXPECT_TRUE(step(1) == expected);
  EXPECT_FALSE(step(2) == expected);
}

// The embedding, which both programs read, is in the device's memory once, and stays for either.
TEST(CudaEncoderProgramTest, ProgramsOfOneSourceShareTheirWeights) {
  const Fixture fixture = *testing::ReadFixture("t5");
  const CudaPlan plan("t5");
  const auto weights_of = [](const Program& program) {
    for (const MemoryUse& use : program.Memory()) {
      if (use.what == "weights") return use.bytes;
    }
    return int64_t{0};
  };
  std::vector<float> expected;
  int64_t step_bytes = 0, encode_bytes = 0;
  {
    Rig apart(plan);
    expected = *RunIds(apart.loaded, fixture, {1, 1, 1}, 1);
    step_bytes = weights_of(*apart.loaded.program);
    encode_bytes = weights_of(*apart.loaded.encoder);
  }
  Rig together(plan);
  const auto source = OpenWeights(plan.file());
  Loaded& loaded = together.loaded;
  loaded.program = *loaded.device->Load(plan.target(), "step", *source);
  loaded.encoder = *loaded.device->Load(plan.target(), "encode", *source);
  const int64_t table = fixture.vocab_size * 32 * 2;
  EXPECT_EQ(weights_of(*loaded.program), step_bytes);
  EXPECT_LE(weights_of(*loaded.encoder), encode_bytes - table);
  EXPECT_TRUE(*RunIds(loaded, fixture, {1, 1, 1}, 1) == expected);
  // What the encoder reads is the first program's, which may end before it.
  loaded.program = *loaded.device->Load(plan.target(), "step", *source);
  EXPECT_TRUE(*RunIds(loaded, fixture, {1, 1, 1}, 1) == expected);
  loaded.program.reset();
  loaded.encoder.reset();
  loaded.device.reset();
  EXPECT_EQ(together.gpu.Living(), "");
}

TEST(CudaEncoderProgramTest, ItsTableOfMemoryIsWhatItTook) {
  const CudaPlan plan("t5");
  Rig rig(plan);
  ASSERT_TRUE(rig.loaded.program->Reserve({100, 10, 10, 50}).ok());
  ASSERT_TRUE(rig.loaded.encoder->Reserve({100, 1, 10, 50}).ok());
  int64_t bytes = 0;
  for (const Program* program : {rig.loaded.program.get(), rig.loaded.encoder.get()}) {
    for (const MemoryUse& use : program->Memory()) bytes += use.bytes;
  }
  EXPECT_EQ(static_cast<size_t>(bytes), rig.gpu.used_bytes());
  // What was reserved is enough for inputs as a whole.
  const size_t before = rig.gpu.used_bytes();
  rig.gpu.on_launch = [](const testing::FakeLaunch&) {};
  auto pool = rig.loaded.encoder->CreatePool(50);
  ASSERT_TRUE(pool.ok()) << pool.status();
  const size_t pool_bytes = rig.gpu.used_bytes() - before;
  std::vector<int32_t> ids(100, 1), positions(100), table(34);
  std::iota(positions.begin(), positions.end(), 0);
  std::iota(table.begin(), table.end(), 0);
  const std::vector<SequenceRows> whole = {{0, 100, 100, table}};
  ASSERT_TRUE(rig.loaded.encoder->Run({ids, positions, {}, whole}, **pool, {}).ok());
  EXPECT_EQ(rig.gpu.used_bytes(), before + pool_bytes);
}

}  // namespace
}  // namespace quire
