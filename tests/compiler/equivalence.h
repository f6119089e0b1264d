// Compares what passes and lowering made of a definition with the definition, in double precision.
#ifndef QUIRE_TESTS_COMPILER_EQUIVALENCE_H_
#define QUIRE_TESTS_COMPILER_EQUIVALENCE_H_

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "ir/reference/interpreter.h"
#include "tests/compiler/compile_helpers.h"
#include "tests/compiler/plan_executor.h"
#include "tests/random_tensor.h"

namespace quire::testing {

// Tokens of a step, and which of its rows get logits.
using Chunk = std::pair<int64_t, std::vector<int64_t>>;

inline std::vector<Chunk> RaggedChunks() {
  return {{5, {4, 1}}, {1, {0}}, {4, {0, 1, 2, 3}}, {1, {0}}};
}

// Both sides compute in double, in another order. A path from ids to a logit adds fewer than 2^14
// terms in these small models; values stay within a few times the largest logit.
inline double DoubleBound(double largest) { return std::max(largest, 1.0) * 0x1p-53 * 0x1p14; }

// Tokens [begin, begin + count) of one fixed sequence of ids below `vocabulary`.
inline reference::Inputs TokenInputs(int64_t vocabulary, int64_t begin, int64_t count) {
  const reference::Tensor all = RandomIds("ids", 64, vocabulary);
  reference::Inputs inputs;
  reference::Tensor ids = Positions(begin, count);
  for (double& id : ids.values) id = all.values[static_cast<size_t>(id)];
  inputs.args = {{"ids", ids}, {"pos", Positions(begin, count)}};
  inputs.weights = RandomWeights();
  return inputs;
}

// What the encoder reads, ids or states, for a definition that has one; and the same in the order
// of the arguments of `encode`.
inline constexpr int64_t kSourceTokens = 7;
inline bool HasEncoder(const Func& definition) { return definition.args().size() > 2; }
inline std::vector<reference::Tensor> Source(const Func& definition, int64_t vocabulary) {
  if (const Op* states = definition.Find("states")) {
    return {RandomNormal("states", {kSourceTokens, states->type.extents[1].value()})};
  }
  return {RandomIds("source", kSourceTokens, vocabulary), Positions(0, kSourceTokens)};
}

// All inputs of a definition.
inline reference::Inputs WholeInputs(const Func& definition, int64_t vocabulary, int64_t tokens) {
  reference::Inputs inputs = TokenInputs(vocabulary, 0, tokens);
  if (HasEncoder(definition)) {
    const std::vector<reference::Tensor> source = Source(definition, vocabulary);
    if (source.size() == 1) {
      inputs.args["states"] = source[0];
    } else {
      inputs.args["source"] = source[0];
      inputs.args["source_pos"] = source[1];
    }
  }
  return inputs;
}

inline reference::Tensor RowsOf(const Chunk& chunk) {
  reference::Tensor rows = Positions(0, static_cast<int64_t>(chunk.second.size()));
  for (size_t r = 0; r < chunk.second.size(); ++r) {
    rows.values[r] = static_cast<double>(chunk.second[r]);
  }
  return rows;
}

// `step` computes logits [R,V] of a chunk that begins at token `begin`; they must be those of the
// definition over all tokens at once.
template <typename Step>
void ExpectStepsEqualTheWhole(const Func& definition, int64_t vocabulary, const Step& step) {
  int64_t tokens = 0;
  for (const Chunk& chunk : RaggedChunks()) tokens += chunk.first;
  auto whole = reference::Interpret(definition, WholeInputs(definition, vocabulary, tokens));
  ASSERT_TRUE(whole.ok()) << whole.status();
  int64_t begin = 0;
  for (const Chunk& chunk : RaggedChunks()) {
    absl::StatusOr<reference::Tensor> logits = step(begin, chunk);
    ASSERT_TRUE(logits.ok()) << logits.status();
    ASSERT_EQ(logits->extents, (std::vector<int64_t>{static_cast<int64_t>(chunk.second.size()),
                                                     (*whole)[0].last()}));
    for (size_t r = 0; r < chunk.second.size(); ++r) {
      const int64_t row = begin + chunk.second[r];
      const double* wanted = (*whole)[0].row(row);
      const double* got = logits->row(static_cast<int64_t>(r));
      double largest = 0;
      for (int64_t v = 0; v < logits->last(); ++v) {
        largest = std::max(largest, std::abs(wanted[v]));
      }
      for (int64_t v = 0; v < logits->last(); ++v) {
        ASSERT_NEAR(got[v], wanted[v], DoubleBound(largest)) << "token " << row << " logit " << v;
      }
    }
    begin += chunk.first;
  }
}

// Fills `cross` by the lowered encoder.
inline absl::Status Encode(const Func& definition, const Func& encode, int64_t vocabulary,
                           reference::KvState* cross) {
  reference::Inputs inputs;
  inputs.weights = RandomWeights();
  const std::vector<reference::Tensor> source = Source(definition, vocabulary);
  if (source.size() == 1) {
    inputs.args = {{"states", source[0]}};
  } else {
    inputs.args = {{"ids", source[0]}, {"pos", source[1]}};
  }
  inputs.cross = cross;
  return reference::Interpret(encode, inputs).status();
}

// The lowered IR, @step and perhaps an encoder, interpreted over caches.
inline void ExpectLoweredIrEqualsDefinition(const Func& definition, const Module& lowered,
                                            int64_t vocabulary) {
  reference::KvState kv, cross;
  const Func* encode = lowered.Encoder();
  ASSERT_EQ(encode != nullptr, HasEncoder(definition));
  const bool once = encode != nullptr && encode->name() == "encode";
  if (once) {
    ASSERT_EQ(Encode(definition, *encode, vocabulary, &cross), absl::OkStatus());
  }
  ExpectStepsEqualTheWhole(
      definition, vocabulary,
      [&](int64_t begin, const Chunk& chunk) -> absl::StatusOr<reference::Tensor> {
        reference::Inputs inputs = TokenInputs(vocabulary, begin, chunk.first);
        inputs.args["rows"] = RowsOf(chunk);
        inputs.kv = &kv;
        if (encode != nullptr) inputs.cross = &cross;
        if (encode != nullptr && !once) {
          cross = {};
          QUIRE_RETURN_IF_ERROR(Encode(definition, *encode, vocabulary, &cross));
        }
        QUIRE_ASSIGN_OR_RETURN(auto results, reference::Interpret(*lowered.Find("step"), inputs));
        return results[0];
      });
}

// The plan's launches, over one arena and KV layers.
inline void ExpectPlanEqualsDefinition(const Func& definition, const plan::TargetT& target,
                                       const TensorTable& tensors, int64_t vocabulary) {
  PlanExecutor executor(target, tensors, RandomWeights());
  const auto encodes = [&](bool every_step) {
    return std::any_of(target.programs.begin(), target.programs.end(), [&](const auto& program) {
      return program->name == "encode" && program->every_step == every_step;
    });
  };
  if (encodes(/*every_step=*/false)) {
    ASSERT_EQ(executor.Encode(Source(definition, vocabulary)), absl::OkStatus());
  }
  ExpectStepsEqualTheWhole(
      definition, vocabulary,
      [&](int64_t begin, const Chunk& chunk) -> absl::StatusOr<reference::Tensor> {
        if (encodes(/*every_step=*/true)) {
          QUIRE_RETURN_IF_ERROR(executor.Encode(Source(definition, vocabulary)));
        }
        reference::Inputs inputs = TokenInputs(vocabulary, begin, chunk.first);
        return executor.Step({inputs.args["ids"], inputs.args["pos"], RowsOf(chunk)});
      });
}

// Logits of all chunks, one after another.
inline absl::StatusOr<std::vector<double>> LogitsOfPlan(const Func& definition,
                                                        const plan::TargetT& target,
                                                        const TensorTable& tensors,
                                                        int64_t vocabulary, Storing storing) {
  PlanExecutor executor(target, tensors, RandomWeights(), storing);
  if (HasEncoder(definition)) {
    QUIRE_RETURN_IF_ERROR(executor.Encode(Source(definition, vocabulary)));
  }
  std::vector<double> logits;
  int64_t begin = 0;
  for (const Chunk& chunk : RaggedChunks()) {
    reference::Inputs inputs = TokenInputs(vocabulary, begin, chunk.first);
    QUIRE_ASSIGN_OR_RETURN(reference::Tensor step,
                           executor.Step({inputs.args["ids"], inputs.args["pos"], RowsOf(chunk)}));
    logits.insert(logits.end(), step.values.begin(), step.values.end());
    begin += chunk.first;
  }
  return logits;
}

// What rounding stored values does to the logits of a plan, beside what random errors of at least
// the deviation of rounding's do, put at the same places. Both add up to a sum of many independent
// small errors over a few hundred logits; three deviations of one bound the other.
inline void ExpectRoundingDoesWhatItMay(const Func& definition, const plan::TargetT& target,
                                        const TensorTable& tensors, int64_t vocabulary) {
  auto exact = LogitsOfPlan(definition, target, tensors, vocabulary, Storing::kExact);
  ASSERT_TRUE(exact.ok()) << exact.status();
  auto distance = [&](Storing storing) {
    auto logits = LogitsOfPlan(definition, target, tensors, vocabulary, storing);
    EXPECT_TRUE(logits.ok()) << logits.status();
    double sum = 0;
    for (size_t i = 0; logits.ok() && i < exact->size(); ++i) {
      sum += ((*logits)[i] - (*exact)[i]) * ((*logits)[i] - (*exact)[i]);
    }
    return std::sqrt(sum);
  };
  const double rounded = distance(Storing::kRounded), disturbed = distance(Storing::kDisturbed);
  EXPECT_GT(rounded, 0);
  EXPECT_LT(rounded, 3 * disturbed);
}

}  // namespace quire::testing

#endif  // QUIRE_TESTS_COMPILER_EQUIVALENCE_H_
