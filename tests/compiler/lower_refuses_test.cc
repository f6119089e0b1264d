// What lowering refuses, and how it says so.
#include <memory>
#include <string>

#include "compiler/lower.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/compiler/compile_helpers.h"

namespace quire {
namespace {

using ::testing::HasSubstr;
using testing::Lower;

struct Refusal {
  const char* name;
  const char* body;  // of a function of %ids: i32[T] and %x: f32[T,16], in which %y is returned
  const char* message;
};

class LowerRefusesTest : public ::testing::TestWithParam<Refusal> {};

TEST_P(LowerRefusesTest, NamesTheOp) {
  absl::StatusOr<plan::TargetT> target =
      Lower(absl::StrCat("func @step(%ids: i32[T]) {\n  %e = weight {name=\"embed\"} : f32[10,16]\n"
                         "  %x = embed %e, %ids : f32[T,16]\n  %h = reshape %x : f32[T,2,8]\n",
                         GetParam().body, "\n  return %y\n}\n"));
  ASSERT_FALSE(target.ok());
  EXPECT_EQ(target.status().code(), absl::StatusCode::kUnimplemented) << target.status();
  EXPECT_THAT(std::string(target.status().message()), HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    All, LowerRefusesTest,
    ::testing::Values(
        Refusal{
            "Softmax", "%y = softmax %x : f32[T,16]",
            "%y: softmax: no kernel computes this op\n  allowed: linear, attention, embed, add"},
        Refusal{"MatMul", "%y = matmul %h, %h {transpose_b=1} : f32[T,2,2]",
                "%y: matmul: no kernel computes this op"},
        Refusal{"Mask", "%y = causal_mask %h : f32[T,2,8]",
                "%y: causal_mask: no kernel computes this op"},
        Refusal{"NoCache", "%y = attention %h, %h, %h {mask=causal, scale=1} : f32[T,2,8]",
                "%y: attention: does not read K and V of one layer's cache"},
        Refusal{"TwoLayers",
                "%k = kv_append %h {layer=0, slot=k} : f16[C,2,8]\n"
                "%k2 = kv_append %h {layer=0, slot=v} : f16[C,2,8]\n"
                "%v = kv_append %h {layer=1, slot=v} : f16[C,2,8]\n"
                "%v2 = kv_append %h {layer=1, slot=k} : f16[C,2,8]\n"
                "%a = attention %h, %k, %k2 {mask=causal, scale=1} : f32[T,2,8]\n"
                "%b = attention %a, %v2, %v {mask=causal, scale=1} : f32[T,2,8]\n"
                "%y = attention %b, %k, %v {mask=causal, scale=1} : f32[T,2,8]",
                "%y: attention: does not read K and V of one layer's cache"},
        Refusal{"HeadSize",
                "%g = reshape %x : f32[T,4,4]\n"
                "%k = kv_append %g {layer=0, slot=k} : f16[C,4,4]\n"
                "%v = kv_append %g {layer=0, slot=v} : f16[C,4,4]\n"
                "%y = attention %g, %k, %v {mask=causal, scale=1} : f32[T,4,4]",
                "%y: attention: kernel spec: d=4 is not possible\n  allowed: a multiple of 8"},
        Refusal{"RankOfLinear",
                "%w = weight {name=\"w\"} : f32[4,8]\n%y = linear %h, %w : f32[T,2,4]",
                "%y: linear: f32[T,2,4] does not have rank 2"},
        Refusal{"ComputedWeight",
                "%w = weight {name=\"w\"} : f32[4,16]\n%s = scale %w {factor=2} : f32[4,16]\n"
                "%y = linear %x, %s : f32[T,4]",
                "%s: scale: no kernel computes this op on weights alone"},
        Refusal{"ReshapedWeight",
                "%w = weight {name=\"w\"} : f32[16]\n%r = reshape %w : f32[2,8]\n"
                "%y = add %h, %r : f32[T,2,8]",
                "%r: reshape: no kernel computes this op on weights alone"},
        Refusal{"HalfBetweenKernels",
                "%w = weight {name=\"w\"} : f32[16,16]\n%c = cast %x : f16[T,16]\n"
                "%y = linear %c, %w : f16[T,16]",
                "%c: cast: f16[T,16] between kernels; these values are f32"},
        Refusal{"WeightOfLinearElsewhere",
                "%g = reshape %x : f32[T,1,16]\n%u = weight {name=\"u\"} : f32[1,16]\n"
                "%s = add %g, %u : f32[T,1,16]\n%l = linear %x, %u : f32[T,1]\n"
                "%m = reshape %l : f32[T,1,1]\n%y = concat %s, %m {axis=2} : f32[T,1,17]",
                "%s: add: reads %u, which a linear reads too; only embed can"},
        Refusal{"WeightColumns",
                "%w = weight {name=\"w\"} : f32[16,32]\n"
                "%s = slice %w {axis=1, begin=0, end=16} : f32[16,16]\n"
                "%y = linear %x, %s : f32[T,16]",
                "%s: slice: cuts a weight along another axis than 0\n  allowed: weights joined"},
        Refusal{"WeightsSideBySide",
                "%w = weight {name=\"w\"} : f32[16,8]\n"
                "%s = concat %w, %w {axis=1} : f32[16,16]\n%y = linear %x, %s : f32[T,16]",
                "%s: concat: joins weights along another axis than 0"},
        Refusal{"TransposeOfPart",
                "%w = weight {name=\"w\"} : f32[32,16]\n"
                "%s = slice %w {axis=0, begin=0, end=16} : f32[16,16]\n"
                "%t = transpose %s {perm=[1,0]} : f32[16,16]\n%y = linear %x, %t : f32[T,16]",
                "%t: transpose: only a whole tensor of rank 2 can be transposed at load"},
        Refusal{"ReturnedWeight", "%y = weight {name=\"w\"} : f32[16,16]",
                "%y: weight: is returned but not computed"}),
    [](const auto& refusal) { return refusal.param.name; });

TEST(LowerRefusalTest, ALayerNeedsKAndVOnce) {
  auto message = [](absl::string_view body) {
    return std::string(
        Lower(absl::StrCat("func @step(%ids: i32[T]) {\n"
                           "  %e = weight {name=\"embed\"} : f32[10,16]\n"
                           "  %x = embed %e, %ids : f32[T,16]\n  %h = reshape %x : f32[T,2,8]\n",
                           body, "  return %y\n}\n"))
            .status()
            .message());
  };
  EXPECT_THAT(message("  %k = kv_append %h {layer=4, slot=k} : f16[C,2,8]\n"
                      "  %y = attention %h, %k, %k {mask=causal, scale=1} : f32[T,2,8]\n"),
              HasSubstr("%k: kv_append: layer 4 has no slot=v"));
  EXPECT_THAT(message("  %k = kv_append %h {layer=4, slot=k} : f16[C,2,8]\n"
                      "  %j = kv_append %h {layer=4, slot=k} : f16[C,2,8]\n"
                      "  %y = attention %h, %k, %j {mask=causal, scale=1} : f32[T,2,8]\n"),
              HasSubstr("%j: kv_append: layer 4 is appended to twice in one slot"));
  EXPECT_THAT(message("  %k = kv_append %h {layer=4, slot=k} : f16[C,2,8]\n"
                      "  %v = kv_append %h {layer=4, slot=v} : f32[C,2,8]\n"
                      "  %y = attention %h, %k, %v {mask=causal, scale=1} : f32[T,2,8]\n"),
              HasSubstr("layer 4 holds K as f16[C,2,8] and V as f32[C,2,8]"));
}

TEST(LowerRefusalTest, WeightsMustBeThoseOfTheCheckpoint) {
  constexpr absl::string_view kText = R"(func @step(%ids: i32[T]) {
  %e = weight {name="model.embed"} : f32[10,16]
  %x = embed %e, %ids : f32[T,16]
  return %x
}
)";
  TensorTable tensors;
  tensors.push_back(std::make_unique<plan::TensorT>());
  tensors[0]->name = "model.embeds";
  tensors[0]->dtype = "f32";
  tensors[0]->extents = {10, 16};
  absl::Status status = Lower(kText, &tensors).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(),
            "%e: weight: tensor model.embed is not in the checkpoint\n"
            "  fix: the nearest is model.embeds");
  tensors[0]->name = "model.embed";
  tensors[0]->extents = {10, 17};
  EXPECT_EQ(Lower(kText, &tensors).status().message(),
            "%e: weight: tensor model.embed is f32[10,17], the definition says f32[10,16]");
  tensors[0]->extents = {10, 16};
  tensors[0]->dtype = "f8";
  EXPECT_EQ(Lower(kText, &tensors).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace quire
