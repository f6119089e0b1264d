#include "codegen/spec.h"

#include <string>

#include "gtest/gtest.h"

namespace quire {
namespace {

constexpr char kLinear[] = "linear n=16 k=32 w=f16 x=f16 y=bf16 bias=1 residual=0 layout=rows";
constexpr char kAttention[] =
    "attention hq=8 hkv=4 d=8 dv=16 kv=f16 page=16 mask=causal window=32 scale=0.25 cap=0 alibi=0";
constexpr char kRow[] = "func @row(%0: f32[T,8]) {\n  return %0\n}\n";

TEST(SpecTest, CanonicalTextIsWhatParsingAndPrintingGive) {
  const std::string linear = kLinear, attention = kAttention;
  const std::string wide = "linear n=56 k=32 w=f16 x=f16 y=bf16 bias=0 residual=0 layout=rows";
  for (const std::string& text :
       {linear,
        attention,
        std::string("row ") + kRow,
        std::string("row page=16 ") + kRow,
        attention + " x=bf16",
        attention + " x=f16 bias=128 sinks=1 tree=2",
        linear + " norm=rms eps=0.00001 offset=1 norm_w=bf16 norm_b=none act=gelu_tanh gated=1",
        linear + " norm=layer eps=0.5 offset=0 norm_w=f32 norm_b=f16",
        linear + " norm=layer eps=0.5 offset=0 norm_w=none norm_b=none act=relu",
        linear + " quantize=row most=1200 row_scales=1",
        linear + " quantize=16 most=0 act=silu",
        linear + " norm=layer eps=0.5 offset=0 norm_w=none norm_b=none quantize=scale most=0",
        linear + " act=silu",
        linear + " act=gelu",
        linear + " act=gelu_quick",
        linear + " act=tanh",
        linear + " act=sigmoid gated=1",
        linear + " append=1 heads=1 d=8 dv=8 page=16",
        linear + " norm=rms eps=0.5 offset=0 norm_w=none norm_b=none append=1 heads=1 d=8 dv=8 "
                 "page=1",
        linear + " append=1 heads=1 d=8 dv=8 page=16 rope=theta=500000,style=interleave,"
                 "scaling=dynamic,scale_factor=4,original_tokens=8192 factors=f32",
        wide + " append=1 heads=1 d=16 dv=8 page=16 rope=theta=10000"}) {
    const auto spec = ParseSpec(text);
    ASSERT_TRUE(spec.ok()) << spec.status();
    EXPECT_EQ(SpecText(*spec), text);
  }
}

TEST(SpecTest, TitlesAreOneLine) {
  EXPECT_EQ(SpecTitle(kLinear), kLinear);
  EXPECT_EQ(SpecTitle("row func @row(%0: i32[T], %1: f32[4,8]) {\n  %a = embed %1, %0 : f32[T,8]\n"
                      "  %b = silu %a : f32[T,8]\n  return %b\n}\n"),
            "row: embed, silu");
}

TEST(SpecTest, FieldsOfALinear) {
  const auto spec = ParseSpec(
      std::string(kLinear) + " norm=layer eps=0.5 offset=0 norm_w=f32 norm_b=f16 act=silu gated=1");
  ASSERT_TRUE(spec.ok()) << spec.status();
  const auto& linear = std::get<LinearSpec>(*spec);
  EXPECT_EQ(linear.x, DType::kF16);
  EXPECT_EQ(linear.y, DType::kBF16);
  ASSERT_TRUE(linear.norm.has_value());
  EXPECT_EQ(linear.norm->kind, NormSpec::Kind::kLayer);
  EXPECT_EQ(linear.norm->eps, 0.5);
  EXPECT_EQ(linear.norm->weight, DType::kF32);
  EXPECT_EQ(linear.norm->bias, DType::kF16);
  EXPECT_EQ(linear.act, LinearAct::kSilu);
  EXPECT_EQ(linear.n, 16);
  EXPECT_EQ(linear.weight_rows(), 32);
}

TEST(SpecTest, AFieldAtItsDefaultIsNotPrinted) {
  const auto attention = ParseSpec(std::string(kAttention) + " x=f32");
  ASSERT_TRUE(attention.ok()) << attention.status();
  EXPECT_EQ(SpecText(*attention), kAttention);
  const auto linear = ParseSpec(std::string(kLinear) + " act=none");
  ASSERT_TRUE(linear.ok()) << linear.status();
  EXPECT_EQ(SpecText(*linear), kLinear);
}

TEST(SpecTest, RefusesWhatNoKernelIsFor) {
  const std::string linear = kLinear;
  const std::string residual = "linear n=16 k=32 w=f16 x=f16 y=f16 bias=0 residual=1 layout=rows";
  const std::string turned =
      "linear n=56 k=32 w=f16 x=f16 y=bf16 bias=0 residual=0 layout=rows append=1 heads=1 d=16 "
      "dv=8 page=1";
  for (const std::string& text :
       {std::string("linear n=16 k=32 w=f16 x=q8_0 y=f16 bias=0 residual=0 layout=rows"),
        linear + " norm=rms eps=0 offset=0 norm_w=f32 norm_b=f32",
        linear + " norm=layer eps=0 offset=0 norm_w=none norm_b=f32",
        linear + " norm=layer eps=0 offset=1 norm_w=f32 norm_b=f32",
        linear + " norm=rms eps=0 offset=0 norm_w=q8_0 norm_b=none",
        linear + " norm=rms offset=0 norm_w=f32 norm_b=none",
        linear + " norm=mean eps=0 offset=0 norm_w=f32 norm_b=none",
        linear + " eps=0",
        linear + " act=swish",
        linear + " gated=1",
        residual + " act=silu",
        linear + " append=1",
        linear + " append=1 heads=1 d=4 dv=8 page=16",
        linear + " append=2 heads=1 d=8 dv=8 page=16",
        residual + " append=1 heads=1 d=8 dv=8 page=1",
        linear + " act=silu append=1 heads=1 d=8 dv=8 page=1",
        linear + " rope=theta=10000",
        turned + " rope=theta=10000 factors=q8_0",
        turned + " factors=f32",
        turned + " rope=theta=10000,dims=8",
        turned + " rope=theta=0",
        turned + " rope=theta=10000,eps=1",
        turned + " rope=theta=10000,style=half",
        turned + " rope=theta=10000}",
        turned + " rope=",
        linear + " append=1 heads=1 d=8 dv=8 page=1 rope=theta=10000",
        std::string("linear n=48 k=32 w=f16 x=f16 y=bf16 bias=0 residual=0 layout=rows append=1 "
                    "heads=1 d=16 dv=8 page=1 rope=theta=10000"),
        std::string("linear n=96 k=32 w=f16 x=f16 y=bf16 bias=0 residual=0 layout=rows append=2 "
                    "heads=1 d=16 dv=16 page=1 rope=theta=10000"),
        std::string(kAttention) + " x=q8_0",
        std::string(kAttention) + " y=f32",
        std::string("row page=0 ") + kRow,
        std::string("row pages=16 ") + kRow,
        std::string("rows ") + kRow}) {
    EXPECT_EQ(ParseSpec(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

}  // namespace
}  // namespace quire
