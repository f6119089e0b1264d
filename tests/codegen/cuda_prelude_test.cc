#include "codegen/cuda/nvrtc.h"
#include "codegen/cuda/source.h"
#include "gtest/gtest.h"

namespace quire {
namespace {

// Every function of the prelude once.
constexpr char kUse[] = R"(
#include "e4m3.cuh"
template <typename T>
DEVICE void Use(float* y, const T* x) {
  const uint32_t shared = SharedAddress(SharedMemory());
  CopyAsync(shared, x);
  CommitCopies();
  AllowNextGrid();
  WaitForPriorGrid();
  WaitForCopies<0>();
  SyncBlock();
  uint32_t a[4], b[4];
  LoadMatrices(a, shared);
  LoadMatricesTransposed(b, shared);
  uint32_t halves[2], turns[2];
  LoadMatrices(halves, shared);
  LoadMatricesTransposed(turns, shared);
  WidenHalves<T>(halves[0], a[0], a[1]);
  WidenInTurn<T>(turns[1], a[2], a[3]);
  float d[4] = {};
  Mma<T>(d, a, b[0], b[1]);
  SyncWarp();
  y[0] = Fma(Divide(d[0], FromBits(PackFours(d[0], d[1], d[2], d[3]))), Mul(d[1], Exp2(d[2])), Add(Reciprocal(d[3]), ToFloat(x[0])));
  y[1] = ShuffleXor(ToFloat(FromFloat<T>(y[0])), 1);
  y[2] = FromBits(Shuffle(Pack<T>(y[0], y[1]), 0) + Bits(FromFloat<F32>(ToFloat(y[1]))));
}
extern "C" __global__ void use(float* y, const Bf16* b, const F16* h) {
  Use(y, b);
  Use(y + 3, h);
}
)";

TEST(CudaPreludeTest, CompilesForEveryArchitecture) {
  const absl::StatusOr<const Nvrtc*> nvrtc = Nvrtc::Get();
  if (absl::IsUnavailable(nvrtc.status())) GTEST_SKIP() << nvrtc.status();
  ASSERT_TRUE(nvrtc.ok()) << nvrtc.status();
  for (const char* architecture : {"sm_80", "sm_89", "sm_90a"}) {
    const absl::StatusOr<CudaBinary> binary =
        (*nvrtc)->Compile("use.cu", kUse, architecture, CudaKernelHeaders());
    ASSERT_TRUE(binary.ok()) << binary.status();
    EXPECT_EQ(binary->ptx.find("griddepcontrol") != std::string::npos,
              std::string(architecture) == "sm_90a");
    // Options such as flush to zero must not reach the arithmetic.
    for (const char* instruction : {"add.rn.f32", "mul.rn.f32", "fma.rn.f32"}) {
      EXPECT_NE(binary->ptx.find(instruction), std::string::npos) << instruction;
    }
  }
}

}  // namespace
}  // namespace quire
