#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/reference/interpreter.h"
#include "tests/evaluate.h"
#include "tests/random_tensor.h"

namespace quire::testing {
namespace {

using reference::Inputs;
using reference::Interpret;
using reference::KvState;
using reference::Tensor;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(InterpreterTest, ReturnsInOrderAndTwice) {
  Inputs inputs;
  inputs.args["x"] = {{2}, {1, 2}};
  const auto results = Evaluate(
      "func @f(%x: f32[T]) {\n  %y = scale %x {factor=3} : f32[T]\n  return %y, %x, %y\n}", inputs);
  ASSERT_TRUE(results.ok()) << results.status();
  ASSERT_EQ(results->size(), 3u);
  EXPECT_THAT((*results)[0].values, ElementsAre(3, 6));
  EXPECT_THAT((*results)[1].values, ElementsAre(1, 2));
  EXPECT_THAT((*results)[2].values, ElementsAre(3, 6));
}

TEST(InterpreterTest, RowsOfR) {
  Inputs inputs;
  inputs.args["x"] = {{3, 1}, {1, 2, 3}};
  inputs.args["rows"] = {{1}, {2}};
  const auto results = Evaluate(
      "func @f(%x: f32[T,1], %rows: i32[R]) {\n  %y = take %x, %rows : f32[R,1]\n  return %y\n}",
      inputs);
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_THAT((*results)[0].extents, ElementsAre(1, 1));
  EXPECT_THAT((*results)[0].values, ElementsAre(3));
}

constexpr absl::string_view kWeighted = R"(func @f(%x: f32[T,2]) {
  %w = weight {name="w"} : bf16[2,2]
  %v = weight {name="v"} : f32[2]
  %y = linear %x, %w, %v : f32[T,2]
  return %y
})";

TEST(InterpreterTest, WeightsAreReadOnceAndRoundedToTheirType) {
  Inputs inputs;
  inputs.args["x"] = {{1, 2}, {1, 1}};
  std::vector<std::string> asked;
  inputs.weights = [&](absl::string_view name, const Type& type) -> absl::StatusOr<Tensor> {
    asked.push_back(absl::StrCat(name, " ", type.ToString()));
    if (name == "v") return Tensor{{2}, {100, 200}};
    return Tensor{{2, 2}, {1 + 0x1p-10, 0, 3, 4}};
  };
  const auto results = Evaluate(kWeighted, inputs);
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_THAT((*results)[0].values, ElementsAre(101, 207));
  EXPECT_THAT(asked, ElementsAre("w bf16[2,2]", "v f32[2]"));
}

TEST(InterpreterTest, ErrorsNameTheValueAndTheWeight) {
  Inputs inputs;
  inputs.args["x"] = {{1, 2}, {1, 1}};
  auto message = [&] { return std::string(Evaluate(kWeighted, inputs).status().message()); };
  EXPECT_THAT(message(), HasSubstr("@f: %w: weight: no weights are given, not even w"));
  inputs.weights = WeightsFrom({{"w", {{2, 2}, {1, 2, 3, 4}}}});
  EXPECT_EQ(message(), "@f: %v: weight: v: no tensor v");
  inputs.weights = WeightsFrom({{"w", {{4}, {1, 2, 3, 4}}}});
  EXPECT_EQ(message(), "@f: %w: weight: w has extents [4], not [2,2]");
  inputs.weights = WeightsFrom({{"w", {{2, 2}, {1, 2, 3}}}});
  EXPECT_THAT(message(), HasSubstr("w has extents [2,2]"));
}

struct BadArguments {
  std::vector<std::pair<std::string, Tensor>> args;
  const char* message;
};

TEST(InterpreterTest, RefusesBadArguments) {
  const Tensor x = {{2, 3}, {1, 2, 3, 4, 5, 6}};
  const BadArguments cases[] = {
      {{{"x", x}}, "@f: %i: arg: no value is given"},
      {{{"x", x}, {"i", {{2}, {0, 1}}}, {"z", x}}, "@f: %z is not an argument"},
      {{{"x", x}, {"i", {{2}, {0, 1}}}, {"y", x}}, "@f: %y is not an argument"},
      {{{"x", x}, {"i", {{1}, {0}}}}, "extents [1] do not match i32[T] and the other arguments"},
      {{{"x", {{6}, x.values}}, {"i", {{2}, {0, 1}}}}, "extents [6] do not match f32[T,3]"},
      {{{"x", {{3, 2}, x.values}}, {"i", {{2}, {0, 1}}}}, "extents [3,2] do not match f32[T,3]"},
      {{{"x", {{2, 3}, {1, 2}}}, {"i", {{2}, {0, 1}}}}, "2 values are given for extents [2,3]"},
      {{{"x", {{-2, -3}, x.values}}, {"i", {{2}, {0, 1}}}}, "6 values are given"},
      {{{"x", x}, {"i", {{2}, {0, 0.5}}}}, "0.5 is not an i32"},
      {{{"x", x}, {"i", {{2}, {0, 3e9}}}}, "is not an i32"},
  };
  for (const BadArguments& bad : cases) {
    Inputs inputs;
    for (const auto& [name, tensor] : bad.args) inputs.args[name] = tensor;
    const auto results = Evaluate(
        "func @f(%x: f32[T,3], %i: i32[T]) {\n  %y = silu %x : f32[T,3]\n  return %y\n}", inputs);
    EXPECT_EQ(results.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(results.status().message()), HasSubstr(bad.message));
  }
}

TEST(InterpreterTest, UnboundLetterIsAnError) {
  Inputs inputs;
  constexpr absl::string_view kText = R"(func @f() {
  %w = weight {name="w"} : f32[S,2]
  return %w
})";
  inputs.weights = RandomWeights();
  EXPECT_THAT(std::string(Evaluate(kText, inputs).status().message()),
              HasSubstr("extent S is not bound"));
  inputs.bindings['S'] = 3;
  const auto results = Evaluate(kText, inputs);
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_THAT((*results)[0].extents, ElementsAre(3, 2));
}

TEST(InterpreterTest, HugeExtentsAreRefusedBeforeTheyAreAllocated) {
  Inputs inputs;
  inputs.weights = [](absl::string_view, const Type&) -> absl::StatusOr<Tensor> {
    ADD_FAILURE() << "asked for a weight that cannot fit";
    return absl::InternalError("");
  };
  EXPECT_EQ(Evaluate("func @f() {\n  %w = weight {name=\"w\"} : f32[1099511627776]\n  return %w\n}",
                     inputs)
                .status()
                .code(),
            absl::StatusCode::kResourceExhausted);
  inputs.args["x"] = {{1, 1, 1}, {1}};
  EXPECT_EQ(Evaluate("func @f(%x: f32[T,1,1]) {\n"
                     "  %a = expand_heads %x {group=4096} : f32[T,4096,1]\n"
                     "  %b = expand_heads %a {group=4096} : f32[T,16777216,1]\n"
                     "  %c = expand_heads %b {group=4096} : f32[T,68719476736,1]\n"
                     "  return %c\n}",
                     inputs)
                .status()
                .code(),
            absl::StatusCode::kResourceExhausted);
}

// A chain of values needs room for two of them, because each dies with its last use.
TEST(InterpreterTest, TheLimitCountsLiveValuesOnly) {
  constexpr absl::string_view kChain = R"(func @f(%x: f32[T]) {
  %a = silu %x : f32[T]
  %b = silu %a : f32[T]
  %c = silu %b : f32[T]
  %d = silu %c : f32[T]
  return %d
})";
  Inputs inputs;
  inputs.args["x"] = RandomNormal("x", {100});
  inputs.max_live_elements = 200;
  EXPECT_TRUE(Evaluate(kChain, inputs).ok());
  inputs.max_live_elements = 199;
  EXPECT_EQ(Evaluate(kChain, inputs).status().code(), absl::StatusCode::kResourceExhausted);
}

constexpr absl::string_view kCached = R"(func @f(%x: f32[T,1,1]) {
  %k = kv_append %x {layer=3, slot=k} : f16[C,1,1]
  %v = kv_append %x {layer=3, slot=v} : f32[C,1,1]
  return %k, %v
})";

TEST(InterpreterTest, KvAppendKeepsTheContextInTheCachesType) {
  KvState state;
  Inputs inputs;
  inputs.kv = &state;
  inputs.args["x"] = {{2, 1, 1}, {1 + 0x1p-11, 2}};
  ASSERT_TRUE(Evaluate(kCached, inputs).ok());
  EXPECT_EQ(state.tokens, 2);
  inputs.args["x"] = {{1, 1, 1}, {5}};
  const auto results = Evaluate(kCached, inputs);
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_THAT((*results)[0].extents, ElementsAre(3, 1, 1));
  EXPECT_THAT((*results)[0].values, ElementsAre(1, 2, 5));
  EXPECT_THAT((*results)[1].values, ElementsAre(1 + 0x1p-11, 2, 5));
  EXPECT_EQ(state.tokens, 3);
  EXPECT_THAT((state.rows[{3, "k"}].values), ElementsAre(1, 2, 5));
}

TEST(InterpreterTest, KvAppendKeepsByScales) {
  constexpr absl::string_view kScaled = R"(func @f(%x: f32[T,2,1], %s: f32[2], %one: f32[1]) {
  %k = kv_append %x, %s {layer=0, slot=k} : f8e4m3[C,2,1]
  %v = kv_append %x, %one {layer=0, slot=v} : f8e4m3[C,2,1]
  %p = kv_append %x {layer=1, slot=k} : f8e4m3[C,2,1]
  %same = kv_scale %x, %s : f32[T,2,1]
  return %k, %v, %p, %same
})";
  KvState state;
  Inputs inputs;
  inputs.kv = &state;
  inputs.args["s"] = {{2}, {0.5, 4}};
  inputs.args["one"] = {{1}, {0.25}};
  inputs.args["x"] = {{1, 2, 1}, {300, 17}};
  ASSERT_TRUE(Evaluate(kScaled, inputs).ok());
  inputs.args["x"] = {{1, 2, 1}, {1.0625, -3000}};
  const auto results = Evaluate(kScaled, inputs);
  ASSERT_TRUE(results.ok()) << results.status();
  // 600 and -750 are past the largest; 4.25 and 2.125 lie between 4, 4.5 and 2, 2.25.
  EXPECT_THAT((*results)[0].values, ElementsAre(224, 16, 1, -1792));
  EXPECT_THAT((*results)[1].values, ElementsAre(112, 16, 1, -112));
  EXPECT_THAT((*results)[2].values, ElementsAre(288, 16, 1, -448));
  EXPECT_THAT((*results)[3].values, ElementsAre(1.0625, -3000));
}

TEST(InterpreterTest, KvAppendWithoutAStateSeesTheseRowsOnly) {
  Inputs inputs;
  inputs.args["x"] = {{2, 1, 1}, {1, 2}};
  const auto results = Evaluate(kCached, inputs);
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_THAT((*results)[1].values, ElementsAre(1, 2));
}

TEST(InterpreterTest, AnEncoderLeavesWhatADecoderReads) {
  KvState cross;
  Inputs inputs;
  inputs.cross = &cross;
  inputs.args["x"] = {{3, 1, 1}, {1 + 0x1p-11, 2, 3}};
  const auto encoded = Evaluate(R"(func @encode(%x: f32[T,1,1]) {
  %o = kv_append %x {layer=0, slot=k, cache=encoder} : f32[C,1,1]
  %y = add %o, %o : f32[C,1,1]
  %k = kv_append %x {layer=0, slot=k, cache=cross} : f16[C,1,1]
  return %k, %y
})",
                                inputs);
  ASSERT_TRUE(encoded.ok()) << encoded.status();
  EXPECT_THAT((*encoded)[1].values, ElementsAre(2 + 0x1p-10, 4, 6));
  EXPECT_EQ(cross.tokens, 3);
  constexpr absl::string_view kDecode = R"(func @step(%x: f32[T,1,1]) {
  %k = kv_read {layer=0, slot=k} : f16[S,1,1]
  %a = attention %x, %k, %k {scale=1} : f32[T,1,1]
  return %k, %a
})";
  inputs.args["x"] = {{1, 1, 1}, {0}};
  const auto decoded = Evaluate(kDecode, inputs);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_THAT((*decoded)[0].values, ElementsAre(1, 2, 3));
  EXPECT_THAT((*decoded)[1].values, ElementsAre(2));
  inputs.cross = nullptr;
  inputs.bindings['S'] = 3;
  EXPECT_THAT(std::string(Evaluate(kDecode, inputs).status().message()),
              HasSubstr("no encoder left k of layer 0"));
}

TEST(InterpreterTest, AFailedRunLeavesTheStateAlone) {
  KvState state;
  Inputs inputs;
  inputs.kv = &state;
  inputs.args["x"] = {{1, 1, 1}, {7}};
  const auto failed = Evaluate(R"(func @f(%x: f32[T,1,1]) {
  %k = kv_append %x {layer=0, slot=k} : f32[C,1,1]
  %w = weight {name="w"} : f32[1]
  %y = add %k, %w : f32[C,1,1]
  return %y
})",
                               inputs);
  EXPECT_FALSE(failed.ok());
  EXPECT_EQ(state.tokens, 0);
  EXPECT_TRUE(state.rows.empty());
}

TEST(InterpreterTest, RefusesAStateThatIsNotTheFunctions) {
  KvState state;
  Inputs inputs;
  inputs.kv = &state;
  inputs.args["x"] = {{1, 1, 1}, {7}};
  state.tokens = 4;
  EXPECT_THAT(std::string(Evaluate(kCached, inputs).status().message()),
              HasSubstr("the state holds no k of layer 3 of extents [4,1,1]"));
  state.tokens = 0;
  inputs.bindings['C'] = 9;
  EXPECT_THAT(std::string(Evaluate(kCached, inputs).status().message()),
              HasSubstr("C=9, but 0 tokens precede 1 rows"));
  inputs.bindings.clear();
  EXPECT_THAT(std::string(Evaluate(R"(func @f(%x: f32[T,1,1]) {
  %k = kv_append %x {layer=0, slot=k} : f32[C,1,1]
  %l = kv_append %x {layer=0, slot=k} : f32[C,1,1]
  return %k
})",
                                   inputs)
                              .status()
                              .message()),
              HasSubstr("k of layer 0 is appended to twice"));
}

}  // namespace
}  // namespace quire::testing
