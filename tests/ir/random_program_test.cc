// The generator's own promises, and with them the interpreter's: the three forms of a program mean
// the same, and a sequence means the same whole or in chunks.
#include "tests/random_program.h"

#include <set>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "tests/near.h"
#include "tests/random.h"
#include "tests/random_tensor.h"

namespace quire::testing {
namespace {

using reference::Inputs;
using reference::Interpret;
using reference::KvState;
using reference::Tensor;

constexpr int kPrograms = 60;

std::vector<Tensor> RunOrFail(const Func& func, const Inputs& inputs) {
  auto results = Interpret(func, inputs);
  EXPECT_TRUE(results.ok()) << results.status() << "\n" << Print(func);
  return results.ok() ? *std::move(results) : std::vector<Tensor>{};
}

TEST(RandomProgramTest, IsValidAndDeterministic) {
  std::set<std::string> texts;
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    ProgramOptions options;
    options.form =
        Random(seed).OneOf({ProgramForm::kDefinition, ProgramForm::kRaised, ProgramForm::kCached});
    options.block_weights = seed % 3 == 0;
    options.casts = options.tiled_heads = seed % 2 == 0;
    const auto func = RandomProgram(seed, options);
    ASSERT_TRUE(Verify(*func).ok()) << Verify(*func) << Print(*func);
    ASSERT_EQ(Print(*func), Print(*RandomProgram(seed, options)));
    texts.insert(Print(*func));
  }
  EXPECT_EQ(texts.size(), 1000u);
}

// Roundings of a double on the longest path from ids to logits: two layers of eight reductions of
// at most 256 terms each; norms keep every one of them relative to the row's size.
constexpr double kRoundings = 2 * 8 * 256;

double LargestDifference(const Tensor& a, const Tensor& b) {
  double largest = 0;
  for (size_t i = 0; i < a.values.size(); ++i) {
    largest = std::max(largest, std::abs(a.values[i] - b.values[i]));
  }
  return largest;
}

TEST(RandomProgramTest, FormsMeanTheSame) {
  for (uint64_t seed = 0; seed < kPrograms; ++seed) {
    ProgramOptions options;
    options.tiled_heads = true;
    options.block_weights = seed % 8 == 0;
    const auto definition = RandomProgram(seed, options);
    options.form = ProgramForm::kRaised;
    const auto raised = RandomProgram(seed, options);
    options.form = ProgramForm::kCached;
    const auto cached = RandomProgram(seed, options);
    const Inputs inputs = RandomInputs(*definition, seed, {{'T', 19}});
    const std::vector<Tensor> want = RunOrFail(*definition, inputs);
    const std::vector<Tensor> from_raised = RunOrFail(*raised, inputs);
    const std::vector<Tensor> from_cached = RunOrFail(*cached, inputs);
    ASSERT_TRUE(!want.empty() && !from_raised.empty() && !from_cached.empty());
    EXPECT_GT(Largest(want[0]), 1e-3) << "nothing to compare";
    EXPECT_LE(LargestDifference(from_raised[0], want[0]), kRoundings * 0x1p-53 * Largest(want[0]))
        << Print(*raised);
    EXPECT_EQ(from_cached[0].values, from_raised[0].values) << Print(*cached);
  }
}

// Every row's sums run over the same terms in the same order, so the numbers are equal, not near.
TEST(RandomProgramTest, ChunksMeanTheWhole) {
  constexpr int64_t kTokens = 17;
  for (uint64_t seed = 0; seed < kPrograms; ++seed) {
    ProgramOptions options;
    options.form = ProgramForm::kCached;
    options.kv_dtype = seed % 2 == 0 ? DType::kF32 : DType::kF16;
    options.casts = true;
    const auto func = RandomProgram(seed, options);
    const Inputs whole = RandomInputs(*func, seed, {{'T', kTokens}});
    const std::vector<Tensor> want = RunOrFail(*func, whole);
    ASSERT_EQ(want.size(), 1u);
    KvState state;
    std::vector<double> got;
    Random random(seed);
    while (state.tokens < kTokens) {
      const int64_t rows = std::min(random.Between(1, 5), kTokens - state.tokens);
      Inputs chunk = RandomInputs(*func, seed, {{'T', rows}}, state.tokens);
      const auto ids = whole.args.at("ids").values.begin() + state.tokens;
      chunk.args["ids"].values.assign(ids, ids + rows);
      chunk.kv = &state;
      const std::vector<Tensor> part = RunOrFail(*func, chunk);
      ASSERT_EQ(part.size(), 1u);
      got.insert(got.end(), part[0].values.begin(), part[0].values.end());
    }
    EXPECT_EQ(got, want[0].values) << Print(*func);
  }
}

TEST(RandomOpsTest, EveryOpAndAttributeAppears) {
  std::set<std::string> ops;
  std::set<std::string> attributes;
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    const auto func = RandomOps(seed, 30);
    ASSERT_TRUE(Verify(*func).ok()) << Verify(*func) << Print(*func);
    for (const auto& op : func->ops()) {
      ops.insert(op->def().mnemonic);
      for (const auto& [kind, value] : op->attrs()) attributes.insert(DefOf(kind).text);
    }
  }
  for (const OpDef& def : AllOps()) {
    EXPECT_EQ(ops.count(def.mnemonic), def.kind == OpKind::kArg ? 0u : 1u) << def.mnemonic;
  }
  for (const AttrDef& def : AllAttrs()) EXPECT_EQ(attributes.count(def.text), 1u) << def.text;
}

TEST(RandomOpsTest, TheInterpreterSurvivesThem) {
  int evaluated = 0;
  for (uint64_t seed = 0; seed < 500; ++seed) {
    const auto func = RandomOps(seed, 20);
    Bindings bindings = {{'T', 3}, {'C', 5}, {'S', 2}, {'R', 2}};
    Inputs inputs = RandomInputs(*func, seed, bindings);
    inputs.max_live_elements = 1 << 20;
    KvState cross;  // of what RandomOps has kv_read declare
    cross.tokens = 2;
    for (int64_t layer = 0; layer <= 8; ++layer) {
      for (const char* slot : {"k", "v"}) cross.rows[{layer, slot}] = *Tensor::Zeros({2, 2, 8});
    }
    inputs.cross = &cross;
    const auto results = Interpret(*func, inputs);
    evaluated += results.ok() ? 1 : 0;
    if (results.ok()) continue;
    // An id outside a table, a context that does not follow, no encoder before, more than the
    // limit: no other reason.
    const std::string message(results.status().message());
    EXPECT_TRUE(absl::StrContains(message, "of a table of") ||
                absl::StrContains(message, "tokens precede") ||
                absl::StrContains(message, "is appended to twice") ||
                absl::StrContains(message, "but an encoder has") ||
                absl::StrContains(message, "no encoder left") ||
                results.status().code() == absl::StatusCode::kResourceExhausted)
        << results.status() << "\n"
        << Print(*func);
  }
  EXPECT_GT(evaluated, 100);
}

}  // namespace
}  // namespace quire::testing
