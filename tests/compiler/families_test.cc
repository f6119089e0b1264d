// Every family of models through the whole compiler: what the lowered step computes, chunk by chunk
// over a cache, is what the definition computes on the whole sequence.
#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "codegen/plan_check.h"
#include "codegen/spec.h"
#include "gtest/gtest.h"
#include "models/import/checkpoint.h"
#include "models/model.h"
#include "tests/compiler/compile_helpers.h"
#include "tests/compiler/equivalence.h"
#include "tests/testdata.h"

namespace quire {
namespace {

std::vector<std::string> Families() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(TestData("parity/fixtures"))) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

class FamiliesTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    std::filesystem::path path = TestData("parity/fixtures/") + GetParam();
    if (std::filesystem::exists(path / "model.gguf")) path /= "model.gguf";
    absl::StatusOr<Checkpoint> checkpoint = OpenCheckpoint(path.string());
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
    absl::StatusOr<ModelDef> model = BuildModel(*checkpoint);
    ASSERT_TRUE(model.ok()) << model.status();
    module_ = std::move(model->module);
    vocab_ = model->vocab_size;
    tensors_ = testing::TensorsOf(module_);
    Target target;
    target.kv_dtype = DType::kF32;
    compiled_ = Compile(target);
  }

  CompiledTarget Compile(const Target& target) const {
    absl::StatusOr<CompiledTarget> compiled =
        CompileTarget(module_, target, CompileOptions{}, tensors_);
    EXPECT_TRUE(compiled.ok()) << compiled.status();
    return compiled.ok() ? *std::move(compiled) : CompiledTarget();
  }

  // The plan's other promises than values.
  void ExpectSpecsAreCanonicalAndChecked(const plan::TargetT& target) const {
    for (const auto& kernel : target.kernels) {
      absl::StatusOr<KernelSpec> spec = ParseSpec(kernel->spec);
      ASSERT_TRUE(spec.ok()) << spec.status();
      EXPECT_EQ(SpecText(*spec), kernel->spec);
      if (const auto* row = std::get_if<RowSpec>(&*spec)) {
        absl::StatusOr<Module> module = Parse(row->func);
        ASSERT_TRUE(module.ok()) << module.status();
        EXPECT_EQ(Print(*module), row->func);
      }
    }
    plan::ModelT model;
    model.vocabulary = static_cast<int32_t>(vocab_);
    model.max_positions = model.max_source = 64;
    EXPECT_TRUE(CheckKernels(target, model).ok()) << CheckKernels(target, model);
  }

  Module module_;
  TensorTable tensors_;
  int64_t vocab_ = 0;
  CompiledTarget compiled_;
};

TEST_P(FamiliesTest, LoweredIrOverTheCacheEqualsTheDefinition) {
  testing::ExpectLoweredIrEqualsDefinition(*module_.funcs[0], compiled_.lowered, vocab_);
}

TEST_P(FamiliesTest, PlanEqualsTheDefinition) {
  testing::ExpectPlanEqualsDefinition(*module_.funcs[0], compiled_.target, tensors_, vocab_);
}

// Without split-cross-qkv and split-phases the encoder runs with every step, and means the same.
TEST_P(FamiliesTest, PlansThatEncodeInEveryStepEqualTheDefinition) {
  if (!testing::HasEncoder(*module_.funcs[0])) return;
  CompileOptions options;
  options.passes = *ParsePassList(
      "recognise-attention,remove-kv-expansion,merge-projections,split-rows,cache-kv,"
      "narrow-outputs,fuse");
  Target f32;
  f32.kv_dtype = DType::kF32;
  for (const Target& target : {f32, TargetFor("cuda", tensors_)}) {
    SCOPED_TRACE(target.name);
    const auto compiled = CompileTarget(module_, target, options, tensors_);
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    ASSERT_TRUE(compiled->target.programs[1]->every_step);
    ExpectSpecsAreCanonicalAndChecked(compiled->target);
    testing::ExpectPlanEqualsDefinition(*module_.funcs[0], compiled->target, tensors_, vocab_);
    if (target.kv_dtype != DType::kF32) continue;  // the text rounds what caches keep
    testing::ExpectLoweredIrEqualsDefinition(*module_.funcs[0], compiled->lowered, vocab_);
  }
}

TEST_P(FamiliesTest, EveryAttentionIsRecognisedAndNoHeadIsRepeated) {
  const std::string text = Print(compiled_.lowered);
  for (absl::string_view gone : {"softmax", "matmul", "causal_mask", "alibi "}) {
    EXPECT_FALSE(absl::StrContains(text, gone)) << gone << "\n" << text;
  }
  // What is still repeated is one number a row, such as a gate over a layer's width.
  for (const auto& func : compiled_.lowered.funcs) {
    for (const auto& op : func->ops()) {
      if (!op->Is(OpKind::kExpandHeads)) continue;
      EXPECT_EQ(op->type.extents.back().value(), 1) << op->name << "\n" << text;
    }
  }
}

TEST_P(FamiliesTest, KernelSpecsAreCanonicalAndGetWhatTheyTake) {
  ExpectSpecsAreCanonicalAndChecked(compiled_.target);
}

// Stored exactly, the plan for CUDA is the definition; as it is stored, it is as near as it can be.
TEST_P(FamiliesTest, CudaPlanEqualsTheDefinitionButForRounding) {
  const CompiledTarget cuda = Compile(TargetFor("cuda", tensors_));
  testing::ExpectPlanEqualsDefinition(*module_.funcs[0], cuda.target, tensors_, vocab_);
  testing::ExpectRoundingDoesWhatItMay(*module_.funcs[0], cuda.target, tensors_, vocab_);
}

TEST_P(FamiliesTest, CudaKernelsStoreWhatTheirPlanSays) {
  const CompiledTarget cuda = Compile(TargetFor("cuda", tensors_));
  ExpectSpecsAreCanonicalAndChecked(cuda.target);
  for (const auto& slot : cuda.target.weights) EXPECT_EQ(slot->layout, "rows");
  const plan::ProgramT& program = *cuda.target.programs[0];
  for (size_t i = 0; i < program.buffers.size(); ++i) {
    // Between the head and the result there may be a cap.
    const bool is_logits = i == program.results[0].index();
    if (is_logits || i + 2 < program.buffers.size()) {
      EXPECT_EQ(program.buffers[i]->dtype, is_logits ? "f32" : cuda.target.activation);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, FamiliesTest, ::testing::ValuesIn(Families()),
                         [](const auto& family) { return family.param; });

}  // namespace
}  // namespace quire
