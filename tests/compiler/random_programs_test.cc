// Passes and lowering on random programs, compared with the interpreter.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "compiler/lower.h"
#include "gtest/gtest.h"
#include "ir/reference/interpreter.h"
#include "tests/compiler/compile_helpers.h"
#include "tests/compiler/equivalence.h"
#include "tests/random_program.h"

namespace quire {
namespace {

constexpr uint64_t kSeeds = 40;

Module RandomModule(uint64_t seed) {
  testing::ProgramOptions options;
  options.block_weights = seed % 3 == 0;
  options.tiled_heads = seed % 4 == 1;
  options.encoder = seed % 2 == 1;
  Module module;
  module.funcs.push_back(testing::RandomProgram(seed, options));
  return module;
}

// Rows of the embedding table, which is what ids may go up to.
int64_t VocabularyOf(const Func& func) {
  for (const auto& op : func.ops()) {
    if (op->Is(OpKind::kEmbed) && op->operand(1)->name == "ids") {
      return op->operand(0)->type.extents[0].value();
    }
  }
  return 1;
}

Target F32Target() {
  Target target;
  target.kv_dtype = DType::kF32;
  return target;
}

// Results of the whole function before and after, under the same inputs.
void ExpectSameMeaning(const Func& before, const Func& after, const reference::Inputs& inputs) {
  auto wanted = reference::Interpret(before, inputs);
  if (!wanted.ok()) return;  // such as values over the limit
  auto got = reference::Interpret(after, inputs);
  ASSERT_TRUE(got.ok()) << got.status() << Print(after);
  ASSERT_EQ(got->size(), wanted->size());
  for (size_t i = 0; i < got->size(); ++i) {
    ASSERT_EQ((*got)[i].extents, (*wanted)[i].extents);
    double largest = 0;
    for (double value : (*wanted)[i].values) {
      if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
    }
    for (size_t j = 0; j < (*got)[i].values.size(); ++j) {
      const double a = (*got)[i].values[j], b = (*wanted)[i].values[j];
      if (a == b || (std::isnan(a) && std::isnan(b))) continue;
      ASSERT_NEAR(a, b, testing::DoubleBound(largest)) << Print(before) << Print(after);
    }
  }
}

TEST(RandomProgramsTest, EveryPassKeepsTheMeaningOfADecoder) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    const Module definition = RandomModule(seed);
    Module module = definition.Clone();
    const int64_t vocabulary = VocabularyOf(*definition.funcs[0]);
    for (const PassDef* pass : DefaultPasses()) {
      SCOPED_TRACE(pass->name);
      std::vector<PassReport> reports;
      ASSERT_EQ(RunPasses(module, {pass}, F32Target(), {}, &reports), absl::OkStatus());
      if (module.funcs[0]->Find("rows") != nullptr) {
        testing::ExpectLoweredIrEqualsDefinition(*definition.funcs[0], module, vocabulary);
      } else if (module.funcs.size() == 1) {
        ExpectSameMeaning(*definition.funcs[0], *module.funcs[0],
                          testing::WholeInputs(*definition.funcs[0], vocabulary, 9));
      }
      if (HasFatalFailure()) return;
    }
  }
}

TEST(RandomProgramsTest, APlanKeepsTheMeaningOfADecoder) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    const Module definition = RandomModule(seed);
    const TensorTable tensors = testing::TensorsOf(definition);
    absl::StatusOr<CompiledTarget> compiled =
        CompileTarget(definition, F32Target(), CompileOptions{}, tensors);
    ASSERT_TRUE(compiled.ok()) << compiled.status() << Print(definition);
    testing::ExpectPlanEqualsDefinition(*definition.funcs[0], compiled->target, tensors,
                                        VocabularyOf(*definition.funcs[0]));
    if (HasFatalFailure()) return;
  }
}

// Fewer passes are slower, not different: lowering does not count on any but split-rows (or
// split-phases), cache-kv, narrow-outputs and fuse, and on recognise-attention, without which no
// kernel computes attention.
TEST(RandomProgramsTest, APlanWithoutOptionalPassesMeansTheSame) {
  CompileOptions options;
  options.passes = *ParsePassList("recognise-attention,split-rows,cache-kv,narrow-outputs,fuse");
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    const Module definition = RandomModule(seed);
    const TensorTable tensors = testing::TensorsOf(definition);
    absl::StatusOr<CompiledTarget> compiled =
        CompileTarget(definition, F32Target(), options, tensors);
    ASSERT_TRUE(compiled.ok()) << compiled.status() << Print(definition);
    testing::ExpectPlanEqualsDefinition(*definition.funcs[0], compiled->target, tensors,
                                        VocabularyOf(*definition.funcs[0]));
    if (HasFatalFailure()) return;
  }
}

// Any verified function: a pass rewrites it and keeps its meaning, or refuses it; never breaks its
// contract, which would be INTERNAL.
TEST(RandomProgramsTest, PassesSurviveAnyFunction) {
  int changed = 0;
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    SCOPED_TRACE(seed);
    Module module;
    module.funcs.push_back(testing::RandomOps(seed, 24));
    for (const PassDef& pass : AllPasses()) {
      SCOPED_TRACE(pass.name);
      Module edited = module.Clone();
      std::vector<PassReport> reports;
      const absl::Status status = RunPasses(edited, {&pass}, F32Target(), {}, &reports);
      ASSERT_FALSE(absl::IsInternal(status)) << status;
      if (!status.ok() || !reports[0].changed) continue;
      ++changed;
      // These change which rows a step gets and returns.
      if (pass.run == &CacheKv || pass.run == &NarrowOutputs || pass.run_module != nullptr) {
        continue;
      }
      const Bindings bindings = {{'T', 3}, {'C', 5}, {'S', 4}, {'R', 2}};
      reference::Inputs inputs = testing::RandomInputs(*module.funcs[0], seed, bindings);
      inputs.max_live_elements = 1 << 14;
      ExpectSameMeaning(*module.funcs[0], *edited.funcs[0], inputs);
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_GT(changed, 1000);
}

TEST(RandomProgramsTest, LoweringSurvivesAnyFunction) {
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    SCOPED_TRACE(seed);
    Module module;
    module.funcs.push_back(testing::RandomOps(seed, 24));
    std::vector<PassReport> reports;
    ASSERT_EQ(RunPasses(module, *ParsePassList("fuse"), F32Target(), {}, &reports),
              absl::OkStatus());
    absl::StatusOr<plan::TargetT> target =
        SelectKernels(module, testing::TensorsOf(module), F32Target());
    ASSERT_FALSE(absl::IsInternal(target.status())) << target.status() << Print(module);
    if (target.ok()) {
      ASSERT_EQ(PlaceBuffers(*target->programs[0]), absl::OkStatus());
    }
  }
}

}  // namespace
}  // namespace quire
