#include "ir/text.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace quire {
namespace {

using ::testing::HasSubstr;

constexpr absl::string_view kLayer = R"(func @layer(%x: f32[T,64], %pos: i32[T]) {
  %wq = weight {name="q.weight"} : bf16[64,64]
  %q = linear %x, %wq : f32[T,64]
  %qh = reshape %q : f32[T,4,16]
  %qr = rope %qh, %pos {theta=500000} : f32[T,4,16]
  %a = attention %qr, %qr, %qr {mask=causal, scale=0.25} : f32[T,4,16] @3
  %y = reshape %a : f32[T,64]
  %z = add %y, %x : f32[T,64]
  return %z
}
)";

TEST(TextTest, PrintIsAFixpoint) {
  absl::StatusOr<Module> module = Parse(kLayer);
  ASSERT_TRUE(module.ok()) << module.status();
  EXPECT_EQ(Print(*module), std::string(kLayer));
}

TEST(TextTest, DefaultsAndCommentsAreDropped) {
  absl::StatusOr<Module> module = Parse(
      "func @f(%x: f32[T,4,8], %pos: i32[T]) {  // a comment\n"
      "  %y = rope %x, %pos {style=half,theta=1e4} : f32[T,4,8]\n  return %y\n}\n");
  ASSERT_TRUE(module.ok()) << module.status();
  EXPECT_THAT(Print(*module), HasSubstr("%y = rope %x, %pos {theta=10000} : f32[T,4,8]\n"));
}

struct BadText {
  const char* body;
  const char* message;
};

class BadTextTest : public testing::TestWithParam<BadText> {};

TEST_P(BadTextTest, SaysWhereAndWhat) {
  const std::string text =
      absl::StrCat("func @f(%x: f32[T,8], %i: i32[T]) {\n  ", GetParam().body, "\n}\n");
  absl::StatusOr<Module> module = Parse(text, "a.qir");
  ASSERT_FALSE(module.ok());
  EXPECT_EQ(module.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(module.status().message()), HasSubstr(GetParam().message));
  EXPECT_THAT(std::string(module.status().message()), HasSubstr("\n  fix: "));
}

INSTANTIATE_TEST_SUITE_P(
    All, BadTextTest,
    testing::Values(
        BadText{"%y = sillu %x : f32[T,8]",
                "a.qir:2:8: unknown op sillu\n  fix: did you mean silu?"},
        BadText{"%y = silu %z : f32[T,8]",
                "a.qir:2:14: %z is not defined\n  fix: did you mean %x?"},
        BadText{"%y = silu %x : f32[T,9]",
                "type f32[T,9] is declared, f32[T,8] is computed\n  fix: declare f32[T,8]"},
        BadText{"%x = silu %x : f32[T,8]", "%x is defined twice"},
        BadText{"%y = silu %i : i32[T]", "operand x: i32[T] is not f32, f16 or bf16"},
        BadText{"%y = rms_norm %x : f32[T,8]", "attribute eps is missing"},
        BadText{"%y = rms_norm %x {eps=nan} : f32[T,8]", "eps=nan is out of range"},
        BadText{"%y = rms_norm %x {epsilon=1} : f32[T,8]",
                "attribute epsilon does not belong to rms_norm\n  allowed: eps, weight_offset"},
        BadText{"%y = silu %x {eps=1} : f32[T,8]",
                "attribute eps does not belong to silu\n  allowed: none"},
        BadText{"%y = convolve %x : f32[T,8]", "unknown op convolve\n  fix: quire dump --ops"},
        BadText{"%y = silu %x : fp8[T,8]", "unknown element type fp8\n  allowed: f32, f16, bf16"},
        BadText{"%y = gelu %x {approximate=erf} : f32[T,8]", "allowed: none, tanh, quick"},
        BadText{"%y = reshape %x : f32[T,3,3]", "cannot be reshaped to f32[T,3,3]"},
        BadText{"%y = transpose %x {perm=[1,1]} : f32[8,8]", "is not permuted by perm=[1,1]"},
        BadText{"%y = slice %x {axis=1, begin=4, end=9} : f32[T,5]",
                "has no range [4, 9) along axis 1"},
        BadText{"%y = slice %x {axis=0, begin=0, end=1} : f32[1,8]",
                "has no fixed extent along axis 0"},
        BadText{"%w = weight {name=\"w\"} : q4_k[8,8]", "the last extent is not a multiple of 256"},
        BadText{"%w = weight {name=\"w\"} : q8_0[8,64]\n  %y = reshape %w : q8_0[8,4,16]",
                "a.qir:3:8: reshape: q8_0[8,4,16]: the last extent is not a multiple of 32"},
        BadText{"%w = weight {name=\"w\"} : f32[1099511627776,1099511627776]", "overflow 64 bits"},
        BadText{"%w = weight {name=\"w\"} : f32[99999999999999999999]",
                "extent 99999999999999999999"},
        BadText{"%y = add %x, %i : f32[T,8]", "operand b: i32[T]"},
        BadText{"%y = silu %x, %x : f32[T,8]", "2 operands\n  allowed: (x)"},
        BadText{"%y = concat {axis=0} : f32[T,8]", "0 operands\n  allowed: (xs...)"},
        BadText{"%y = silu %x : f32[T,8]",
                "expected an op or return\n  fix: %name = op %operand, ... {attribute=value, ...} "
                ": type"},
        BadText{"%w = weight {name=\"w : f32[8]", "unterminated string"}));

}  // namespace
}  // namespace quire
