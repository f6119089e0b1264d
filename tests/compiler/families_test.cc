// Every family of models through the whole compiler: what the lowered step computes, chunk by chunk
// over a cache, is what the definition computes on the whole sequence.
#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "codegen/spec.h"
#include "gtest/gtest.h"
#include "ir/reference/interpreter.h"
#include "models/import/checkpoint.h"
#include "models/model.h"
#include "tests/compiler/compile_helpers.h"
#include "tests/random_tensor.h"

namespace quire {
namespace {

using reference::Inputs;
using reference::KvState;
using reference::Tensor;

std::vector<std::string> Families() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(QUIRE_TESTDATA "/parity/fixtures")) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

class FamiliesTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    absl::StatusOr<Checkpoint> checkpoint =
        OpenCheckpoint(absl::StrCat(QUIRE_TESTDATA "/parity/fixtures/", GetParam()));
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
    absl::StatusOr<ModelDef> model = BuildModel(*checkpoint);
    ASSERT_TRUE(model.ok()) << model.status();
    module_ = std::move(model->module);
    vocab_ = model->vocab_size;
    Target target;
    target.kv_dtype = DType::kF32;
    absl::StatusOr<CompiledTarget> compiled =
        CompileTarget(module_, target, CompileOptions{}, testing::TensorsOf(module_));
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    compiled_ = *std::move(compiled);
  }

  // Tokens [begin, end) of a fixed random sequence.
  Inputs Tokens(int64_t begin, int64_t end) const {
    const Tensor all = testing::RandomIds("ids", 64, vocab_);
    Tensor ids = testing::Positions(begin, end - begin);
    for (double& id : ids.values) id = all.values[static_cast<size_t>(id)];
    Inputs inputs;
    inputs.args = {{"ids", ids}, {"pos", testing::Positions(begin, end - begin)}};
    inputs.weights = testing::RandomWeights();
    return inputs;
  }

  Module module_;
  int64_t vocab_ = 0;
  CompiledTarget compiled_;
};

TEST_P(FamiliesTest, ChunksOverTheCacheEqualTheWholeSequence) {
  constexpr int64_t kTokens = 11;
  auto whole = reference::Interpret(*module_.funcs[0], Tokens(0, kTokens));
  ASSERT_TRUE(whole.ok()) << whole.status();
  KvState kv;
  const std::vector<std::pair<int64_t, std::vector<int64_t>>> chunks = {
      {5, {4, 1}}, {1, {0}}, {4, {0, 1, 2, 3}}, {1, {0}}};  // tokens, rows with logits
  int64_t begin = 0;
  for (const auto& [tokens, rows] : chunks) {
    Inputs inputs = Tokens(begin, begin + tokens);
    Tensor picked = testing::Positions(0, static_cast<int64_t>(rows.size()));
    for (size_t r = 0; r < rows.size(); ++r) picked.values[r] = static_cast<double>(rows[r]);
    inputs.args["rows"] = picked;
    inputs.kv = &kv;
    auto logits = reference::Interpret(*compiled_.lowered.funcs[0], inputs);
    ASSERT_TRUE(logits.ok()) << logits.status();
    for (size_t r = 0; r < rows.size(); ++r) {
      const double* wanted = (*whole)[0].row(begin + rows[r]);
      const double* got = (*logits)[0].row(static_cast<int64_t>(r));
      double largest = 0;
      for (int64_t v = 0; v < vocab_; ++v) largest = std::max(largest, std::abs(wanted[v]));
      for (int64_t v = 0; v < vocab_; ++v) {
        // The cache rounds K and V to f32 once: one part in 2^24 of each score and of each sum,
        // over a few layers.
        ASSERT_NEAR(got[v], wanted[v], largest * 1e-5) << "token " << begin + rows[r];
      }
    }
    begin += tokens;
  }
  EXPECT_EQ(kv.tokens, kTokens);
}

TEST_P(FamiliesTest, EveryAttentionIsRecognisedAndNoHeadIsRepeated) {
  const std::string text = Print(compiled_.lowered);
  for (absl::string_view gone : {"softmax", "matmul", "causal_mask", "expand_heads", "alibi "}) {
    EXPECT_FALSE(absl::StrContains(text, gone)) << gone << "\n" << text;
  }
}

TEST_P(FamiliesTest, EveryKernelSpecParses) {
  for (const auto& kernel : compiled_.target.kernels) {
    absl::StatusOr<KernelSpec> spec = ParseSpec(kernel->spec);
    ASSERT_TRUE(spec.ok()) << spec.status();
    EXPECT_EQ(SpecText(*spec), kernel->spec);
    if (const auto* row = std::get_if<RowSpec>(&*spec)) {
      absl::StatusOr<Module> module = Parse(row->func);
      ASSERT_TRUE(module.ok()) << module.status();
      EXPECT_EQ(Print(*module), row->func);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, FamiliesTest, ::testing::ValuesIn(Families()),
                         [](const auto& family) { return family.param; });

}  // namespace
}  // namespace quire
