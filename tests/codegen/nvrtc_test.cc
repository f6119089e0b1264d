#include "codegen/cuda/nvrtc.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace quire {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const Nvrtc* Library() {
  const absl::StatusOr<const Nvrtc*> nvrtc = Nvrtc::Get();
  if (nvrtc.ok()) return *nvrtc;
  EXPECT_EQ(nvrtc.status().code(), absl::StatusCode::kUnavailable);
  return nullptr;
}

TEST(NvrtcTest, CompilesWithHeadersInMemoryAndReportsResources) {
  const Nvrtc* nvrtc = Library();
  if (nvrtc == nullptr) GTEST_SKIP() << "UNAVAILABLE: no NVRTC here";
  for (const char* architecture : {"sm_80", "sm_89", "sm_90a"}) {
    const absl::StatusOr<CudaBinary> binary =
        nvrtc->Compile("twice.cu",
                       "#include \"factor.cuh\"\nextern \"C\" __global__ void twice(float* x) { "
                       "x[threadIdx.x] *= kFactor; }\n",
                       architecture, {{"factor.cuh", "constexpr float kFactor = 2;\n"}});
    ASSERT_TRUE(binary.ok()) << binary.status();
    EXPECT_EQ(binary->cubin.substr(1, 3), "ELF");
    const std::vector<KernelResources> kernels = ParseResources(binary->log);
    ASSERT_EQ(kernels.size(), 1u) << binary->log;
    EXPECT_EQ(kernels[0].name, "twice");
    EXPECT_GT(kernels[0].registers, 0);
    EXPECT_EQ(kernels[0].spill_store_bytes, 0);
  }
}

TEST(NvrtcTest, DeclarationsThatNoKernelUsesAreLeftOutWhereThatIsKnown) {
  EXPECT_THAT(Nvrtc::VersionOptions(12, 3), IsEmpty());
  EXPECT_THAT(Nvrtc::VersionOptions(12, 4), ElementsAre("--minimal"));
  EXPECT_THAT(Nvrtc::VersionOptions(13, 0), ElementsAre("--minimal"));
  const Nvrtc* nvrtc = Library();
  if (nvrtc == nullptr) GTEST_SKIP() << "UNAVAILABLE: no NVRTC here";
  const absl::StatusOr<CudaBinary> binary = nvrtc->Compile(
      "texture.cu", "__global__ void f(cudaTextureObject_t texture) {}\n", "sm_90a", {});
  EXPECT_EQ(binary.ok(), nvrtc->version() < "12.4");
}

TEST(NvrtcTest, ErrorsCarryTheLog) {
  const Nvrtc* nvrtc = Library();
  if (nvrtc == nullptr) GTEST_SKIP() << "UNAVAILABLE: no NVRTC here";
  const absl::StatusOr<CudaBinary> binary =
      nvrtc->Compile("bad.cu", "__global__ void f() { undefined_name(); }\n", "sm_90a", {});
  ASSERT_FALSE(binary.ok());
  EXPECT_EQ(binary.status().code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(binary.status().message()), HasSubstr("undefined_name"));
}

TEST(NvrtcTest, ReadsResourcesOfALog) {
  const std::vector<KernelResources> kernels = ParseResources(
      "ptxas info    : 0 bytes gmem\n"
      "ptxas info    : Compiling entry function 'a' for 'sm_90a'\n"
      "ptxas info    : Function properties for a\n"
      "    16 bytes stack frame, 12 bytes spill stores, 8 bytes spill loads\n"
      "ptxas info    : Used 168 registers, used 1 barriers, 1040 bytes smem\n");
  ASSERT_EQ(kernels.size(), 1u);
  EXPECT_EQ(kernels[0].registers, 168);
  EXPECT_EQ(kernels[0].stack_bytes, 16);
  EXPECT_EQ(kernels[0].spill_store_bytes, 12);
  EXPECT_EQ(kernels[0].spill_load_bytes, 8);
  EXPECT_EQ(kernels[0].static_shared_bytes, 1040);
}

}  // namespace
}  // namespace quire
