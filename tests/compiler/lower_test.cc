#include "compiler/lower.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/compiler/compile_helpers.h"

namespace quire {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::Lower;
using testing::Specs;

std::string OperandText(const plan::TargetT& target, const plan::Operand& operand) {
  const plan::ProgramT& program = *target.programs[0];
  switch (operand.kind()) {
    case plan::OperandKind::Argument:
      return program.arguments[operand.index()]->name;
    case plan::OperandKind::Buffer:
      return program.buffers[operand.index()]->name;
    case plan::OperandKind::Weight:
      return target.weights[operand.index()]->name;
    case plan::OperandKind::KvLayer:
      return absl::StrCat("kv", target.kv_layers[operand.index()]->layer);
    default:
      return "none";
  }
}

// "T kernel 3: x, w -> y" for each launch.
std::vector<std::string> Launches(const plan::TargetT& target) {
  std::vector<std::string> texts;
  auto append = [&target](std::string* out, const plan::Operand& operand) {
    out->append(OperandText(target, operand));
  };
  for (const auto& launch : target.programs[0]->launches) {
    texts.push_back(absl::StrCat(launch->rows, " kernel ", launch->kernel, ": ",
                                 absl::StrJoin(launch->inputs, ", ", append), " -> ",
                                 absl::StrJoin(launch->outputs, ", ", append)));
  }
  return texts;
}

// One layer with a tied head, over a cache, with wanted rows.
constexpr absl::string_view kDecoder = R"(
func @step(%ids: i32[T], %pos: i32[T], %rows: i32[R]) {
  %embed.w = weight {name="embed"} : f16[100,64]
  %x = embed %embed.w, %ids : f32[T,64]
  %norm.w = weight {name="norm"} : f32[64]
  %n = rms_norm %x, %norm.w {eps=0.00001} : f32[T,64]
  %q.w = weight {name="q"} : bf16[64,64]
  %k.w = weight {name="k"} : bf16[32,64]
  %v.w = weight {name="v"} : bf16[32,64]
  %qkv.w = concat %q.w, %k.w, %v.w {axis=0} : bf16[128,64]
  %qkv = linear %n, %qkv.w : f32[T,128]
  %q = slice %qkv {axis=1, begin=0, end=64} : f32[T,64]
  %k = slice %qkv {axis=1, begin=64, end=96} : f32[T,32]
  %v = slice %qkv {axis=1, begin=96, end=128} : f32[T,32]
  %qh = reshape %q : f32[T,8,8]
  %kh = reshape %k : f32[T,4,8]
  %vh = reshape %v : f32[T,4,8]
  %qr = rope %qh, %pos {theta=10000} : f32[T,8,8]
  %kr = rope %kh, %pos {theta=10000} : f32[T,4,8]
  %kc = kv_append %kr {layer=5, slot=k} : f16[C,4,8]
  %vc = kv_append %vh {layer=5, slot=v} : f16[C,4,8]
  %a = attention %qr, %kc, %vc {mask=causal, window=32, scale=0.25} : f32[T,8,8]
  %a_rows = take %a, %rows : f32[R,8,8]
  %x_rows = take %x, %rows : f32[R,64]
  %o = reshape %a_rows : f32[R,64]
  %o.w = weight {name="o"} : bf16[64,64]
  %o.t = transpose %o.w {perm=[1,0]} : bf16[64,64]
  %o.b = weight {name="ob"} : bf16[64]
  %y = linear %o, %o.t, %o.b : f32[R,64]
  %z = add %x_rows, %y : f32[R,64]
  %n2 = rms_norm %z, %norm.w {eps=0.00001} : f32[R,64]
  %logits = linear %n2, %embed.w : f32[R,100]
  return %logits
}
)";

TEST(LowerTest, OneLayer) {
  absl::StatusOr<plan::TargetT> target = Lower(kDecoder);
  ASSERT_TRUE(target.ok()) << target.status();
  EXPECT_THAT(Launches(*target),
              ElementsAre("T kernel 0: ids, embed.w, norm.w -> x, n",   //
                          "T kernel 1: n, qkv.w -> qkv",                //
                          "R kernel 2: x, rows -> x_rows",              //
                          "T kernel 3: qkv, pos, kv5, kv5 -> qr",       //
                          "T kernel 4: qr, kv5 -> a",                   //
                          "R kernel 5: a, rows -> a_rows",              //
                          "R kernel 6: a_rows, o.t, o.b, x_rows -> z",  //
                          "R kernel 7: z, norm.w -> n2",                //
                          "R kernel 8: n2, embed.w -> logits"));
  EXPECT_THAT(
      Specs(*target),
      ElementsAre(
          // The tied table keeps the linear's layout.
          R"(row func @row(%0: i32[T], %1.rows16: f16[100,64], %2: f32[64]) {
  %v0 = embed %1.rows16, %0 : f32[T,64]
  %v1 = rms_norm %v0, %2 {eps=0.00001} : f32[T,64]
  return %v0, %v1
}
)",
          "linear n=128 k=64 w=bf16 x=f32 y=f32 bias=0 residual=0 layout=rows16",
          R"(row func @row(%0: f32[T,64], %1: i32[R]) {
  %v0 = take %0, %1 : f32[R,64]
  return %v0
}
)",
          // Layer 5 is the first one of this kernel, and its append has no return.
          R"(row func @row(%0: f32[T,128], %1: i32[T]) {
  %v0 = slice %0 {axis=1, begin=0, end=64} : f32[T,64]
  %v1 = slice %0 {axis=1, begin=64, end=96} : f32[T,32]
  %v2 = slice %0 {axis=1, begin=96, end=128} : f32[T,32]
  %v3 = reshape %v0 : f32[T,8,8]
  %v4 = rope %v3, %1 {theta=10000} : f32[T,8,8]
  %v5 = reshape %v1 : f32[T,4,8]
  %v6 = rope %v5, %1 {theta=10000} : f32[T,4,8]
  %v7 = kv_append %v6 {layer=0, slot=k} : f16[C,4,8]
  %v8 = reshape %v2 : f32[T,4,8]
  %v9 = kv_append %v8 {layer=0, slot=v} : f16[C,4,8]
  return %v4
}
)",
          "attention hq=8 hkv=4 d=8 dv=8 kv=f16 page=16 mask=causal window=32 scale=0.25 cap=0 "
          "alibi=0",
          R"(row func @row(%0: f32[T,8,8], %1: i32[R]) {
  %v0 = take %0, %1 : f32[R,8,8]
  return %v0
}
)",
          "linear n=64 k=64 w=bf16 x=f32 y=f32 bias=1 residual=1 layout=rows16",
          // Rows R are written T where no rows are taken.
          R"(row func @row(%0: f32[T,64], %1: f32[64]) {
  %v0 = rms_norm %0, %1 {eps=0.00001} : f32[T,64]
  return %v0
}
)",
          "linear n=100 k=64 w=f16 x=f32 y=f32 bias=0 residual=0 layout=rows16"));
}

TEST(LowerTest, WeightsAndLayersOfOneLayer) {
  absl::StatusOr<plan::TargetT> target = Lower(kDecoder);
  ASSERT_TRUE(target.ok()) << target.status();
  std::vector<std::string> slots;
  for (const auto& slot : target->weights) {
    slots.push_back(absl::StrCat(slot->name, " ", slot->dtype, "[",
                                 absl::StrJoin(slot->extents, ","), "] ", slot->layout));
    for (const auto& part : slot->parts) {
      absl::StrAppend(&slots.back(), " ", part->tensor, part->transposed ? "^T" : "", ":",
                      part->row_begin, "-", part->row_end);
    }
  }
  EXPECT_THAT(slots, ElementsAre("embed.w f16[100,64] rows16 0:0-100",  //
                                 "norm.w f32[64] rows 1:0-64",          //
                                 "qkv.w bf16[128,64] rows16 2:0-64 3:0-32 4:0-32",
                                 "o.t bf16[64,64] rows16 5^T:0-64",  //
                                 "o.b bf16[64] rows 6:0-64"));
  ASSERT_EQ(target->kv_layers.size(), 1u);
  const plan::KvLayerT& layer = *target->kv_layers[0];
  EXPECT_EQ(layer.layer, 5);
  EXPECT_EQ(layer.heads, 4);
  EXPECT_EQ(layer.k_dim, 8);
  EXPECT_EQ(layer.v_dim, 8);
  EXPECT_EQ(layer.dtype, "f16");
  EXPECT_EQ(layer.window, 32);
  EXPECT_EQ(target->page_tokens, 16);
  EXPECT_EQ(target->name, "cpu");
}

TEST(LowerTest, BuffersOfOneLayer) {
  absl::StatusOr<plan::TargetT> target = Lower(kDecoder);
  ASSERT_TRUE(target.ok()) << target.status();
  const plan::ProgramT& program = *target->programs[0];
  EXPECT_EQ(program.name, "step");
  auto text = [](const plan::Linear& x) {
    return absl::StrCat(x.constant(), "+", x.t(), "T+", x.r(), "R");
  };
  std::vector<std::string> buffers;
  for (const auto& buffer : program.buffers) {
    buffers.push_back(absl::StrCat(buffer->name, " ", buffer->dtype, "[",
                                   absl::StrJoin(buffer->extents, ","), "] ", text(*buffer->bytes),
                                   " at ", text(*buffer->offset)));
  }
  // By hand. Live from the first to the last of launches 0 .. 8, results to 9:
  //   x 0-2, n 0-1, qkv 1-3, x_rows 2-6, qr 3-4, a 4-5, a_rows 5-6, z 6-7, n2 7-8, logits 8-9.
  // Placed by growth with T: qkv at 0; x behind it, n behind both; qr where x was; a where qkv was.
  // Then those with R rows: logits (448 R with rounding) at 0; x_rows behind qkv, x, qr and a;
  // a_rows between a and x_rows; z at 0; n2 behind z and logits.
  EXPECT_THAT(buffers, ElementsAre("x f32[T,64] 0+256T+0R at 0+512T+0R",        //
                                   "n f32[T,64] 0+256T+0R at 0+768T+0R",        //
                                   "qkv f32[T,128] 0+512T+0R at 0+0T+0R",       //
                                   "x_rows f32[R,64] 0+0T+256R at 0+768T+0R",   //
                                   "qr f32[T,8,8] 0+256T+0R at 0+512T+0R",      //
                                   "a f32[T,8,8] 0+256T+0R at 0+0T+0R",         //
                                   "a_rows f32[R,8,8] 0+0T+256R at 0+256T+0R",  //
                                   "z f32[R,64] 0+0T+256R at 0+0T+0R",          //
                                   "n2 f32[R,64] 0+0T+256R at 0+0T+448R",       //
                                   "logits f32[R,100] 0+0T+400R at 0+0T+0R"));
  // 1024 T up to n's end covers x_rows' end at 768 T + 256 R.
  EXPECT_EQ(text(*program.arena), "0+1024T+0R");
  ASSERT_EQ(program.results.size(), 1u);
  EXPECT_EQ(OperandText(*target, program.results[0]), "logits");
  std::vector<std::string> arguments;
  for (const auto& argument : program.arguments) {
    arguments.push_back(absl::StrCat(argument->name, " ", argument->dtype, "[",
                                     absl::StrJoin(argument->extents, ","), "]"));
  }
  EXPECT_THAT(arguments, ElementsAre("ids i32[T]", "pos i32[T]", "rows i32[R]"));
  EXPECT_THAT(program.ir, HasSubstr("%z = add %x_rows, %y : f32[R,64] @6\n"));
}

TEST(LowerTest, LayersShareKernels) {
  absl::StatusOr<plan::TargetT> target = Lower(R"(
func @step(%ids: i32[T]) {
  %w = weight {name="embed"} : f32[10,16]
  %x = embed %w, %ids : f32[T,16]
  %h = reshape %x : f32[T,2,8]
  %k0 = kv_append %h {layer=0, slot=k} : f16[C,2,8]
  %v0 = kv_append %h {layer=0, slot=v} : f16[C,2,8]
  %a0 = attention %h, %k0, %v0 {mask=causal, scale=1} : f32[T,2,8]
  %s0 = silu %a0 : f32[T,2,8]
  %k1 = kv_append %s0 {layer=1, slot=k} : f16[C,2,8]
  %v1 = kv_append %s0 {layer=1, slot=v} : f16[C,2,8]
  %a1 = attention %s0, %k1, %v1 {mask=causal, scale=1} : f32[T,2,8]
  %s1 = silu %a1 : f32[T,2,8]
  %k2 = kv_append %s1 {layer=2, slot=k} : f16[C,2,8]
  %v2 = kv_append %s1 {layer=2, slot=v} : f16[C,2,8]
  %a2 = attention %s1, %k2, %v2 {mask=causal, scale=1} : f32[T,2,8]
  return %a2
}
)");
  ASSERT_TRUE(target.ok()) << target.status();
  EXPECT_THAT(Launches(*target), ElementsAre("T kernel 0: ids, w, kv0, kv0 -> x",  //
                                             "T kernel 1: x, kv0 -> a0",           //
                                             "T kernel 2: a0, kv1, kv1 -> s0",     //
                                             "T kernel 1: s0, kv1 -> a1",          //
                                             "T kernel 2: a1, kv2, kv2 -> s1",     //
                                             "T kernel 1: s1, kv2 -> a2"));
}

// q is a projection of its own: the group of k and v has nothing to hand on.
TEST(LowerTest, AGroupThatOnlyAppendsReturnsWhatItAppends) {
  absl::StatusOr<plan::TargetT> target = Lower(R"(
func @step(%ids: i32[T]) {
  %e = weight {name="embed"} : f32[10,16]
  %x = embed %e, %ids : f32[T,16]
  %qw = weight {name="q"} : f32[16,16]
  %q = linear %x, %qw : f32[T,16]
  %kw = weight {name="k"} : f16[16,16]
  %k = linear %x, %kw : f32[T,16]
  %qh = reshape %q : f32[T,2,8]
  %kh = reshape %k : f32[T,2,8]
  %kc = kv_append %kh {layer=0, slot=k} : f16[C,2,8]
  %vc = kv_append %kh {layer=0, slot=v} : f16[C,2,8]
  %a = attention %qh, %kc, %vc {mask=causal, scale=1} : f32[T,2,8]
  return %a
}
)");
  ASSERT_TRUE(target.ok()) << target.status();
  EXPECT_THAT(Launches(*target), ElementsAre("T kernel 0: ids, e -> x",        //
                                             "T kernel 1: x, qw -> q",         //
                                             "T kernel 2: x, kw -> k",         //
                                             "T kernel 3: k, kv0, kv0 -> kh",  //
                                             "T kernel 4: q, kv0 -> a"));
  EXPECT_THAT(Specs(*target)[3], HasSubstr("%v0 = reshape %0 : f32[T,2,8]\n"));
}

// A merged weight cut again names rows of the tensors.
TEST(LowerTest, SlicesOfJoinedWeightsAreRowsOfTensors) {
  absl::StatusOr<plan::TargetT> target = Lower(R"(
func @step(%ids: i32[T]) {
  %e = weight {name="embed"} : f32[10,16]
  %x = embed %e, %ids : f32[T,16]
  %a = weight {name="a"} : f32[16,16]
  %b = weight {name="b"} : f32[32,16]
  %ab = concat %a, %b {axis=0} : f32[48,16]
  %w = slice %ab {axis=0, begin=8, end=40} : f32[32,16]
  %y = linear %x, %w : f32[T,32]
  return %y
}
)");
  ASSERT_TRUE(target.ok()) << target.status();
  const auto& parts = target->weights[1]->parts;
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts[0]->tensor, 1u);
  EXPECT_EQ(parts[0]->row_begin, 8);
  EXPECT_EQ(parts[0]->row_end, 16);
  EXPECT_EQ(parts[1]->tensor, 2u);
  EXPECT_EQ(parts[1]->row_begin, 0);
  EXPECT_EQ(parts[1]->row_end, 24);
}

}  // namespace
}  // namespace quire
