#include "codegen/plan_check.h"

#include <functional>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/plan_check.h"
#include "tests/ir/plan_fixture.h"

namespace quire {
namespace {

using plan::Operand, plan::OperandKind;
using ::quire::testing::TinyPlan;
using ::testing::HasSubstr;

struct Damage {
  const char* name;
  std::function<void(plan::PlanT&)> apply;
  const char* message;
};

plan::TargetT& Target(plan::PlanT& p) { return *p.targets[0]; }
plan::LaunchT& Launch(plan::PlanT& p, size_t i) { return *p.targets[0]->programs[0]->launches[i]; }

void SetSpec(plan::PlanT& p, size_t kernel, std::string spec) {
  Target(p).kernels[kernel]->spec = std::move(spec);
}

const Damage kDamages[] = {
    {"Layout", [](auto& p) { Target(p).weights[0]->layout = std::string("columns"); },
     "weights[0]"},
    {"Spec", [](auto& p) { SetSpec(p, 2, "conv"); }, "kernels[2]"},
    {"RowText", [](auto& p) { SetSpec(p, 0, "row func @row("); }, "kernels[0]"},
    {"TwoFunctions",
     [](auto& p) {
       Target(p).kernels[0]->spec +=
           "\nfunc @two(%x: f32[T,4]) {\n  %y = relu %x : f32[T,4]\n  return %y\n}";
     },
     "one function"},
    {"LinearInputs", [](auto& p) { Launch(p, 2).inputs.pop_back(); }, "1 inputs and 1 outputs"},
    {"LinearSize",
     [](auto& p) {
       SetSpec(p, 2, "linear n=12 k=32 w=f32 x=f32 y=f32 bias=0 residual=0 layout=rows");
     },
     "y is f32[R,16], its kernel takes f32[R,32]"},
    {"LinearType",
     [](auto& p) {
       SetSpec(p, 2, "linear n=12 k=16 w=f32 x=f16 y=f32 bias=0 residual=0 layout=rows");
     },
     "y is f32[R,16], its kernel takes f16[R,16]"},
    {"LinearLayout",
     [](auto& p) {
       SetSpec(p, 2, "linear n=12 k=16 w=f32 x=f32 y=f32 bias=0 residual=0 layout=rows16");
     },
     "head is f32[12,16] in rows, its kernel takes f32[12,16] in rows16"},
    {"LinearRows", [](auto& p) { Launch(p, 2).rows[0] = 'T'; }, "its kernel takes f32[T,16]"},
    {"LinearResidual",
     [](auto& p) {
       SetSpec(p, 2, "linear n=12 k=16 w=f32 x=f32 y=f32 bias=0 residual=1 layout=rows");
       Launch(p, 2).inputs.push_back(Operand(OperandKind::Buffer, 1));
     },
     "y is f32[R,16], its kernel takes f32[R,12]"},
    {"LinearBias",
     [](auto& p) {
       SetSpec(p, 2, "linear n=12 k=16 w=f32 x=f32 y=f32 bias=1 residual=0 layout=rows");
       Launch(p, 2).inputs.push_back(Operand(OperandKind::Weight, 0));
     },
     "its kernel takes f32[12] in rows"},
    {"WeightAsRows", [](auto& p) { Launch(p, 2).inputs[0] = Operand(OperandKind::Weight, 0); },
     "neither argument nor buffer"},
    {"RowArgument", [](auto& p) { Launch(p, 1).inputs[1] = Operand(OperandKind::Argument, 1); },
     "pos is i32[T,1], its kernel takes i32[R,1]"},
    {"RowOutput", [](auto& p) { Launch(p, 1).outputs[0] = Operand(OperandKind::Buffer, 2); },
     "logits is f32[R,12], its kernel takes f32[R,16]"},
    {"RowWeight", [](auto& p) { Launch(p, 0).inputs[1] = Operand(OperandKind::Buffer, 0); },
     "not a weight"},
    {"EmbedTooSmall", [](auto& p) { p.model->vocabulary = 13; }, "a table of 12 rows"},
    {"EmbedPositions", [](auto& p) { Launch(p, 0).inputs[0] = Operand(OperandKind::Argument, 1); },
     "too small for pos up to 63"},
    {"AttentionLayer",
     [](auto& p) {
       SetSpec(p, 1,
               "attention hq=2 hkv=2 d=8 dv=8 kv=f16 page=16 mask=causal window=0 scale=1 cap=0 "
               "alibi=0");
       Launch(p, 1).rows[0] = 'T';
     },
     "not a KV layer"},
    {"AttentionPages",
     [](auto& p) {
       SetSpec(p, 1,
               "attention hq=2 hkv=2 d=8 dv=8 kv=f16 page=8 mask=causal window=0 scale=1 cap=0 "
               "alibi=0");
     },
     "other pages"},
};

TEST(KernelCheckTest, FixturePasses) {
  const plan::PlanT plan = TinyPlan();
  const absl::Status status = CheckKernels(*plan.targets[0], *plan.model);
  EXPECT_TRUE(status.ok()) << status;
}

TEST(KernelCheckTest, EveryDamageIsNamed) {
  for (const Damage& damage : kDamages) {
    plan::PlanT plan = TinyPlan();
    damage.apply(plan);
    const absl::Status status = CheckKernels(*plan.targets[0], *plan.model);
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << damage.name;
    EXPECT_THAT(status.message(), HasSubstr(damage.message)) << damage.name;
  }
}

// A device that converts weights reads what the checkpoint has; another does not.
TEST(KernelCheckTest, WeightsAreConvertedOnCudaAlone) {
  plan::PlanT plan = TinyPlan();
  plan::TargetT& target = *plan.targets[0];
  SetSpec(plan, 2, "linear n=12 k=16 w=bf16 x=f32 y=f32 bias=0 residual=0 layout=rows");
  EXPECT_THAT(CheckKernels(target, *plan.model).message(), HasSubstr("head is f32[12,16] in rows"));
  target.name = "cuda";
  EXPECT_TRUE(CheckKernels(target, *plan.model).ok()) << CheckKernels(target, *plan.model);
  SetSpec(plan, 2, "linear n=12 k=16 w=bf16 x=f32 y=f32 bias=0 residual=0 layout=rows16");
  EXPECT_THAT(CheckKernels(target, *plan.model).message(), HasSubstr("in rows16"));
  SetSpec(plan, 2,
          "linear n=6 k=16 w=bf16 x=f32 y=f32 bias=0 residual=0 layout=rows act=silu gated=1");
  EXPECT_THAT(CheckKernels(target, *plan.model).message(),
              HasSubstr("logits is f32[R,12], its kernel takes f32[R,6]"));
  SetSpec(plan, 2,
          "linear n=12 k=16 w=bf16 x=f32 y=f32 bias=0 residual=0 layout=rows act=silu gated=1");
  EXPECT_THAT(CheckKernels(target, *plan.model).message(),
              HasSubstr("its kernel takes f32[24,16] in rows"));
  SetSpec(plan, 2,
          "linear n=12 k=16 w=bf16 x=f32 y=f32 bias=0 residual=0 layout=rows norm=rms eps=0 "
          "offset=0 norm_w=f32 norm_b=none");
  EXPECT_THAT(CheckKernels(target, *plan.model).message(), HasSubstr("its kernel has 3 and 1"));
  Launch(plan, 2).inputs.push_back(Operand(OperandKind::Weight, 0));
  EXPECT_THAT(CheckKernels(target, *plan.model).message(),
              HasSubstr("emb is f32[12,16] in rows, its kernel takes f32[16] in rows"));
}

TEST(KernelCheckTest, KernelsThatKnowPagesAppendWholeLayers) {
  plan::PlanT plan = TinyPlan();
  plan::TargetT& target = *plan.targets[0];
  target.name = "cuda";
  for (int i = 0; i < 2; ++i) {
    target.kv_layers.push_back(std::make_unique<plan::KvLayerT>());
    plan::KvLayerT& layer = *target.kv_layers.back();
    layer.layer = i;
    layer.heads = 2;
    layer.k_dim = layer.v_dim = 8;
    layer.dtype = std::string("f32");
  }
  target.kernels.push_back(std::make_unique<plan::KernelT>());
  const std::string body =
      "func @row(%0: f32[T,16]) {\n  %v0 = reshape %0 : f32[T,2,8]\n"
      "  %v1 = kv_append %v0 {layer=0, slot=k} : f32[C,2,8]\n"
      "  %v2 = kv_append %v0 {layer=0, slot=v} : f32[C,2,8]\n  return %0\n}";
  SetSpec(plan, 3, "row page=16 " + body);
  const Operand x(OperandKind::Buffer, 0), layer(OperandKind::KvLayer, 0);
  target.programs[0]->launches.push_back(testing::MakeLaunch("k", 3, "T", {x, layer, layer}, {x}));
  EXPECT_TRUE(CheckKernels(target, *plan.model).ok()) << CheckKernels(target, *plan.model);
  Launch(plan, 3).inputs[2] = Operand(OperandKind::KvLayer, 1);
  EXPECT_THAT(CheckKernels(target, *plan.model).message(), HasSubstr("K and V of one layer"));
  Launch(plan, 3).inputs[2] = layer;
  for (const char* page : {"row ", "row page=8 "}) {
    SetSpec(plan, 3, page + body);
    EXPECT_THAT(CheckKernels(target, *plan.model).message(), HasSubstr("other pages"));
  }
  SetSpec(plan, 3, "row page=16 " + body);
  target.name = "cpu";
  EXPECT_THAT(CheckKernels(target, *plan.model).message(), HasSubstr("other pages"));
}

TEST(KernelCheckTest, ALinearAppendsToLayersThatFollowEachOther) {
  plan::PlanT plan = TinyPlan();
  plan::TargetT& target = *plan.targets[0];
  target.name = "cuda";
  for (int i = 0; i < 3; ++i) {
    target.kv_layers.push_back(std::make_unique<plan::KvLayerT>());
    plan::KvLayerT& layer = *target.kv_layers.back();
    layer.layer = i;
    layer.heads = 1;
    layer.k_dim = layer.v_dim = 8;
    layer.dtype = std::string("f32");
  }
  target.weights.push_back(testing::MakeSlot("kv", "f32", {32, 16}));
  target.kernels.push_back(std::make_unique<plan::KernelT>());
  const std::string linear = "linear n=32 k=16 w=f32 x=f32 y=f32 bias=0 residual=0 layout=rows";
  SetSpec(plan, 3, linear + " append=2 heads=1 d=8 dv=8 page=16");
  const auto weight = static_cast<uint32_t>(target.weights.size() - 1);
  const auto layer = [](uint32_t i) { return Operand(OperandKind::KvLayer, i); };
  const Operand x(OperandKind::Buffer, 0);
  target.programs[0]->launches.push_back(testing::MakeLaunch(
      "kv", 3, "T", {x, Operand(OperandKind::Weight, weight), layer(1), layer(2)}, {}));
  const auto message = [&] { return std::string(CheckKernels(target, *plan.model).message()); };
  EXPECT_EQ(message(), "");
  Launch(plan, 3).inputs[3] = layer(1);
  EXPECT_THAT(message(), HasSubstr("its KV layers do not follow each other in one cache"));
  Launch(plan, 3).inputs[3] = x;
  EXPECT_THAT(message(), HasSubstr("an operand is not a KV layer"));
  Launch(plan, 3).inputs[3] = layer(2);
  target.kv_layers[2]->heads = 2;
  EXPECT_THAT(message(), HasSubstr("KV layer 2 has other heads than its kernel"));
  target.kv_layers[2]->heads = 1;
  Launch(plan, 3).rows = std::string("R");
  EXPECT_NE(message(), "");
  Launch(plan, 3).rows = std::string("T");
  SetSpec(plan, 3, linear + " append=2 heads=1 d=8 dv=8 page=8");
  EXPECT_THAT(message(), HasSubstr("its kernel has other pages"));
  // What is not appended is y's.
  SetSpec(plan, 3, linear + " append=1 heads=1 d=8 dv=8 page=16");
  EXPECT_THAT(message(), HasSubstr("its kernel has 3 and 1"));
}

TEST(KernelCheckTest, ALinearsHeadsAreTurnedByOnePositions) {
  plan::PlanT plan = TinyPlan();
  plan::TargetT& target = *plan.targets[0];
  target.name = "cuda";
  target.kv_layers.push_back(std::make_unique<plan::KvLayerT>());
  plan::KvLayerT& layer = *target.kv_layers.back();
  layer.heads = 1;
  layer.k_dim = layer.v_dim = 16;
  layer.dtype = std::string("f32");
  target.weights.push_back(testing::MakeSlot("kv", "f32", {32, 16}));
  target.weights.push_back(testing::MakeSlot("factors", "f32", {8}));
  target.kernels.push_back(std::make_unique<plan::KernelT>());
  SetSpec(plan, 3,
          "linear n=32 k=16 w=f32 x=f32 y=f32 bias=0 residual=0 layout=rows append=1 heads=1 d=16 "
          "dv=16 page=16 rope=theta=10000 factors=f32");
  const auto weights = static_cast<uint32_t>(target.weights.size());
  const auto weight = [&](uint32_t i) { return Operand(OperandKind::Weight, weights - i); };
  const Operand x(OperandKind::Buffer, 0), positions(OperandKind::Argument, 1);
  for (int i = 0; i < 2; ++i) {
    target.programs[0]->launches.push_back(testing::MakeLaunch(
        "kv", 3, "T", {x, weight(2), positions, weight(1), Operand(OperandKind::KvLayer, 0)}, {}));
  }
  const auto message = [&] { return std::string(CheckKernels(target, *plan.model).message()); };
  EXPECT_EQ(message(), "");
  Launch(plan, 3).inputs[2] = x;
  EXPECT_THAT(message(), HasSubstr("its positions are no argument"));
  Launch(plan, 3).inputs[2] = Operand(OperandKind::Argument, 0);
  EXPECT_THAT(message(), HasSubstr("its heads are turned by other positions or factors"));
  Launch(plan, 3).inputs[2] = positions;
  Launch(plan, 3).inputs[3] = weight(2);
  EXPECT_THAT(message(), HasSubstr("kv is f32[32,16] in rows, its kernel takes f32[8] in rows"));
}

TEST(KernelCheckTest, KvLayersMustFitTheirKernels) {
  plan::PlanT plan = TinyPlan();
  plan::TargetT& target = *plan.targets[0];
  auto layer = std::make_unique<plan::KvLayerT>();
  layer->heads = 2;
  layer->k_dim = 8;
  layer->v_dim = 4;
  layer->dtype = std::string("f16");
  target.kv_layers.push_back(std::move(layer));
  target.kernels.push_back(std::make_unique<plan::KernelT>());
  SetSpec(plan, 3,
          "row func @row(%0: f32[T,16]) {\n  %v0 = reshape %0 : f32[T,2,8]\n"
          "  %v1 = kv_append %v0 {layer=0, slot=k} : f16[C,2,8]\n  return %0\n}");
  auto& launches = target.programs[0]->launches;
  launches.push_back(testing::MakeLaunch(
      "k", 3, "R", {Operand(OperandKind::Buffer, 1), Operand(OperandKind::KvLayer, 0)},
      {Operand(OperandKind::Buffer, 1)}));
  ASSERT_TRUE(CheckPlan(plan, {}).ok()) << CheckPlan(plan, {});
  EXPECT_TRUE(CheckKernels(target, *plan.model).ok()) << CheckKernels(target, *plan.model);
  target.kv_layers[0]->dtype = std::string("f32");
  EXPECT_THAT(CheckKernels(target, *plan.model).message(), HasSubstr("KV layer 0"));
  target.kv_layers[0]->dtype = std::string("f16");
  target.kv_layers[0]->k_dim = 16;
  EXPECT_THAT(CheckKernels(target, *plan.model).message(), HasSubstr("KV layer 0"));
  target.kv_layers[0]->k_dim = 8;
  launches[3]->inputs.pop_back();
  EXPECT_THAT(CheckKernels(target, *plan.model).message(), HasSubstr("1 inputs"));
}

}  // namespace
}  // namespace quire
