// Steps of a device that keeps the logits and tells the greatest alone: the same tokens as of whole
// rows of logits, whatever rules allow and whatever shares the steps.
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/runtime/engine_rig.h"

namespace quire {
namespace {

using testing::Continuation;
using testing::Continuations;
using testing::EngineRig;
using testing::kRigVocabulary;

// Greedy, by rules of every kind; now and then one that needs whole rows.
std::vector<Request> Requests(uint32_t seed, int count, int whole_rows) {
  std::mt19937 random(seed);
  const auto draw = [&](int32_t bound) {
    return static_cast<int32_t>(random() % static_cast<uint32_t>(bound));
  };
  std::vector<Request> requests;
  for (int i = 0; i < count; ++i) {
    Request& request = requests.emplace_back();
    const int32_t prompt = 1 + draw(2) * draw(9);
    for (int32_t j = 0; j < prompt; ++j) request.ids.push_back(draw(kRigVocabulary));
    request.max_tokens = 1 + draw(30);
    request.samples = 1 + draw(2) * draw(3);
    SamplingParams& sampling = request.sampling;
    sampling.seed = random();
    if (draw(2)) sampling.no_repeat_ngram = 1 + draw(3);
    if (draw(3) == 0) sampling.min_length = draw(20);
    if (draw(3) == 0) sampling.min_new_tokens = draw(20);
    if (draw(3) == 0) sampling.begin_suppressed = {draw(30), draw(30), draw(30), draw(30)};
    if (draw(3) == 0) sampling.forced_bos = draw(30);
    if (draw(3) == 0) sampling.forced_eos = draw(30);
    if (i >= whole_rows) continue;
    if (i % 3 == 0) sampling.temperature = 1;
    if (i % 3 == 1) sampling.logprobs = true;
    if (i % 3 == 2) request.samples = 1, request.beam.beams = 2;
  }
  return requests;
}

struct Outcome {
  Continuations all;
  int64_t greedy_steps = 0, rows_read = 0, steps = 0;
};

Outcome RunOn(bool is_device, const std::vector<Request>& requests, int32_t broken_token = -1) {
  EngineRig rig({.max_sequences = 64, .step_tokens = 64, .cache_pages = 900});
  rig.program.is_device = is_device;
  rig.program.broken_token = broken_token;
  for (const Request& request : requests) rig.Submit(request);
  Outcome outcome;
  outcome.all = rig.Run();
  outcome.greedy_steps = rig.program.greedy_steps;
  outcome.rows_read = rig.program.rows_read;
  outcome.steps = rig.program.steps;
  return outcome;
}

void ExpectSame(const Continuations& all, const Continuations& expected) {
  ASSERT_EQ(all.size(), expected.size());
  for (const auto& [key, one] : expected) {
    const Continuation& got = all.at(key);
    EXPECT_TRUE(got == one) << key.first;
    EXPECT_EQ(got.finish, one.finish) << key.first;
    EXPECT_EQ(got.error, one.error) << key.first;
  }
}

TEST(EngineGreedyTest, RulesNeedARowOnlyWhereTheyForbidTheGreatest) {
  int64_t tokens = 0, rows_read = 0;
  for (uint32_t seed = 0; seed < 20; ++seed) {
    const std::vector<Request> requests = Requests(seed, 12, 0);
    const Outcome device = RunOn(true, requests);
    ExpectSame(device.all, RunOn(false, requests).all);
    EXPECT_EQ(device.greedy_steps, device.steps);
    for (const auto& [key, one] : device.all) tokens += static_cast<int64_t>(one.ids.size());
    rows_read += device.rows_read;
  }
  EXPECT_GT(rows_read, 0);
  EXPECT_LT(rows_read, tokens / 2);
}

TEST(EngineGreedyTest, FewThatNeedWholeRowsReadTheirOwn) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    const std::vector<Request> requests = Requests(seed, 30, 3);
    const Outcome device = RunOn(true, requests);
    ExpectSame(device.all, RunOn(false, requests).all);
    EXPECT_GT(device.greedy_steps, 0);
    EXPECT_GT(device.rows_read, 0);
  }
  // Of two rows, both are brought.
  const std::vector<Request> both = Requests(1, 2, 2);
  const Outcome device = RunOn(true, both);
  ExpectSame(device.all, RunOn(false, both).all);
  EXPECT_EQ(device.greedy_steps, 0);
}

TEST(EngineGreedyTest, BrokenLogitsEndTheirOwnContinuation) {
  const std::vector<Request> requests = Requests(5, 12, 0);
  const Outcome device = RunOn(true, requests, /*broken_token=*/3);
  ExpectSame(device.all, RunOn(false, requests, 3).all);
  int failed = 0;
  for (const auto& [key, one] : device.all) failed += one.finish == FinishReason::kFailed ? 1 : 0;
  EXPECT_GT(failed, 0);
}

TEST(EngineGreedyTest, ARowThatCannotBeReadIsAnErrorOfTheStep) {
  EngineRig rig({.max_sequences = 64, .step_tokens = 64, .cache_pages = 900});
  rig.program.is_device = true;
  rig.program.fail_at_row = 1;
  for (const Request& request : Requests(3, 12, 0)) rig.Submit(request);
  const absl::Status status = rig.engine->Run([](const TokenEvent&) {});
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
}

}  // namespace
}  // namespace quire
