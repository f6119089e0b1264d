// Products of a library in a step on a GPU of host memory: used where every bit is that of the
// kernel's own body, and only there.
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/cuda/cuda_device.h"
#include "runtime/weights.h"
#include "tests/parity/fixture.h"
#include "tests/parity/fixture_runner.h"
#include "tests/runtime/cuda_plan.h"
#include "tests/runtime/fake_blas.h"
#include "tests/runtime/fake_gpu.h"
#include "tests/runtime/fake_kernels.h"

namespace quire {
namespace {

using testing::CudaPlan;
using testing::FakeBlas;
using testing::FakeGpu;
using testing::FakeKernels;
using testing::Fixture;

// A device without products of warpgroups.
struct Rig {
  explicit Rig(const CudaPlan& plan) {
    gpu.arguments_of = testing::ArgumentsOf;
    gpu.on_launch = FakeKernels::Run;
    const absl::Status status = Load(plan);
    EXPECT_TRUE(status.ok()) << status;
  }
  absl::Status Load(const CudaPlan& plan) {
    DeviceOptions options;
    options.portable = true;
    options.kernel_cache_dir = "none";
    options.jit = JitPolicy::kNever;
    QUIRE_ASSIGN_OR_RETURN(loaded.device,
                           CudaDevice::Create(gpu.driver(), options, &FakeBlas::Open));
    loaded.target = &plan.target();
    QUIRE_ASSIGN_OR_RETURN(loaded.program,
                           loaded.device->Load(plan.target(), "step", *OpenWeights(plan.file())));
    return absl::OkStatus();
  }

  FakeGpu gpu;
  testing::Loaded loaded;
};

constexpr int32_t kChunk = 16;

class CudaLibraryTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    absl::StatusOr<Fixture> read = testing::ReadFixture(GetParam());
    ASSERT_TRUE(read.ok()) << read.status();
    fixture_ = *std::move(read);
    ASSERT_GE(fixture_.ids.size(), size_t{kChunk});
    fixture_.ids.resize(kChunk);
    plan_ = std::make_unique<CudaPlan>(GetParam(), 16, DType::kBF16, /*portable=*/true);
    ASSERT_NE(plan_->file(), nullptr);
  }
  // Of the last of so many sequences in one step.
  std::vector<float> Logits(const Rig& rig, int copies) const {
    const auto logits = RunIds(rig.loaded, fixture_, {kChunk}, copies);
    EXPECT_TRUE(logits.ok()) << logits.status();
    return logits.value_or(std::vector<float>());
  }

  Fixture fixture_;
  std::unique_ptr<CudaPlan> plan_;
};

// One run of rows for the library; some more, which are the own body's; two runs.
TEST_P(CudaLibraryTest, TakesTheAlgorithmThatAgrees) {
  std::vector<float> expected;
  {
    const Rig own(*plan_);
    expected = Logits(own, 1);
    EXPECT_TRUE(Logits(own, 64) == expected);
  }
  FakeBlas blas;
  {
    const Rig rig(*plan_);
    blas.wait = [&rig] { rig.gpu.driver().StreamSynchronize(nullptr); };
    EXPECT_TRUE(Logits(rig, 20) == expected);
    EXPECT_EQ(blas.products, 0);
    EXPECT_TRUE(Logits(rig, 32) == expected);
    const int with_checks = blas.products;
    EXPECT_TRUE(Logits(rig, 36) == expected);
    const int one_run = blas.products - with_checks;
    // In four parts each linear whose sums they are; those of a short k are the own body's.
    EXPECT_GE(one_run, 4);
    EXPECT_GT(with_checks, one_run);
    EXPECT_TRUE(Logits(rig, 64) == expected);
    EXPECT_EQ(blas.products, with_checks + 3 * one_run);
  }
  EXPECT_EQ(blas.living, 0);
}

TEST_P(CudaLibraryTest, DoesWithoutALibraryThatNeverAgrees) {
  FakeBlas blas;
  blas.rounds_parts = true;
  const Rig rig(*plan_);
  blas.wait = [&rig] { rig.gpu.driver().StreamSynchronize(nullptr); };
  const std::vector<float> expected = Logits(rig, 1);
  EXPECT_TRUE(Logits(rig, 32) == expected);
  const int checks = blas.products;
  EXPECT_GT(checks, 0);
  EXPECT_TRUE(Logits(rig, 64) == expected);
  EXPECT_EQ(blas.products, checks);
}

// Biases, residuals, gated and plain activations, heads that are turned.
INSTANTIATE_TEST_SUITE_P(Fixtures, CudaLibraryTest,
                         ::testing::Values("gpt2", "qwen3", "gpt_bigcode_mqa", "llama_gqa_tied"));

TEST(CudaBlasTest, SaysWhatIsMissing) {
  const auto none = CudaBlas::Open("libnothing.so.99");
  EXPECT_EQ(none.status().code(), absl::StatusCode::kUnavailable);
  const auto other = CudaBlas::Open("libc.so.6");
  EXPECT_EQ(other.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(other.status().message().find("cublasLtCreate"), std::string::npos);
}

}  // namespace
}  // namespace quire
