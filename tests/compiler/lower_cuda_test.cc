// Lowering for CUDA: where values are stored as bf16 and f16, and what kernels read.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "codegen/plan_check.h"
#include "compiler/lower.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/compiler/compile_helpers.h"

namespace quire {
namespace {

using testing::CudaTarget;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::Lower;
using testing::Specs;

// One layer with a tied head that caps its logits.
constexpr absl::string_view kDecoder = R"(
func @step(%ids: i32[T], %pos: i32[T], %rows: i32[R]) {
  %embed.w = weight {name="embed"} : f32[100,64]
  %x = embed %embed.w, %ids : f32[T,64]
  %norm.w = weight {name="norm"} : f16[64]
  %n = rms_norm %x, %norm.w {eps=0.00001} : f32[T,64]
  %qkv.w = weight {name="qkv"} : bf16[128,64]
  %qkv.b = weight {name="qkvb"} : f16[128]
  %qkv = linear %n, %qkv.w, %qkv.b : f32[T,128]
  %q = slice %qkv {axis=1, begin=0, end=64} : f32[T,64]
  %k = slice %qkv {axis=1, begin=64, end=96} : f32[T,32]
  %v = slice %qkv {axis=1, begin=96, end=128} : f32[T,32]
  %qh = reshape %q : f32[T,8,8]
  %kh = reshape %k : f32[T,4,8]
  %vh = reshape %v : f32[T,4,8]
  %qr = rope %qh, %pos {theta=10000} : f32[T,8,8]
  %kr = rope %kh, %pos {theta=10000} : f32[T,4,8]
  %kc = kv_append %kr {layer=5, slot=k} : bf16[C,4,8]
  %vc = kv_append %vh {layer=5, slot=v} : bf16[C,4,8]
  %a = attention %qr, %kc, %vc {mask=causal, scale=0.25} : f32[T,8,8]
  %a_rows = take %a, %rows : f32[R,8,8]
  %x_rows = take %x, %rows : f32[R,64]
  %o = reshape %a_rows : f32[R,64]
  %o.w = weight {name="o"} : q8_0[64,64]
  %y = linear %o, %o.w : f32[R,64]
  %z = add %x_rows, %y : f32[R,64]
  %logits = linear %z, %embed.w : f32[R,100]
  %capped = softcap %logits {cap=30} : f32[R,100]
  return %capped
}
)";

TEST(LowerCudaTest, KernelsStoreTheActivationTypeAndComputeInF32) {
  absl::StatusOr<plan::TargetT> target = Lower(kDecoder, nullptr, CudaTarget());
  ASSERT_TRUE(target.ok()) << target.status();
  EXPECT_THAT(
      Specs(*target),
      ElementsAre(
          R"(row func @row(%0: i32[T], %1: f32[100,64]) {
  %v0 = embed %1, %0 : f32[T,64]
  %v1 = cast %v0 : bf16[T,64]
  return %v1
}
)",
          "linear n=128 k=64 w=bf16 x=bf16 y=bf16 bias=1 residual=0 layout=rows norm=rms "
          "eps=0.00001 "
          "offset=0 norm_w=f16 norm_b=none",
          // Rows that are only taken stay what they are.
          R"(row func @row(%0: bf16[T,64], %1: i32[R]) {
  %v0 = take %0, %1 : bf16[R,64]
  return %v0
}
)",
          R"(row page=16 func @row(%0: bf16[T,128], %1: i32[T]) {
  %v0 = slice %0 {axis=1, begin=0, end=64} : bf16[T,64]
  %v1 = slice %0 {axis=1, begin=64, end=96} : bf16[T,32]
  %v2 = slice %0 {axis=1, begin=96, end=128} : bf16[T,32]
  %v3 = reshape %v0 : bf16[T,8,8]
  %v4 = cast %v3 : f32[T,8,8]
  %v5 = rope %v4, %1 {theta=10000} : f32[T,8,8]
  %v6 = reshape %v1 : bf16[T,4,8]
  %v7 = cast %v6 : f32[T,4,8]
  %v8 = rope %v7, %1 {theta=10000} : f32[T,4,8]
  %v9 = kv_append %v8 {layer=0, slot=k} : bf16[C,4,8]
  %v10 = reshape %v2 : bf16[T,4,8]
  %v11 = kv_append %v10 {layer=0, slot=v} : bf16[C,4,8]
  %v12 = cast %v5 : bf16[T,8,8]
  return %v12
}
)",
          "attention hq=8 hkv=4 d=8 dv=8 kv=bf16 page=16 mask=causal window=0 scale=0.25 cap=0 "
          "alibi=0 x=bf16",
          R"(row func @row(%0: bf16[T,8,8], %1: i32[R]) {
  %v0 = take %0, %1 : bf16[R,8,8]
  return %v0
}
)",
          "linear n=64 k=64 w=q8_0 x=bf16 y=bf16 bias=0 residual=1 layout=rows",
          // Logits, and what only caps them, are f32.
          "linear n=100 k=64 w=bf16 x=bf16 y=f32 bias=0 residual=0 layout=rows",
          R"(row func @row(%0: f32[T,100]) {
  %v0 = softcap %0 {cap=30} : f32[T,100]
  return %v0
}
)"));
}

// Positions, factors of the checkpoint, and the layer stand behind what other linears read.
TEST(LowerCudaTest, ALinearTurnsHeadsAndAppendsThem) {
  absl::StatusOr<plan::TargetT> target = Lower(R"(
func @step(%x: f32[T,64], %pos: i32[T]) {
  %w = weight {name="qkv"} : bf16[128,64]
  %b = weight {name="qkvb"} : f16[128]
  %f = weight {name="factors"} : f32[8]
  %qkv = linear %x, %w, %b : f32[T,128]
  %q = slice %qkv {axis=1, begin=0, end=64} : f32[T,64]
  %k = slice %qkv {axis=1, begin=64, end=96} : f32[T,32]
  %v = slice %qkv {axis=1, begin=96, end=128} : f32[T,32]
  %qh = reshape %q : f32[T,4,16]
  %kh = reshape %k : f32[T,2,16]
  %vh = reshape %v : f32[T,2,16]
  %qr = rope %qh, %pos, %f {theta=10000, scaling=linear, scale_factor=2.5} : f32[T,4,16]
  %kr = rope %kh, %pos, %f {theta=10000, scaling=linear, scale_factor=2.5} : f32[T,2,16]
  %kc = kv_append %kr {layer=5, slot=k} : bf16[C,2,16]
  %vc = kv_append %vh {layer=5, slot=v} : bf16[C,2,16]
  %a = attention %qr, %kc, %vc {mask=causal, scale=0.25} : f32[T,4,16]
  return %a
}
)",
                                               nullptr, CudaTarget());
  ASSERT_TRUE(target.ok()) << target.status();
  EXPECT_THAT(
      Specs(*target),
      ElementsAre("linear n=128 k=64 w=bf16 x=bf16 y=bf16 bias=1 residual=0 layout=rows append=1 "
                  "heads=2 d=16 dv=16 page=16 "
                  "rope=theta=10000,scaling=linear,scale_factor=2.5 factors=f32",
                  "attention hq=4 hkv=2 d=16 dv=16 kv=bf16 page=16 mask=causal window=0 scale=0.25 "
                  "cap=0 alibi=0 x=bf16"));
  const plan::LaunchT& launch = *target->programs[0]->launches[0];
  std::vector<plan::OperandKind> kinds;
  for (const plan::Operand& input : launch.inputs) kinds.push_back(input.kind());
  using plan::OperandKind;
  EXPECT_THAT(kinds, ElementsAre(OperandKind::Argument, OperandKind::Weight, OperandKind::Weight,
                                 OperandKind::Argument, OperandKind::Weight, OperandKind::KvLayer));
  EXPECT_EQ(launch.name, "qr");
  EXPECT_EQ(target->weights[launch.inputs[4].index()]->name, "f");
}

TEST(LowerCudaTest, WeightsStayTheCheckpointsRows) {
  absl::StatusOr<plan::TargetT> target = Lower(kDecoder, nullptr, CudaTarget());
  ASSERT_TRUE(target.ok()) << target.status();
  std::vector<std::string> slots;
  for (const auto& slot : target->weights) {
    slots.push_back(absl::StrCat(slot->name, " ", slot->dtype, " ", slot->layout));
  }
  EXPECT_THAT(slots, ElementsAre("embed.w f32 rows", "qkv.w bf16 rows", "qkv.b f16 rows",
                                 "norm.w f16 rows", "o.w q8_0 rows"));
  EXPECT_EQ(target->name, "cuda");
  EXPECT_EQ(target->activation, "bf16");
  EXPECT_EQ(target->kv_layers[0]->dtype, "bf16");
}

TEST(LowerCudaTest, BuffersHaveTheBytesOfTheirTypes) {
  absl::StatusOr<plan::TargetT> target = Lower(kDecoder, nullptr, CudaTarget());
  ASSERT_TRUE(target.ok()) << target.status();
  std::vector<std::string> buffers;
  for (const auto& buffer : target->programs[0]->buffers) {
    buffers.push_back(absl::StrCat(buffer->name, " ", buffer->dtype, " ", buffer->bytes->t(), "T+",
                                   buffer->bytes->r(), "R"));
  }
  EXPECT_THAT(buffers, ElementsAre("x bf16 128T+0R", "qkv bf16 256T+0R", "x_rows bf16 0T+128R",
                                   "qr bf16 128T+0R", "a bf16 128T+0R", "a_rows bf16 0T+128R",
                                   "z bf16 0T+128R", "logits f32 0T+400R", "capped f32 0T+400R"));
  plan::ModelT model;
  model.vocabulary = 100;
  EXPECT_TRUE(CheckKernels(*target, model).ok()) << CheckKernels(*target, model);
}

TEST(LowerCudaTest, BlocksAreLookedUpInRows) {
  absl::StatusOr<plan::TargetT> target = Lower(R"(
func @step(%ids: i32[T]) {
  %e = weight {name="embed"} : q4_k[100,256]
  %x = embed %e, %ids : f32[T,256]
  %y = linear %x, %e : f32[T,100]
  return %y
}
)",
                                               nullptr, CudaTarget());
  ASSERT_TRUE(target.ok()) << target.status();
  EXPECT_THAT(Specs(*target),
              ElementsAre(R"(row func @row(%0: i32[T], %1: q4_k[100,256]) {
  %v0 = embed %1, %0 : f32[T,256]
  %v1 = cast %v0 : bf16[T,256]
  return %v1
}
)",
                          "linear n=100 k=256 w=q4_k x=bf16 y=f32 bias=0 residual=0 layout=rows"));
}

// What is stored as f32 is no residual of what is stored as bf16, nor the other way about.
TEST(LowerCudaTest, AResidualHasTheTypeOfTheResult) {
  constexpr absl::string_view text = R"(
func @step(%ids: i32[T]) {
  %e = weight {name="embed"} : bf16[100,64]
  %x = embed %e, %ids : f32[T,64]
  %w = weight {name="w"} : bf16[64,64]
  %y = linear %x, %w : f32[T,64]
  %z = add %x, %y : f32[T,64]
  return %z
}
)";
  absl::StatusOr<plan::TargetT> cuda = Lower(text, nullptr, CudaTarget());
  ASSERT_TRUE(cuda.ok()) << cuda.status();
  EXPECT_THAT(Specs(*cuda),
              ElementsAre(HasSubstr("cast %v0 : bf16[T,64]"),
                          "linear n=64 k=64 w=bf16 x=bf16 y=f32 bias=0 residual=0 layout=rows",
                          R"(row func @row(%0: bf16[T,64], %1: f32[T,64]) {
  %v0 = cast %0 : f32[T,64]
  %v1 = add %v0, %1 : f32[T,64]
  return %v1
}
)"));
  absl::StatusOr<plan::TargetT> cpu = Lower(text);
  ASSERT_TRUE(cpu.ok()) << cpu.status();
  EXPECT_THAT(Specs(*cpu)[1], HasSubstr("residual=1"));
}

TEST(LowerCudaTest, KAndVOfALayerAreAppendedAtOnce) {
  absl::StatusOr<plan::TargetT> target = Lower(R"(
func @step(%ids: i32[T]) {
  %e = weight {name="embed"} : bf16[100,16]
  %x = embed %e, %ids : f32[T,16]
  %h = reshape %x : f32[T,2,8]
  %k = kv_append %h {layer=3, slot=k} : bf16[C,2,8]
  %w = weight {name="w"} : bf16[16,16]
  %y = linear %x, %w : f32[T,16]
  %g = reshape %y : f32[T,2,8]
  %v = kv_append %g {layer=3, slot=v} : bf16[C,2,8]
  %a = attention %h, %k, %v {mask=causal, scale=1} : f32[T,2,8]
  return %a
}
)",
                                               nullptr, CudaTarget());
  EXPECT_EQ(target.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(target.status().message()),
              HasSubstr("%k: kv_append: K and V of layer 3 are appended by two kernels"));
}

TensorTable Tensors(const std::vector<std::pair<const char*, std::vector<int64_t>>>& list) {
  TensorTable tensors;
  for (const auto& [dtype, extents] : list) {
    tensors.push_back(std::make_unique<plan::TensorT>());
    tensors.back()->dtype = dtype;
    tensors.back()->extents = extents;
  }
  return tensors;
}

TEST(TargetForTest, MostOfTheMatricesDecide) {
  struct Case {
    std::vector<std::pair<const char*, std::vector<int64_t>>> tensors;
    DType cuda, cpu_kv;
  };
  const Case cases[] = {
      {{{"f32", {8, 8}}, {"f16", {64}}}, DType::kBF16, DType::kF32},
      {{{"bf16", {8, 8}}}, DType::kBF16, DType::kF16},
      {{{"f16", {9, 8}}, {"bf16", {8, 8}}, {"f32", {100}}}, DType::kF16, DType::kF16},
      {{{"f16", {7, 8}}, {"bf16", {8, 8}}}, DType::kBF16, DType::kF16},
      {{{"q4_0", {32, 32}}, {"f16", {8, 8}}}, DType::kBF16, DType::kF16},
  };
  for (const Case& c : cases) {
    const TensorTable tensors = Tensors(c.tensors);
    const Target cuda = TargetFor("cuda", tensors), cpu = TargetFor("cpu", tensors);
    EXPECT_EQ(cuda.activation, c.cuda);
    EXPECT_EQ(cuda.kv_dtype, c.cuda);
    EXPECT_EQ(cpu.activation, DType::kF32);
    EXPECT_EQ(cpu.kv_dtype, c.cpu_kv);
  }
}

TEST(TargetOfTest, IsWhatWasLoweredFor) {
  Target wanted = CudaTarget();
  wanted.activation = DType::kF16;
  wanted.page_tokens = 8;
  absl::StatusOr<plan::TargetT> lowered = Lower(kDecoder, nullptr, wanted);
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  const Target found = TargetOf(*lowered);
  EXPECT_EQ(found.name, "cuda");
  EXPECT_EQ(found.activation, DType::kF16);
  EXPECT_EQ(found.kv_dtype, DType::kBF16);
  EXPECT_EQ(found.page_tokens, 8);
}

}  // namespace
}  // namespace quire
