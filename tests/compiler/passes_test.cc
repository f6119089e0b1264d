// What passes say: reasons to decline, savings, refusals. What they do to the text is in the .qir
// files beside this one.
#include <fstream>
#include <sstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/compiler/compile_helpers.h"
#include "tests/testdata.h"

namespace quire {
namespace {

using ::testing::HasSubstr;

// The notes of one pass over a text file beside this one.
std::string NotesOf(absl::string_view file, absl::string_view pass) {
  std::stringstream text;
  text << std::ifstream(TestData(absl::StrCat("compiler/", file))).rdbuf();
  absl::StatusOr<testing::Rewritten> rewritten = testing::Rewrite(text.str(), pass);
  return rewritten.ok() ? rewritten->notes() : std::string(rewritten.status().message());
}

TEST(RecogniseAttentionTest, SaysWhyItDeclines) {
  EXPECT_EQ(NotesOf("recognise_attention_declines.qir", "recognise-attention"),
            R"(recognise-attention %probs: declined: the softmax has no matmul as user
recognise-attention %pv: declined: the softmax is the right side of its product
recognise-attention %pv: declined: %biased: add is not a step of attention
recognise-attention %pv: declined: %first: causal_mask stands twice
recognise-attention %pv: declined: %first: alibi stands twice
recognise-attention %pv: declined: %first: softcap stands twice
recognise-attention %pv: declined: %masked: causal_mask stands before the scale or the softcap
recognise-attention %pv: declined: %biased: alibi stands before the scale or the softcap
recognise-attention %pv: declined: %capped: softcap stands before the scale
recognise-attention %pv: declined: the scores do not have rank 3
recognise-attention %pv: declined: the number of heads and the head size are not fixed
recognise-attention %pv: declined: scale=-1 is out of the range of attention
)");
}

TEST(RemoveKvExpansionTest, SaysWhatItSavesAndWhyItDeclines) {
  EXPECT_THAT(NotesOf("remove_kv_expansion.qir", "remove-kv-expansion"),
              HasSubstr("%a: K/V bytes for each context token: 512 => 128\n"));
  EXPECT_EQ(NotesOf("remove_kv_expansion_declines.qir", "remove-kv-expansion"),
            R"(remove-kv-expansion %a: declined: %kx has order=tile
remove-kv-expansion %a: declined: %v is not expanded, the other of k and v is
remove-kv-expansion %a: declined: %kx has group=4, %vx has group=8
)");
}

TEST(MergeProjectionsTest, SaysWhyItDeclines) {
  const std::string notes = NotesOf("merge_projections_declines.qir", "merge-projections");
  EXPECT_THAT(notes, HasSubstr("%a: declined: %w is read by another op too\n"));
  EXPECT_THAT(notes, HasSubstr("%a: declined: %a.s is computed\n"));
  EXPECT_THAT(notes, HasSubstr("%b: declined: no other projection of its input has the same "
                               "element types\n"));
}

TEST(SplitCrossQkvTest, SaysWhatItSavesAndWhyItDeclines) {
  EXPECT_THAT(NotesOf("split_cross_qkv.qir", "split-cross-qkv"),
              HasSubstr("split-cross-qkv %px: multiply-adds for each row: 12288 => 4096\n"
                        "split-cross-qkv %pm: multiply-adds for each row: 12288 => 8192\n"));
  EXPECT_EQ(NotesOf("split_cross_qkv_declines.qir", "split-cross-qkv"),
            R"(split-cross-qkv %px: declined: %ws is computed
split-cross-qkv %pm: declined: %ws is computed
split-cross-qkv %px: declined: it is returned
split-cross-qkv %pm: declined: it is returned
split-cross-qkv %px: declined: %hx: reshape reads it, which is no slice of its columns
split-cross-qkv %pm: declined: %hm: reshape reads it, which is no slice of its columns
split-cross-qkv %px: declined: its first and its last column are read
split-cross-qkv %pm: declined: its first and its last column are read
)");
}

// What split-phases says of a function of decoder rows x and encoder rows m.
std::string SplitNotes(absl::string_view ops, absl::string_view result) {
  absl::StatusOr<testing::Rewritten> rewritten =
      testing::Rewrite(absl::StrCat("func @step(%x: f32[T,2,8], %m: f32[S,2,8]) {\n", ops,
                                    "  return ", result, "\n}"),
                       "split-phases");
  return rewritten.ok() ? rewritten->notes() : std::string(rewritten.status().message());
}

TEST(SplitPhasesTest, SaysWhatItSavesAndWhyItDeclines) {
  EXPECT_THAT(NotesOf("split_phases.qir", "split-phases"),
              HasSubstr("%l0.a: layer 0 keeps 128 bytes for each encoder token; multiply-adds for "
                        "each of them in a step: 4096 => 0\n"));
  EXPECT_THAT(NotesOf("split_phases_declines.qir", "split-phases"),
              HasSubstr("declined: %a: attention: reads %k, encoder rows, other than as K or V"));
  constexpr absl::string_view kAttend = "  %a = attention %x, %m, %m {scale=1} : f32[T,2,8]\n";
  EXPECT_THAT(SplitNotes("  %y = silu %x : f32[T,2,8]\n", "%y"),
              HasSubstr("declined: nothing reads the encoder's output"));
  EXPECT_THAT(SplitNotes(absl::StrCat(kAttend, "  %y = silu %m : f32[S,2,8]\n"), "%a, %y"),
              HasSubstr("declined: %y: silu: depends on encoder inputs alone"));
  EXPECT_THAT(SplitNotes("  %a = attention %m, %x, %x {scale=1} : f32[S,2,8]\n", "%a"),
              HasSubstr("declined: %a: attention: reads %m, encoder rows, other than as K or V"));
  EXPECT_THAT(SplitNotes("  %t = transpose %m {perm=[1,0,2]} : f32[2,S,8]\n"
                         "  %n = transpose %t {perm=[1,0,2]} : f32[S,2,8]\n"
                         "  %a = attention %x, %n, %n {scale=1} : f32[T,2,8]\n",
                         "%a"),
              HasSubstr("declined: %t: transpose: mixes rows"));
  EXPECT_THAT(SplitNotes(absl::StrCat("  %k = kv_read {layer=0, slot=k} : f16[S,2,8]\n", kAttend),
                         "%a, %k"),
              HasSubstr("declined: %k: kv_read: reads what an encoder left before"));
  EXPECT_THAT(NotesOf("cache_kv.qir", "split-phases"),
              HasSubstr("declined: there are several functions"));
  EXPECT_THAT(NotesOf("cache_kv_refuses.qir", "split-phases"),
              HasSubstr("declined: there are no encoder inputs"));
}

TEST(SplitRowsTest, SaysWhatRunsInEveryStepAndLeavesTheRest) {
  EXPECT_EQ(NotesOf("split_rows.qir", "split-rows"),
            "split-rows %encode_every_step: runs in every step; multiply-adds for each encoder "
            "token: 4096\n");
  EXPECT_THAT(NotesOf("split_rows_declines.qir", "split-rows"),
              HasSubstr("declined: %a: attention: reads %k, encoder rows, other than as K or V"));
  EXPECT_EQ(NotesOf("cache_kv.qir", "split-rows"), "");
  EXPECT_EQ(NotesOf("cache_kv_refuses.qir", "split-rows"), "");
  const auto after = testing::Rewrite(
      "func @step(%x: f32[T,2,8], %m: f32[S,2,8]) {\n"
      "  %a = attention %x, %m, %m {scale=1} : f32[T,2,8]\n"
      "  return %a\n}",
      "split-phases,split-rows");
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_NE(after->module.Find("encode"), nullptr);
  EXPECT_FALSE(after->reports[1].changed);
}

TEST(NarrowOutputsTest, SaysWhatItSaves) {
  const std::string notes = NotesOf("narrow_outputs.qir", "narrow-outputs");
  EXPECT_THAT(notes, HasSubstr("%y: multiply-adds for each row without logits: 4096 => 0\n"));
  EXPECT_THAT(notes, HasSubstr("%y: declined: the result has no rows T\n"));
}

struct Refusal {
  const char* name;
  const char* body;  // of a function of %x: f32[T,8], %h: f32[T,2,8], %i: i32[T], %p: f32[4,T]
  const char* message;
};

class CacheKvRefusesTest : public ::testing::TestWithParam<Refusal> {};

TEST_P(CacheKvRefusesTest, NamesTheOp) {
  const std::string text =
      absl::StrCat("func @step(%x: f32[T,8], %h: f32[T,2,8], %i: i32[T], %p: f32[4,T]) {\n",
                   GetParam().body, "\n  return %y\n}\n");
  absl::StatusOr<testing::Rewritten> rewritten = testing::Rewrite(text, "cache-kv");
  ASSERT_FALSE(rewritten.ok()) << rewritten->text();
  EXPECT_EQ(rewritten.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(rewritten.status().message(), absl::StrCat("cache-kv: %y: ", GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    All, CacheKvRefusesTest,
    ::testing::Values(
        Refusal{"Attention", "%y = attention %h, %h, %h {scale=1} : f32[T,2,8]",
                "attention: mixes rows: mask=none lets a row read rows after it"},
        Refusal{"OtherRows",
                "%k = weight {name=\"k\"} : f32[S,2,8]\n"
                "%y = attention %h, %k, %k {mask=causal, scale=1} : f32[T,2,8]",
                "attention: %k does not have T as rows"},
        Refusal{"Mask", "%y = causal_mask %h : f32[T,2,8]",
                "causal_mask: mixes rows: it depends on where a row stands"},
        Refusal{"Embed", "%y = embed %x, %i : f32[T,8]", "embed: mixes rows: its table has rows"},
        Refusal{"Take", "%y = take %x, %i : f32[T,8]", "take: mixes rows: it picks rows by number"},
        Refusal{"MatMul",
                "%w = weight {name=\"w\"} : f32[4,8]\n"
                "%y = matmul %p, %x : f32[4,8]",
                "matmul: mixes rows: %p has T on another axis than the first"},
        Refusal{"ProductOfRows", "%y = matmul %x, %x {transpose_b=1} : f32[T,T]",
                "matmul: mixes rows: its result f32[T,T] does not keep T as axis 0"},
        Refusal{"Transpose", "%y = transpose %x {perm=[1,0]} : f32[8,T]",
                "transpose: mixes rows: its result f32[8,T] does not keep T as axis 0"},
        Refusal{"Reshape", "%y = reshape %x : f32[8,T]",
                "reshape: mixes rows: its result f32[8,T] does not keep T as axis 0"},
        Refusal{"Softmax", "%y = softmax %p : f32[4,T]",
                "softmax: mixes rows: %p has T on another axis than the first"},
        Refusal{"RowsAsWeight", "%y = linear %h, %x : f32[T,2,T]",
                "linear: mixes rows: its result f32[T,2,T] does not keep T as axis 0"}),
    [](const auto& refusal) { return refusal.param.name; });

// Vectors whose only axis is rows.
TEST(CacheKvTest, RefusesNormsOverRows) {
  absl::StatusOr<testing::Rewritten> rewritten = testing::Rewrite(
      "func @step(%x: f32[T]) {\n  %y = rms_norm %x {eps=0} : f32[T]\n  return %y\n}\n",
      "cache-kv");
  ASSERT_FALSE(rewritten.ok());
  EXPECT_EQ(rewritten.status().message(),
            "cache-kv: %y: rms_norm: mixes rows: it sums over its only axis");
}

}  // namespace
}  // namespace quire
