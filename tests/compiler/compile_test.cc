#include "compiler/compile.h"

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "compiler/lower.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/builder.h"
#include "models/blocks.h"
#include "tests/compiler/compile_helpers.h"

namespace quire {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Geometry {
  int64_t layers, width, heads, kv_heads, ffn, vocabulary;
};

// A Llama of any size; nothing is allocated for its weights.
Module Llama(const Geometry& g) {
  Module module;
  module.funcs.push_back(std::make_unique<Func>("step"));
  Func& func = *module.funcs[0];
  Builder b(&func);
  Op* ids = func.AddArg("ids", Type{DType::kI32, {Extent::Letter('T')}});
  Op* pos = func.AddArg("pos", Type{DType::kI32, {Extent::Letter('T')}});
  const int64_t size = g.width / g.heads;
  auto weight = [&](absl::string_view name, Extents extents) {
    return b.Named(absl::StrCat(name, ".w")).Weight(name, Type{DType::kBF16, std::move(extents)});
  };
  auto project = [&](absl::string_view name, Op* x, int64_t rows) {
    Op* w = weight(name, {rows, x->type.extents.back()});
    return b.Named(name).Linear(x, w);
  };
  Op* x = b.Embed(weight("embed", {g.vocabulary, g.width}), ids);
  for (int64_t layer = 0; layer < g.layers; ++layer) {
    const std::string prefix = absl::StrCat("l", layer, ".");
    auto named = [&](absl::string_view word) { return absl::StrCat(prefix, word); };
    auto heads = [&](absl::string_view word, Op* from, int64_t count) {
      return b.Reshape(project(named(word), from, count * size),
                       {Extent::Letter('T'), count, size});
    };
    auto rope = [&](Op* value) { return Rotate(b, value, pos, nullptr, RopeConfig{}, false); };
    Op* n = b.RmsNorm(x, weight(named("norm"), {g.width}), 1e-5);
    Op* q = rope(heads("q", n, g.heads));
    Op* k = rope(heads("k", n, g.kv_heads));
    Op* v = heads("v", n, g.kv_heads);
    Op* a = Attend(b, prefix, q, k, v,
                   {.heads = g.heads, .kv_heads = g.kv_heads, .head_dim = size, .scale = 0.125});
    x = b.Add(x, project(named("o"), a, g.width));
    n = b.RmsNorm(x, weight(named("mlp_norm"), {g.width}), 1e-5);
    Op* gate = b.Unary(OpKind::kSilu, project(named("gate"), n, g.ffn));
    Op* inner = b.Mul(gate, project(named("up"), n, g.ffn));
    x = b.Add(x, project(named("down"), inner, g.width));
  }
  func.set_returns({project("head", b.RmsNorm(x, weight("norm", {g.width}), 1e-5), g.vocabulary)});
  EXPECT_TRUE(b.status().ok()) << b.status();
  return module;
}

constexpr Geometry kTiny = {2, 32, 4, 2, 48, 50};

TEST(CompileTest, LaunchesAndKernelsOfALlama) {
  const Module module = Llama(kTiny);
  absl::StatusOr<CompiledTarget> compiled =
      CompileTarget(module, Target{}, CompileOptions{}, testing::TensorsOf(module));
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  // Embedding and norm; per layer projection, rope and append, attention, output, norm, gate and
  // up, gating, down, and the next norm; taking rows of x and of the attention; the head.
  EXPECT_EQ(compiled->target.programs[0]->launches.size(), 1u + 2 * 8 + 2 + 1 + 1 + 1);
  int rows = 0, linears = 0, attentions = 0;
  for (const auto& kernel : compiled->target.kernels) {
    rows += absl::StartsWith(kernel->spec, "row ");
    linears += absl::StartsWith(kernel->spec, "linear ");
    attentions += absl::StartsWith(kernel->spec, "attention ");
  }
  EXPECT_EQ(rows, 6);     // embed + norm, rope + append, norm, gating, two kinds of taking
  EXPECT_EQ(linears, 5);  // q k v, o, gate up, down, head
  EXPECT_EQ(attentions, 1);
  EXPECT_EQ(compiled->target.kv_layers.size(), 2u);
}

TEST(CompileTest, ExplainsEveryAttention) {
  const Module module = Llama(kTiny);
  absl::StatusOr<CompiledTarget> compiled =
      CompileTarget(module, Target{}, CompileOptions{}, testing::TensorsOf(module));
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  const std::string text = ExplainText(compiled->reports);
  EXPECT_THAT(text,
              HasSubstr("  %l1.heads: attention over 4 heads; the scores f32[4,T,T] are never "
                        "in memory\n"));
  EXPECT_THAT(text, HasSubstr("  %l1.heads: K/V bytes for each context token: 128 => 64\n"));
  EXPECT_THAT(text, HasSubstr("  %l1.heads: layer 1 caches 64 bytes for each context token"));
  EXPECT_THAT(text, HasSubstr("  %l0.q: 3 projections of %rms_norm => 1\n"));
  // o, gate, up, down of the last layer and the head: 32*32 + 3*48*32 + 50*32.
  EXPECT_THAT(text, HasSubstr("multiply-adds for each row without logits: 7232 => 0\n"));
  EXPECT_THAT(text, HasSubstr("select-kernels @step: changed, "));
  EXPECT_THAT(text, HasSubstr("plan-memory @step: changed, "));
}

TEST(CompileTest, IsAFunctionOfItsArguments) {
  const Module module = Llama(kTiny);
  const TensorTable tensors = testing::TensorsOf(module);
  auto bytes = [&] {
    absl::StatusOr<CompiledTarget> compiled =
        CompileTarget(module, Target{}, CompileOptions{}, tensors);
    EXPECT_TRUE(compiled.ok()) << compiled.status();
    if (!compiled.ok()) return std::string();
    flatbuffers::FlatBufferBuilder builder;
    builder.Finish(plan::CreateTarget(builder, &compiled->target));
    return std::string(reinterpret_cast<const char*>(builder.GetBufferPointer()),
                       builder.GetSize());
  };
  EXPECT_EQ(bytes(), bytes());
}

TEST(CompileTest, LeavesTheDefinitionAlone) {
  const Module module = Llama(kTiny);
  const std::string before = Print(module);
  ASSERT_TRUE(CompileTarget(module, Target{}, CompileOptions{}, testing::TensorsOf(module)).ok());
  EXPECT_EQ(Print(module), before);
}

TEST(CompileTest, WeightNamesAreInOrderOfUse) {
  const Module module = *Parse(R"(func @step(%ids: i32[T], %pos: i32[T]) {
  %b = weight {name="b"} : f32[10,8]
  %a = weight {name="a"} : f32[8]
  %c = weight {name="b"} : f32[10,8]
  %x = embed %b, %ids : f32[T,8]
  %y = add %x, %a : f32[T,8]
  %z = linear %y, %c : f32[T,10]
  return %z
}
)");
  EXPECT_THAT(WeightNames(module), ElementsAre("b", "a"));
}

struct Signature {
  const char* name;
  const char* text;
  const char* message;
};

class SignatureTest : public ::testing::TestWithParam<Signature> {};

TEST_P(SignatureTest, IsRefused) {
  const Module module = *Parse(GetParam().text);
  const absl::Status status =
      CompileTarget(module, Target{}, CompileOptions{}, testing::TensorsOf(module)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    All, SignatureTest,
    ::testing::Values(
        Signature{"OtherName",
                  "func @main(%ids: i32[T], %pos: i32[T]) {\n"
                  "  %w = weight {name=\"w\"} : f32[4,8]\n"
                  "  %y = embed %w, %ids : f32[T,8]\n  return %y\n}\n",
                  "the module is not a model's definition\n  allowed: one function @step("},
        Signature{"OneArgument",
                  "func @step(%ids: i32[T]) {\n  %w = weight {name=\"w\"} : f32[4,8]\n"
                  "  %y = embed %w, %ids : f32[T,8]\n  return %y\n}\n",
                  "the module is not a model's definition"},
        Signature{"OtherArgumentName",
                  "func @step(%tokens: i32[T], %pos: i32[T]) {\n"
                  "  %w = weight {name=\"w\"} : f32[4,8]\n"
                  "  %y = embed %w, %tokens : f32[T,8]\n  return %y\n}\n",
                  "the module is not a model's definition"},
        Signature{"FloatIds",
                  "func @step(%ids: f32[T], %pos: i32[T]) {\n"
                  "  %w = weight {name=\"w\"} : f32[4,8]\n"
                  "  %y = embed %w, %pos : f32[T,8]\n  return %y\n}\n",
                  "the module is not a model's definition"},
        Signature{"HalfLogits",
                  "func @step(%ids: i32[T], %pos: i32[T]) {\n"
                  "  %w = weight {name=\"w\"} : f32[4,8]\n"
                  "  %y = embed %w, %ids : f16[T,8]\n  return %y\n}\n",
                  "%y: embed: returns f16[T,8]\n  allowed: f32[T,V]"},
        Signature{"NoRows",
                  "func @step(%ids: i32[T], %pos: i32[T]) {\n"
                  "  %y = weight {name=\"w\"} : f32[4,8]\n  return %y\n}\n",
                  "%y: weight: returns f32[4,8]\n  allowed: f32[T,V]"}),
    [](const auto& signature) { return signature.param.name; });

TEST(RaisedModuleTest, RefusesIrThatThisBuildCannotRead) {
  plan::PlanT plan;
  plan.ir = Print(Llama(kTiny));
  const absl::StatusOr<Module> module = RaisedModule(plan);
  ASSERT_TRUE(module.ok()) << module.status();
  EXPECT_EQ(Print(*module), plan.ir);
  plan.ir = "func @step(%ids: i32[T]) { %y = frobnicate %ids : i32[T] return %y }";
  const absl::Status status = RaisedModule(plan).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("the plan's embedded IR is not valid in this build\n  from: ir:1:"));
}

absl::Status CompileGeometry(const Geometry& geometry) {
  const Module module = Llama(geometry);
  return CompileTarget(module, Target{}, CompileOptions{}, testing::TensorsOf(module)).status();
}

TEST(CompileGeometryTest, ThirtyTwoLayers) {
  EXPECT_EQ(CompileGeometry({32, 4096, 32, 32, 11008, 32000}), absl::OkStatus());
}

TEST(CompileGeometryTest, A126LayerModelOf405BillionParameters) {
  EXPECT_EQ(CompileGeometry({126, 16384, 128, 8, 53248, 128256}), absl::OkStatus());
}

TEST(SelectKernelsTest, AnUnfusedFunctionIsAMistakeOfTheCaller) {
  const Module module = *Parse(
      "func @f(%x: i32[T]) {\n  %w = weight {name=\"w\"} : f32[4,8]\n"
      "  %y = embed %w, %x : f32[T,8]\n  return %y\n}\n");
  const absl::Status status = SelectKernels(module, testing::TensorsOf(module), Target{}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(status.message(), "%y: embed: has no group");
}

}  // namespace
}  // namespace quire
