#include "ir/plan_check.h"

#include <functional>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/ir/plan_fixture.h"

namespace quire {
namespace {

using ::quire::testing::MakePart;
using ::quire::testing::MakeTensor;
using ::quire::testing::TinyPlan;
using ::testing::HasSubstr;

struct Damage {
  const char* name;
  std::function<void(plan::PlanT&)> apply;
  const char* message;
};

plan::TargetT& Target(plan::PlanT& p) { return *p.targets[0]; }
plan::ProgramT& Program(plan::PlanT& p) { return *p.targets[0]->programs[0]; }

plan::KernelBinaryT* AddBinary(plan::PlanT& p, const char* architecture) {
  auto& binaries = Target(p).kernels[1]->binaries;
  binaries.push_back(std::make_unique<plan::KernelBinaryT>());
  binaries.back()->architecture = architecture;
  binaries.back()->entry = "f";
  binaries.back()->key = std::string(32, 'a');
  return binaries.back().get();
}

// Makes the first tensor one of 8-bit floats whose scales are tensor `scale`.
void ScaleFirst(plan::PlanT& p, int32_t scale) {
  plan::TensorT& tensor = *p.tensors[0];
  tensor.dtype = "f8e4m3_128";
  tensor.extents = {6, 128};
  tensor.scale = scale;
}

const Damage kDamages[] = {
    {"NoModel", [](auto& p) { p.model.reset(); }, "model: is missing"},
    {"NoVocabulary", [](auto& p) { p.model->vocabulary = 0; }, "vocabulary=0"},
    {"NegativePositions", [](auto& p) { p.model->max_positions = -1; }, "max_positions=-1"},
    {"FileWithoutPath", [](auto& p) { p.files[0]->path = ""; }, "files[0]: it has no path"},
    {"TensorType", [](auto& p) { p.tensors[0]->dtype = "f31"; }, "\"f31\" is not known"},
    {"TensorExtent", [](auto& p) { p.tensors[0]->extents[0] = 0; }, "extent 0 of axis 0"},
    {"TensorRank", [](auto& p) { p.tensors[0]->extents.assign(9, 1); }, "rank 9"},
    {"TensorOverflow",
     [](auto& p) { p.tensors[0]->extents = {int64_t{1} << 40, int64_t{1} << 40}; }, "tensors[0]"},
    {"TensorBlocks", [](auto& p) { p.tensors[0]->dtype = "q8_0"; }, "blocks of 32 elements"},
    {"TensorFile", [](auto& p) { p.tensors[1]->file = 1; }, "there is no file 1"},
    {"TensorBytes", [](auto& p) { p.tensors[1]->bytes = 764; }, "its type takes 768"},
    {"TensorBeyondFile", [](auto& p) { p.tensors[1]->offset = 833; }, "reach beyond"},
    {"TensorOffsetOverflow", [](auto& p) { p.tensors[1]->offset = ~uint64_t{0} - 100; },
     "reach beyond"},
    {"TensorScaleOfOtherType", [](auto& p) { p.tensors[0]->scale = 1; }, "f32 has no scales apart"},
    {"TensorWithoutItsScale", [](auto& p) { ScaleFirst(p, 7); }, "there is no tensor 7 of scales"},
    {"TensorWithOtherScales", [](auto& p) { ScaleFirst(p, 1); },
     "head.t, f32[16,12], are no scales of f8e4m3[6,128]"},
    {"TensorTwice", [](auto& p) { p.tensors[1]->name = "emb"; }, "emb stands twice"},
    {"PartTensor", [](auto& p) { Target(p).weights[0]->parts[0]->tensor = 2; },
     "there is no tensor 2"},
    {"PartType", [](auto& p) { Target(p).weights[0]->dtype = "f16"; }, "emb is f32"},
    {"PartNotTransposed", [](auto& p) { Target(p).weights[1]->parts[0]->transposed = false; },
     "head.t is f32[16,12], the slot f32[12,16]"},
    {"PartRows", [](auto& p) { Target(p).weights[0]->parts[0]->row_end = 13; },
     "rows 0 .. 13 are not rows"},
    {"PartNegative", [](auto& p) { Target(p).weights[0]->parts[0]->row_begin = -1; },
     "rows -1 .. 12 are not rows"},
    {"TooFewRows", [](auto& p) { Target(p).weights[0]->parts[0]->row_begin = 1; }, "11 rows of 12"},
    {"TooManyRows", [](auto& p) { Target(p).weights[0]->parts.push_back(MakePart(0, 0, 1)); },
     "more rows than the slot"},
    {"PackedNowhere", [](auto& p) { Target(p).weights[0]->packed = true; }, "no section"},
    {"BinaryNowhere", [](auto& p) { AddBinary(p, "sm_90a"); }, "binary sm_90a f: its bytes"},
    {"BinaryOfNothing", [](auto& p) { AddBinary(p, ""); }, "no architecture"},
    {"BinaryKey", [](auto& p) { AddBinary(p, "sm_90a")->key[3] = 'G'; },
     "not 32 hexadecimal digits"},
    {"PageTokens", [](auto& p) { Target(p).page_tokens = 0; }, "page_tokens=0"},
    {"KvLayer",
     [](auto& p) {
       Target(p).kv_layers.push_back(std::make_unique<plan::KvLayerT>());
       Target(p).kv_layers[0]->dtype = "f16";
     },
     "kv_layers[0]: a size"},
    {"KvType",
     [](auto& p) {
       Target(p).kv_layers.push_back(std::make_unique<plan::KvLayerT>());
       Target(p).kv_layers[0]->dtype = "q8_0";
     },
     "kv_layers[0]: keys of q8_0\n  allowed: f32, f16, bf16, f8e4m3"},
    {"TargetTwice",
     [](auto& p) { p.targets.push_back(std::make_unique<plan::TargetT>(Target(p))); },
     "cpu stands twice"},
    {"Argument", [](auto& p) { Program(p).arguments[1]->extents[0] = "R"; }, "pos i32[R]"},
    {"NoArena", [](auto& p) { Program(p).arena.reset(); }, "arena"},
    {"BufferExtent", [](auto& p) { Program(p).buffers[0]->extents[0] = "S"; },
     "\"S\" is not known"},
    {"BufferNoPlace", [](auto& p) { Program(p).buffers[0]->offset.reset(); }, "has no place"},
    {"BufferUnaligned", [](auto& p) { *Program(p).buffers[1]->offset = plan::Linear(0, 68, 0); },
     "64 bytes"},
    {"BufferNegative", [](auto& p) { *Program(p).buffers[1]->offset = plan::Linear(0, 0, -64); },
     "negative"},
    {"BufferTooSmall", [](auto& p) { *Program(p).buffers[0]->bytes = plan::Linear(0, 60, 0); },
     "takes more bytes"},
    // Enough while R = T, not for R < T.
    {"BufferTooSmallForFewRows",
     [](auto& p) { *Program(p).buffers[0]->bytes = plan::Linear(0, 0, 64); }, "takes more bytes"},
    {"BufferBeyondArena", [](auto& p) { *Program(p).arena = plan::Linear(0, 64, 127); },
     "reaches beyond the arena"},
    {"BufferHugeOffset",
     [](auto& p) { *Program(p).buffers[0]->offset = plan::Linear(int64_t{1} << 62, 0, 0); },
     "has no place"},
    {"Kernel", [](auto& p) { Program(p).launches[2]->kernel = 3; }, "there is no kernel 3"},
    {"LaunchRows", [](auto& p) { Program(p).launches[2]->rows = "C"; }, "rows=C"},
    {"InputIndex",
     [](auto& p) {
       Program(p).launches[0]->inputs[1] = plan::Operand(plan::OperandKind::Weight, 2);
     },
     "input 1 does not exist"},
    {"InputKind",
     [](auto& p) {
       Program(p).launches[0]->inputs[1] = plan::Operand(static_cast<plan::OperandKind>(77), 0);
     },
     "input 1 does not exist"},
    {"ReadBeforeWrite", [](auto& p) { std::swap(Program(p).launches[0], Program(p).launches[1]); },
     "not written yet"},
    {"OutputKind",
     [](auto& p) {
       Program(p).launches[0]->outputs[0] = plan::Operand(plan::OperandKind::Argument, 0);
     },
     "output 0 is not a buffer"},
    {"NoResult", [](auto& p) { Program(p).results.clear(); }, "does not return logits f32[R,12]"},
    {"ResultType", [](auto& p) { p.model->vocabulary = 11; }, "does not return logits f32[R,11]"},
};

TEST(PlanCheckTest, FixturePasses) {
  const absl::Status status = CheckPlan(TinyPlan(), {});
  EXPECT_TRUE(status.ok()) << status;
}

TEST(PlanCheckTest, BinariesOfAKernelDiffer) {
  const std::vector<PlanSection> sections = {{4096, 10, 0, PlanSection::Kind::kWeights},
                                             {8192, 20, 0, PlanSection::Kind::kBinary}};
  plan::PlanT plan = TinyPlan();
  const auto add = [&](const char* architecture, uint64_t offset, uint64_t bytes) {
    plan::KernelBinaryT* binary = AddBinary(plan, architecture);
    binary->offset = offset;
    binary->bytes = bytes;
  };
  add("sm_90a", 8192, 20);
  add("sm_80", 8192, 20);
  plan.targets[0]->kernels[1]->binaries.back()->key[0] = 'b';
  EXPECT_TRUE(CheckPlan(plan, sections).ok()) << CheckPlan(plan, sections);
  add("sm_80", 8192, 20);
  EXPECT_THAT(CheckPlan(plan, sections).message(), HasSubstr("binary sm_80 f stands twice"));
  plan.targets[0]->kernels[1]->binaries.pop_back();
  add("sm_89", 4096, 10);
  plan.targets[0]->kernels[1]->binaries.back()->key[0] = 'c';
  EXPECT_THAT(CheckPlan(plan, sections).message(), HasSubstr("no section of the file"));
}

TEST(PlanCheckTest, EveryDamageIsNamed) {
  for (const Damage& damage : kDamages) {
    plan::PlanT plan = TinyPlan();
    damage.apply(plan);
    const absl::Status status = CheckPlan(plan, {});
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << damage.name;
    EXPECT_THAT(status.message(), HasSubstr(damage.message)) << damage.name;
  }
}

TEST(PlanCheckTest, BlockTypesCannotBeTransposed) {
  plan::PlanT plan = TinyPlan();
  plan.tensors.push_back(MakeTensor("q", "q8_0", {32, 32}, 0, 32 * 34));
  auto slot = quire::testing::MakeSlot("q", "q8_0", {32, 32});
  slot->parts.push_back(MakePart(2, 0, 32));
  plan.targets[0]->weights.push_back(std::move(slot));
  EXPECT_TRUE(CheckPlan(plan, {}).ok()) << CheckPlan(plan, {});
  plan.targets[0]->weights[2]->parts[0]->transposed = true;
  EXPECT_THAT(CheckPlan(plan, {}).message(), HasSubstr("cannot be transposed"));
}

TEST(PlanCheckTest, Evaluates) { EXPECT_EQ(Evaluate(plan::Linear(5, 3, 2), 10, 4), 43); }

}  // namespace
}  // namespace quire
