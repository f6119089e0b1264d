// Norms and activations that linear kernels compute, on targets whose kernels do.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
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
using ::testing::Not;
using testing::Rewrite;

constexpr absl::string_view kHead = R"(
func @step(%ids: i32[T]) {
  %e = weight {name="embed"} : bf16[100,64]
  %x = embed %e, %ids : f32[T,64]
)";

std::string Function(absl::string_view body, absl::string_view result) {
  return absl::StrCat(kHead, body, "  return %", result, "\n}\n");
}

std::string FusedNotes(const std::string& text) {
  absl::StatusOr<testing::Rewritten> rewritten = Rewrite(text, "fuse", CudaTarget());
  EXPECT_TRUE(rewritten.ok()) << rewritten.status();
  return rewritten.ok() ? rewritten->notes() : "";
}

std::vector<std::string> Specs(const std::string& text, const Target& target) {
  absl::StatusOr<plan::TargetT> lowered = Lower(text, nullptr, target);
  EXPECT_TRUE(lowered.ok()) << lowered.status();
  std::vector<std::string> specs;
  if (!lowered.ok()) return specs;
  for (const auto& kernel : lowered->kernels) specs.push_back(kernel->spec);
  return specs;
}

// A gated feed-forward layer and the head after it.
const std::string kGated = Function(R"(
  %nw = weight {name="norm"} : f32[64]
  %n = rms_norm %x, %nw {eps=0.00001, weight_offset=1} : f32[T,64]
  %gu.w = weight {name="gu"} : bf16[256,64]
  %gu.b = weight {name="gub"} : bf16[256]
  %gu = linear %n, %gu.w, %gu.b : f32[T,256]
  %g = slice %gu {axis=1, begin=0, end=128} : f32[T,128]
  %u = slice %gu {axis=1, begin=128, end=256} : f32[T,128]
  %a = gelu %g {approximate=tanh} : f32[T,128]
  %m = mul %u, %a : f32[T,128]
  %d.w = weight {name="d"} : bf16[64,128]
  %d = linear %m, %d.w : f32[T,64]
  %y = add %x, %d : f32[T,64]
  %lw = weight {name="lw"} : f16[64]
  %lb = weight {name="lb"} : f32[64]
  %l = layer_norm %y, %lw, %lb {eps=0.5} : f32[T,64]
  %h = linear %l, %e : f32[T,100]
)",
                                    "h");

TEST(FuseLinearsTest, NormsAndGatedActivationsAreOneGroupWithTheirLinear) {
  absl::StatusOr<testing::Rewritten> fused = Rewrite(kGated, "fuse", CudaTarget());
  ASSERT_TRUE(fused.ok()) << fused.status();
  const std::string text = fused->text();
  for (const char* line :
       {"%x = embed %e, %ids : f32[T,64] @0\n",
        "%n = rms_norm %x, %nw {eps=0.00001, weight_offset=1} : f32[T,64] @1\n",
        "%gu = linear %n, %gu.w, %gu.b : f32[T,256] @1\n",
        "%u = slice %gu {axis=1, begin=128, end=256} : f32[T,128] @1\n",
        "%m = mul %u, %a : f32[T,128] @1\n", "%d = linear %m, %d.w : f32[T,64] @2\n",
        "%y = add %x, %d : f32[T,64] @2\n",
        "%l = layer_norm %y, %lw, %lb {eps=0.5} : f32[T,64] @3\n",
        "%h = linear %l, %e : f32[T,100] @3\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
  EXPECT_EQ(fused->notes(),
            "fuse %gu: computes gelu_tanh of its first half, times its second: %m\n"
            "fuse %n: computed by %gu\n"
            "fuse %l: computed by %h\n"
            "fuse %step: 11 ops => 4 launches\n");
}

TEST(FuseLinearsTest, SpecsAndOperandsSayWhatIsFused) {
  absl::StatusOr<plan::TargetT> target = Lower(kGated, nullptr, CudaTarget());
  ASSERT_TRUE(target.ok()) << target.status();
  std::vector<std::string> specs;
  for (const auto& kernel : target->kernels) specs.push_back(kernel->spec);
  EXPECT_THAT(
      specs,
      ElementsAre(HasSubstr("embed"),
                  "linear n=128 k=64 w=bf16 x=bf16 y=bf16 bias=1 residual=0 layout=rows norm=rms "
                  "eps=0.00001 offset=1 norm_w=f32 norm_b=none act=gelu_tanh gated=1",
                  "linear n=64 k=128 w=bf16 x=bf16 y=bf16 bias=0 residual=1 layout=rows",
                  "linear n=100 k=64 w=bf16 x=bf16 y=f32 bias=0 residual=0 layout=rows norm=layer "
                  "eps=0.5 offset=0 norm_w=f16 norm_b=f32"));
  auto names = [&target](const plan::LaunchT& launch) {
    return absl::StrJoin(launch.inputs, " ", [&](std::string* out, const plan::Operand& operand) {
      const plan::ProgramT& program = *target->programs[0];
      out->append(operand.kind() == plan::OperandKind::Weight
                      ? target->weights[operand.index()]->name
                      : program.buffers[operand.index()]->name);
    });
  };
  const auto& launches = target->programs[0]->launches;
  EXPECT_EQ(names(*launches[1]), "x gu.w gu.b nw");
  EXPECT_EQ(launches[1]->name, "m");
  EXPECT_EQ(names(*launches[2]), "m d.w x");
  EXPECT_EQ(names(*launches[3]), "y e lw lb");
}

TEST(FuseLinearsTest, NothingIsFusedWhereKernelsDoNot) {
  for (const std::string& spec : Specs(kGated, Target())) {
    EXPECT_THAT(spec, Not(HasSubstr("act=")));
    EXPECT_THAT(spec, Not(HasSubstr("norm=")));
  }
}

TEST(FuseLinearsTest, AnActivationWithoutAGate) {
  const std::string text = Function(R"(
  %w = weight {name="w"} : bf16[128,64]
  %y = linear %x, %w : f32[T,128]
  %a = gelu %y {approximate=quick} : f32[T,128]
  %v = weight {name="v"} : bf16[64,128]
  %z = linear %a, %v : f32[T,64]
)",
                                    "z");
  EXPECT_THAT(Specs(text, CudaTarget())[1],
              HasSubstr("linear n=128 k=64 w=bf16 x=bf16 y=bf16 bias=0 residual=0 layout=rows "
                        "act=gelu_quick"));
}

TEST(FuseLinearsTest, EachLinearOfANormComputesItsOwn) {
  const std::string text = Function(R"(
  %n = rms_norm %x {eps=0.5} : f32[T,64]
  %w = weight {name="w"} : bf16[64,64]
  %y = linear %n, %w : f32[T,64]
  %v = weight {name="v"} : q8_0[64,64]
  %z = linear %n, %v : f32[T,64]
  %s = mul %y, %z : f32[T,64]
  %h = linear %s, %e : f32[T,100]
)",
                                    "h");
  absl::StatusOr<testing::Rewritten> fused = Rewrite(text, "fuse", CudaTarget());
  ASSERT_TRUE(fused.ok()) << fused.status();
  EXPECT_THAT(fused->text(), HasSubstr("%y = linear %n, %w : f32[T,64] @1\n"));
  EXPECT_THAT(fused->text(), HasSubstr("%n.1 = rms_norm %x {eps=0.5} : f32[T,64] @2\n"));
  EXPECT_THAT(fused->text(), HasSubstr("%z = linear %n.1, %v : f32[T,64] @2\n"));
  EXPECT_THAT(fused->notes(), HasSubstr("fuse %n: computed by each of 2 linears, first %y\n"));
}

TEST(FuseLinearsTest, DeclinesANorm) {
  // That something else reads.
  EXPECT_THAT(FusedNotes(Function(R"(
  %n = rms_norm %x {eps=0.5} : f32[T,64]
  %w = weight {name="w"} : bf16[64,64]
  %y = linear %n, %w : f32[T,64]
  %z = add %y, %n : f32[T,64]
  %h = linear %z, %e : f32[T,100]
)",
                                  "h")),
              HasSubstr("fuse %n: declined: %z reads it, too\n"));
  // Of what a row kernel makes of a linear.
  EXPECT_THAT(FusedNotes(Function(R"(
  %w = weight {name="w"} : bf16[64,64]
  %y = linear %x, %w : f32[T,64]
  %p = rms_norm %y {eps=0.5} : f32[T,64]
  %r = add %x, %p : f32[T,64]
  %n = rms_norm %r {eps=0.5} : f32[T,64]
  %h = linear %n, %e : f32[T,100]
)",
                                  "h")),
              HasSubstr("fuse %n: declined: the row kernel of %r computes it in passing\n"));
}

TEST(FuseLinearsTest, DeclinesAnActivation) {
  // Of the second half.
  EXPECT_THAT(FusedNotes(Function(R"(
  %w = weight {name="w"} : bf16[128,64]
  %y = linear %x, %w : f32[T,128]
  %u = slice %y {axis=1, begin=0, end=64} : f32[T,64]
  %g = slice %y {axis=1, begin=64, end=128} : f32[T,64]
  %a = silu %g : f32[T,64]
  %m = mul %a, %u : f32[T,64]
  %h = linear %m, %e : f32[T,100]
)",
                                  "h")),
              HasSubstr("fuse %y: declined: silu %a is of its second half\n"));
  // Before the result, which is stored as f32: so is the linear, and nothing is rounded between.
  const std::string result = Function(R"(
  %h = linear %x, %e : f32[T,100]
  %t = tanh %h : f32[T,100]
)",
                                      "t");
  EXPECT_THAT(FusedNotes(result), HasSubstr("fuse %h: computes tanh of it: %t\n"));
  EXPECT_THAT(Specs(result, CudaTarget())[1],
              HasSubstr("y=f32 bias=0 residual=0 layout=rows act=tanh"));
}

// Not patterns of a gate: uneven slices, a second reader, two activations.
TEST(FuseLinearsTest, OtherReadersOfALinearAreRowKernels) {
  for (const char* body : {R"(
  %u = slice %y {axis=1, begin=0, end=32} : f32[T,32]
  %g = slice %y {axis=1, begin=96, end=128} : f32[T,32]
  %a = silu %u : f32[T,32]
  %m = mul %a, %g : f32[T,32]
)",
                           R"(
  %u = slice %y {axis=1, begin=0, end=64} : f32[T,64]
  %g = slice %y {axis=1, begin=64, end=128} : f32[T,64]
  %a = silu %u : f32[T,64]
  %b = mul %a, %g : f32[T,64]
  %m = mul %b, %u : f32[T,64]
)",
                           R"(
  %a = silu %y : f32[T,128]
  %m = mul %a, %y : f32[T,128]
)"}) {
    const std::string text = Function(
        absl::StrCat(
            "  %w = weight {name=\"w\"} : bf16[128,64]\n  %y = linear %x, %w : f32[T,128]", body,
            "  %v = weight {name=\"v\"} : bf16[64,128]\n",
            "  %s = slice %m {axis=1, begin=0, end=32} : f32[T,32]\n",
            "  %q = weight {name=\"q\"} : bf16[100,32]\n  %h = linear %s, %q : f32[T,100]\n"),
        "h");
    for (const std::string& spec : Specs(text, CudaTarget())) {
      EXPECT_THAT(spec, Not(HasSubstr("act="))) << body;
    }
  }
}

}  // namespace
}  // namespace quire
