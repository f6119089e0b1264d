#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "codegen/cuda/nvrtc.h"
#include "codegen/cuda/row.h"
#include "codegen/cuda/source.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/codegen/cuda_row_cases.h"

namespace quire {
namespace {

using testing::CudaRowCases;
using ::testing::HasSubstr;
using testing::kRowLimits;
using Kind = CudaArgument::Kind;

std::unique_ptr<CudaKernel> Make(const std::string& func, int page_tokens = 0) {
  auto kernel = MakeCudaRow({func, page_tokens}, kRowLimits);
  EXPECT_TRUE(kernel.ok()) << kernel.status();
  return kernel.ok() ? *std::move(kernel) : nullptr;
}

absl::Status StatusOf(const std::string& func, int page_tokens = 0) {
  return MakeCudaRow({func, page_tokens}, kRowLimits).status();
}

constexpr char kNorm[] =
    "func @row(%0: bf16[T,4096], %1: bf16[4096]) {\n"
    "  %v0 = cast %0 : f32[T,4096]\n"
    "  %v1 = rms_norm %v0, %1 {eps=0.00001} : f32[T,4096]\n"
    "  %v2 = cast %v1 : bf16[T,4096]\n"
    "  return %v2\n}\n";

TEST(CudaRowTest, SourceOfASpec) {
  const auto kernel = Make(kNorm);
  const CudaEntry& entry = kernel->entries()[0];
  EXPECT_EQ(entry.entry, "row");
  EXPECT_EQ(entry.block_threads, 256);
  EXPECT_EQ(entry.source,
            R"(// row func @row(%0: bf16[T,4096], %1: bf16[4096]) {
//   %v0 = cast %0 : f32[T,4096]
//   %v1 = rms_norm %v0, %1 {eps=0.00001} : f32[T,4096]
//   %v2 = cast %v1 : bf16[T,4096]
//   return %v2
// }
#include "row.cuh"
#include "step.cuh"
using Vec = Vector<8>;
extern "C" __global__ void __launch_bounds__(256)
row(const Bf16* a0, const Bf16* a1, Bf16* r0, int rows) {
  AllowNextGrid();
  const int lane = threadIdx.x % 32;
  const int row = blockIdx.x;
  float* scratch = reinterpret_cast<float*>(SharedMemory());
  const Bf16* x0 = a0 + static_cast<int64_t>(row) * 4096;
  Bf16* y0 = r0 + static_cast<int64_t>(row) * 4096;
  const int i0 = (0 * 256 + static_cast<int>(threadIdx.x)) * 8 + 0;
  const int i3 = (1 * 256 + static_cast<int>(threadIdx.x)) * 8 + 0;
  const Vec v8 = Load<8>(a1 + i0);
  const Vec v11 = Load<8>(a1 + i3);
  WaitForPriorGrid();
  float s1 = 0;
  const Vec v2 = Load<8>(x0 + i0);
  s1 = AddSquares(s1, v2.x);
  PutSum<256, 16>(scratch, 0, s1);
  float s4 = 0;
  const Vec v5 = Load<8>(x0 + i3);
  s4 = AddSquares(s4, v5.x);
  PutSum<256, 16>(scratch, 1, s4);
  SyncBlock();
  const float v6 = InverseRoot(Total<16>(scratch), 0.000244140625f, 9.99999975e-06f);
  const Vec v7 = Scale(v2, v6);
  const Vec v9 = Mul(v7, v8);
  Store(y0 + i0, v9);
  const Vec v10 = Scale(v5, v6);
  const Vec v12 = Mul(v10, v11);
  Store(y0 + i3, v12);
}
)");
}

// Long rows have a block each, short ones a warp; what sums nothing over a row is cut as the device
// needs it.
TEST(CudaRowTest, GridsByLengthAndNumberOfRows) {
  const auto grid = [](const CudaKernel& kernel, int64_t rows) {
    return kernel.Launches(rows).launches[0].grid;
  };
  const auto norm = Make(kNorm);
  EXPECT_EQ(grid(*norm, 1), 1);
  EXPECT_EQ(grid(*norm, 4096), 4096);
  const auto narrow = Make(
      "func @row(%0: f32[T,576]) {\n  %v0 = rms_norm %0 {eps=0.01} : f32[T,576]\n"
      "  return %v0\n}\n");
  EXPECT_EQ(narrow->entries()[0].block_threads, 128);
  EXPECT_EQ(grid(*narrow, 9), 3);
  const auto pointwise =
      Make("func @row(%0: f32[T,11008]) {\n  %v0 = silu %0 : f32[T,11008]\n  return %v0\n}\n");
  const CudaLaunches one = pointwise->Launches(1);
  EXPECT_EQ(one.launches[0].grid, 11);  // 43 warps of 256 elements
  EXPECT_EQ(one.launches[0].arguments.back().value, 43);
  EXPECT_EQ(pointwise->Launches(100000).launches[0].arguments.back().value, 1);
}

TEST(CudaRowTest, ArgumentsInOrder) {
  const auto kernel = Make(
      "func @row(%0: bf16[T,2,8], %1: bf16[T,2,8]) {\n"
      "  %v0 = kv_append %0 {layer=0, slot=k} : bf16[C,2,8]\n"
      "  %v1 = kv_append %1 {layer=0, slot=v} : bf16[C,2,8]\n"
      "  return %0\n}\n",
      16);
  const CudaLaunches launches = kernel->Launches(7);
  std::vector<std::pair<Kind, int64_t>> arguments;
  for (const CudaArgument& argument : launches.launches[0].arguments) {
    arguments.push_back({argument.kind, argument.value});
  }
  EXPECT_THAT(arguments,
              ::testing::ElementsAre(std::pair(Kind::kOperand, 0), std::pair(Kind::kOperand, 1),
                                     std::pair(Kind::kOperand, 2), std::pair(Kind::kOperand, 3),
                                     std::pair(Kind::kOperand, 4), std::pair(Kind::kTokenSlots, 0),
                                     std::pair(Kind::kInt32, 7), std::pair(Kind::kInt32, 3)));
}

TEST(CudaRowTest, RefusesWhatNoKernelComputes) {
  for (const char* func :
       {"func @row(%0: f32[T,4]) {\n  %v0 = softmax %0 : f32[T,4]\n  return %v0\n}\n",
        "func @row(%0: i32[T], %1.rows16: f32[8,4]) {\n  %v0 = embed %1.rows16, %0 : f32[T,4]\n"
        "  return %v0\n}\n",
        "func @row(%0: i32[T]) {\n  return %0\n}\n",
        "func @row(%0: f32[T]) {\n  %v0 = rms_norm %0 {eps=0.1} : f32[T]\n  return %v0\n}\n",
        "func @row(%0: f32[T,524288]) {\n  %v0 = rms_norm %0 {eps=0.1} : f32[T,524288]\n"
        "  return %v0\n}\n"}) {
    EXPECT_EQ(StatusOf(func).code(), absl::StatusCode::kUnimplemented) << func << StatusOf(func);
  }
  EXPECT_EQ(StatusOf("nonsense").code(), absl::StatusCode::kInvalidArgument);
  const std::string half =
      "func @row(%0: bf16[T,2,8]) {\n  %v0 = kv_append %0 {layer=0, slot=k} : bf16[C,2,8]\n"
      "  return %0\n}\n";
  EXPECT_THAT(std::string(StatusOf(half, 16).message()), HasSubstr("one K and one V"));
  EXPECT_THAT(std::string(StatusOf(half).message()), HasSubstr("unknown size"));
}

// Each reads the value before at two places.
TEST(CudaRowTest, RefusesTextsThatGrowExponentially) {
  std::string func = "func @row(%0: f32[T,1,8], %1: i32[T]) {\n";
  std::string value = "%0";
  for (int i = 0; i < 40; ++i) {
    absl::StrAppend(&func, "  %v", i, " = rope ", value,
                    ", %1 {theta=10000, dims=", i % 2 == 0 ? 4 : 8, "} : f32[T,1,8]\n");
    value = absl::StrCat("%v", i);
  }
  absl::StrAppend(&func, "  return ", value, "\n}\n");
  EXPECT_EQ(StatusOf(func).code(), absl::StatusCode::kUnimplemented);
}

// A share of the cases, as one text: most of a compilation's time is the headers'.
TEST(CudaRowTest, CasesCompileWithoutSpills) {
  const absl::StatusOr<const Nvrtc*> nvrtc = Nvrtc::Get();
  if (absl::IsUnavailable(nvrtc.status())) GTEST_SKIP() << nvrtc.status();
  ASSERT_TRUE(nvrtc.ok()) << nvrtc.status();
  std::string source;
  std::vector<int> threads;
  for (size_t i = 0; i < CudaRowCases().size(); i += 13) {
    const auto kernel = MakeCudaRow(CudaRowCases()[i], kRowLimits);
    ASSERT_TRUE(kernel.ok()) << kernel.status();
    const CudaEntry& entry = (*kernel)->entries()[0];
    absl::StrAppend(&source, "namespace space", i, " {\n",
                    absl::StrReplaceAll(entry.source, {{"\nrow(", absl::StrCat("\nrow", i, "(")}}),
                    "}\n");
    threads.push_back(entry.block_threads);
  }
  source = "#include \"row.cuh\"\n#include \"step.cuh\"\n" + source;
  for (const char* architecture : {"sm_80", "sm_89", "sm_90a"}) {
    const absl::StatusOr<CudaBinary> binary =
        (*nvrtc)->Compile("rows.cu", source, architecture, CudaKernelHeaders());
    ASSERT_TRUE(binary.ok()) << binary.status();
    const std::vector<KernelResources> resources = ParseResources(binary->log);
    ASSERT_EQ(resources.size(), threads.size());
    for (const KernelResources& kernel : resources) {
      EXPECT_EQ(kernel.stack_bytes, 0) << kernel.name << " " << architecture;
      EXPECT_EQ(kernel.spill_store_bytes, 0) << kernel.name << " " << architecture;
    }
  }
}

}  // namespace
}  // namespace quire
