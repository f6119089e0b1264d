// Linears that turn heads and append K and V, in steps on a GPU of host memory.
#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
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
using testing::FakeBlas;
using testing::FakeGpu;
using testing::FakeKernels;

struct Rig {
  explicit Rig(const CudaPlan& plan) {
    gpu.arguments_of = testing::ArgumentsOf;
    gpu.on_launch = FakeKernels::Run;
    const absl::Status status = Load(plan);
    EXPECT_TRUE(status.ok()) << status;
    const auto turns = [](const auto& kernel) { return absl::StrContains(kernel->spec, "rope="); };
    const auto& kernels = plan.target().kernels;
    EXPECT_TRUE(std::any_of(kernels.begin(), kernels.end(), turns));
  }
  absl::Status Load(const CudaPlan& plan) {
    DeviceOptions options;
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

// Neighbours, by scaled frequencies, by such as grow with positions.
TEST(CudaRopeTest, EqualsTransformers) {
  for (const char* name : {"gguf_llama_q8_0", "llama_llama3", "llama_dynamic"}) {
    SCOPED_TRACE(name);
    const auto fixture = testing::ReadFixture(name);
    ASSERT_TRUE(fixture.ok()) << fixture.status();
    const CudaPlan plan(name, 3, DType::kF16);
    const Rig rig(plan);
    // Few enough that blocks stay blocks, which is what fake kernels know.
    const auto logits = RunIds(rig.loaded, *fixture, testing::ChunksOf(*fixture, 7), 1);
    ASSERT_TRUE(logits.ok()) << logits.status();
    ASSERT_EQ(logits->size(), fixture->logits.size());
    float largest = 0, worst = 0;
    for (size_t i = 0; i < logits->size(); ++i) {
      largest = std::max(largest, std::abs(fixture->logits[i]));
      worst = std::max(worst, std::abs(fixture->logits[i] - (*logits)[i]));
    }
    EXPECT_LE(worst, 0.02f * largest);
  }
}

// Each launch is what the lowered definition says.
TEST(CudaRopeTest, LaunchesAreVerified) {
  for (const char* name : {"llama_gqa_tied", "llama_dynamic"}) {
    SCOPED_TRACE(name);
    const auto fixture = testing::ReadFixture(name);
    ASSERT_TRUE(fixture.ok()) << fixture.status();
    const CudaPlan plan(name);
    const Rig rig(plan);
    const TensorFiles files(plan.file()->plan(), "", testing::FixturePath(name));
    auto verifier = LaunchVerifier::Create(plan.file()->plan(), plan.target(), files);
    ASSERT_TRUE(verifier.ok()) << verifier.status();
    auto runner =
        StepRunner::Create(rig.loaded.program.get(),
                           {static_cast<int32_t>(fixture->vocab_size), plan.target().page_tokens, 1,
                            8, nullptr, fixture->source, fixture->states, verifier->get()},
                           1);
    ASSERT_TRUE(runner.ok()) << runner.status();
    const auto prompt = fixture->ids.begin() + 6;
    for (const std::vector<int32_t>& ids :
         {std::vector<int32_t>(fixture->ids.begin(), prompt), {*prompt}}) {
      const auto logits = runner->Append({ids});
      ASSERT_TRUE(logits.ok()) << logits.status();
    }
    EXPECT_GT((*verifier)->launches(), 8);
    EXPECT_EQ((*verifier)->different_launches(), 0)
        << (*verifier)->worst().launch << ", " << (*verifier)->worst().where;
  }
}

}  // namespace
}  // namespace quire
