// What `quire verify` allows a plan for CUDA beside its definition: enough for values stored as the
// plan says, and not much more.
#include "tools/verify_reference.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "compiler/compile.h"
#include "gtest/gtest.h"
#include "ir/reference/dequantize.h"
#include "ir/text.h"
#include "models/import/checkpoint.h"
#include "models/model.h"
#include "runtime/weights.h"
#include "tests/compiler/compile_helpers.h"
#include "tests/compiler/plan_executor.h"
#include "tests/parity/fixture.h"
#include "tools/assemble_plan.h"

namespace quire {
namespace {

class VerifyReferenceTest : public ::testing::TestWithParam<const char*> {};

TEST_P(VerifyReferenceTest, AllowsWhatStoringInSixteenBitsCosts) {
  const auto fixture = testing::ReadFixture(GetParam());
  ASSERT_TRUE(fixture.ok()) << fixture.status();
  AssembleOptions options;
  options.model = testing::FixturePath(GetParam());
  options.plan_path = ::testing::TempDir() + "/verify_reference.qplan";
  auto assembled = AssemblePlan(options);
  ASSERT_TRUE(assembled.ok()) << assembled.status();
  const plan::PlanT& plan = *assembled->plan;
  const TensorFiles files(plan, ::testing::TempDir(), "");
  const reference::WeightFn weights = [&](absl::string_view name,
                                          const Type& type) -> absl::StatusOr<reference::Tensor> {
    std::vector<int64_t> extents;
    for (const Extent& extent : type.extents) extents.push_back(extent.value());
    QUIRE_ASSIGN_OR_RETURN(reference::Tensor tensor, reference::Tensor::Zeros(extents));
    for (size_t i = 0; i < plan.tensors.size(); ++i) {
      if (plan.tensors[i]->name != name) continue;
      QUIRE_ASSIGN_OR_RETURN(const SlotRows rows,
                             RowsOfTensor(static_cast<uint32_t>(i), plan.tensors, files));
      QUIRE_RETURN_IF_ERROR(Dequantize(type.dtype, rows.bytes, absl::MakeSpan(tensor.values)));
    }
    return tensor;
  };
  const auto module = Parse(plan.ir);
  ASSERT_TRUE(module.ok()) << module.status();
  const Target target = TargetFor("cuda", plan.tensors);
  const auto cuda = CompileTarget(*module, target, CompileOptions(), plan.tensors);
  ASSERT_TRUE(cuda.ok()) << cuda.status();
  const auto reference =
      ComputeReference(plan, cuda->target, options.plan_path, "", {fixture->ids, fixture->source});
  ASSERT_TRUE(reference.ok()) << reference.status();
  EXPECT_LE(reference->lowered_error, reference->lowered_allowed);
  testing::PlanExecutor executor(cuda->target, plan.tensors, weights, testing::Storing::kRounded);
  const auto T = static_cast<int64_t>(fixture->ids.size());
  reference::Tensor ids{{T}, {fixture->ids.begin(), fixture->ids.end()}}, rows = ids;
  std::iota(rows.values.begin(), rows.values.end(), 0);
  const auto logits = executor.Step({ids, rows, rows});
  ASSERT_TRUE(logits.ok()) << logits.status();
  double nearest = 0;
  const auto V = static_cast<size_t>(logits->last());
  for (int64_t t = 0; t < T; ++t) {
    const std::vector<float> row(logits->row(t), logits->row(t) + V);
    const double error = RelativeError(row, {reference->logits.row(t), V});
    const double allowed = reference->allowed[static_cast<size_t>(t)];
    EXPECT_LE(error, allowed) << "row " << t;
    nearest = std::max(nearest, error / allowed);
  }
  // Three deviations are allowed, of errors up to twice those of rounding, summed over what
  // weights, attention and stored values do: where one of the three is all, a part of 1/18.
  EXPECT_GT(nearest, 1.0 / 18);
}

// An encoder that runs with every step stores its values as one that runs once does.
TEST(VerifyReferenceEncoderTest, EncodersOfEveryStepAreAllowedTheSame) {
  const auto fixture = testing::ReadFixture("bart");
  ASSERT_TRUE(fixture.ok()) << fixture.status();
  AssembleOptions options;
  options.model = testing::FixturePath("bart");
  options.plan_path = ::testing::TempDir() + "/verify_reference_encoder.qplan";
  options.targets.resize(1);
  options.targets[0].name = "cuda";
  std::vector<double> allowed[2];
  for (const bool every_step : {false, true}) {
    if (every_step) {
      options.passes = *ParsePassList(
          "recognise-attention,remove-kv-expansion,merge-projections,split-rows,cache-kv,"
          "narrow-outputs,fuse");
    }
    const auto assembled = AssemblePlan(options);
    ASSERT_TRUE(assembled.ok()) << assembled.status();
    const plan::PlanT& plan = *assembled->plan;
    const auto reference = ComputeReference(plan, *plan.targets[0], options.plan_path, "",
                                            {fixture->ids, fixture->source});
    ASSERT_TRUE(reference.ok()) << reference.status();
    EXPECT_LE(reference->lowered_error, reference->lowered_allowed);
    allowed[every_step ? 1 : 0] = reference->allowed;
  }
  EXPECT_EQ(allowed[0], allowed[1]);
}

INSTANTIATE_TEST_SUITE_P(All, VerifyReferenceTest,
                         ::testing::Values("llama_gqa_tied", "gguf_mistral_q4_1", "gemma3", "bloom",
                                           "gpt2"),
                         [](const auto& family) { return std::string(family.param); });

}  // namespace
}  // namespace quire
