// A request's tokens and log-probabilities are those of a sequential run, whatever shares its
// steps.
#include <random>

#include "gtest/gtest.h"
#include "tests/runtime/engine_rig.h"

namespace quire {
namespace {

using testing::Continuation;
using testing::Continuations;
using testing::EngineRig;
using testing::kRigVocabulary;
using testing::Sequential;

Request RandomRequest(std::mt19937* random, int32_t most_prompt, int32_t most_output) {
  const auto draw = [&](int32_t bound) {
    return static_cast<int32_t>((*random)() % static_cast<uint32_t>(bound));
  };
  Request request;
  // Prompts start alike often, so that prefixes are found.
  const int32_t prompt = 1 + draw(most_prompt);
  const int32_t shared = draw(2) * draw(prompt + 1);
  for (int32_t i = 0; i < prompt; ++i) {
    request.ids.push_back(i < shared ? i % 5 : draw(kRigVocabulary));
  }
  request.max_tokens = 1 + draw(most_output);
  request.samples = 1 + draw(3) * draw(2);
  request.sampling.temperature = draw(2) ? 1.0f : 0.0f;
  request.sampling.seed = (*random)();
  request.sampling.top_k = draw(2) * 7;
  request.sampling.repetition_penalty = draw(2) ? 1.3f : 1.0f;
  request.sampling.logprobs = true;
  request.sampling.top_logprobs = draw(3);
  request.ignore_eos = draw(2) == 1;
  return request;
}

void ExpectSequential(const EngineRig& rig, const std::map<RequestId, Request>& requests,
                      const Continuations& all) {
  size_t samples = 0;
  for (const auto& [id, request] : requests) {
    for (int32_t sample = 0; sample < request.samples; ++sample) {
      ++samples;
      const auto found = all.find({id, sample});
      ASSERT_NE(found, all.end()) << id << "/" << sample;
      const Continuation expected = Sequential(rig.program, request, sample);
      EXPECT_EQ(found->second.ids, expected.ids) << id << "/" << sample;
      EXPECT_TRUE(found->second == expected) << id << "/" << sample;
      const bool is_stopped =
          !request.ignore_eos && !expected.ids.empty() && expected.ids.back() == 27;
      EXPECT_EQ(found->second.finish,
                is_stopped ? FinishReason::kStopToken : FinishReason::kLength);
    }
  }
  EXPECT_EQ(all.size(), samples);
}

struct Setting {
  int32_t page_tokens, step_tokens, chunk_tokens, cache_pages, max_sequences;
  bool reuse_prefixes;
  bool preempts;
};

class EngineBatchTest : public ::testing::TestWithParam<Setting> {};

TEST_P(EngineBatchTest, AgreesWithASequentialRun) {
  const Setting setting = GetParam();
  EngineOptions options;
  options.step_tokens = setting.step_tokens;
  options.chunk_tokens = setting.chunk_tokens;
  options.cache_pages = setting.cache_pages;
  options.max_sequences = setting.max_sequences;
  options.reuse_prefixes = setting.reuse_prefixes;
  EngineRig rig(options, setting.page_tokens);
  std::mt19937 random(11);
  std::map<RequestId, Request> requests;
  Continuations all;
  std::vector<TokenEvent> events;
  // Requests arrive while others run.
  for (int step = 0; requests.size() < 60 || !rig.engine->idle(); ++step) {
    ASSERT_LT(step, 100000);
    for (uint32_t i = random() % 4; requests.size() < 60 && step % 3 == 0 && i > 0; --i) {
      const Request request = RandomRequest(&random, 60, 30);
      requests[rig.Submit(request)] = request;
    }
    events.clear();
    const absl::Status status = rig.engine->Step(&events);
    ASSERT_TRUE(status.ok()) << status;
    for (const TokenEvent& event : events) testing::Collect(event, &all);
  }
  ExpectSequential(rig, requests, all);
  const EngineCounters counters = rig.engine->counters();
  EXPECT_EQ(counters.available_pages, counters.total_pages);
  EXPECT_LE(rig.program.most_rows, static_cast<size_t>(setting.step_tokens));
  EXPECT_LE(rig.program.most_sequences, static_cast<size_t>(setting.max_sequences));
  EXPECT_EQ(counters.reused_tokens > 0, setting.reuse_prefixes);
  EXPECT_EQ(counters.preemptions > 0, setting.preempts) << counters.preemptions;
}

INSTANTIATE_TEST_SUITE_P(
    Settings, EngineBatchTest,
    ::testing::Values(
        Setting{4, 512, 0, 4000, 64, false, false}, Setting{16, 512, 1, 1000, 64, false, false},
        Setting{16, 512, 7, 1000, 64, true, false}, Setting{3, 512, 64, 4000, 64, true, false},
        Setting{4, 1, 0, 4000, 64, true, false}, Setting{4, 9, 0, 4000, 64, false, false},
        Setting{1, 40, 0, 4000, 5, true, false},
        // A pool that barely holds the longest request, and some more.
        Setting{4, 64, 0, 23, 64, false, true}, Setting{4, 16, 5, 30, 64, true, true},
        Setting{1, 64, 0, 90, 64, true, true}));

TEST(EngineTest, DecodesOfManyShareASteps) {
  EngineRig rig;
  Request request;
  request.ids = {1, 2, 3};
  request.max_tokens = 10;
  request.ignore_eos = true;
  for (int i = 0; i < 16; ++i) {
    request.ids[0] = i;
    rig.Submit(request);
  }
  rig.Run();
  EXPECT_EQ(rig.program.most_sequences, 16u);
  EXPECT_EQ(rig.engine->counters().steps, 10);
  EXPECT_EQ(rig.engine->counters().computed_tokens, 16 * 12);
}

TEST(EngineTest, SamplesShareTheirPrompt) {
  EngineRig rig;
  Request request;
  for (int32_t i = 0; i < 30; ++i) request.ids.push_back(i);
  request.max_tokens = 5;
  request.samples = 4;
  request.ignore_eos = true;
  request.sampling.temperature = 1;
  rig.Submit(request);
  const Continuations all = rig.Run();
  EXPECT_EQ(all.size(), 4u);
  EXPECT_EQ(rig.engine->counters().computed_tokens, 30 + 4 * 4);
  // The page that the prompt ends in is written by all four: three copy it.
  EXPECT_EQ(rig.engine->counters().copied_pages, 3);
  EXPECT_NE(all.at({1, 0}).ids, all.at({1, 1}).ids);
}

TEST(EngineTest, SecondRequestStartsFromTheFirstOnesPages) {
  EngineRig rig;
  Request request;
  for (int32_t i = 0; i < 22; ++i) request.ids.push_back(i);
  request.max_tokens = 3;
  rig.Submit(request);
  const Continuations first = rig.Run();
  const int64_t computed = rig.engine->counters().computed_tokens;
  rig.Submit(request);
  const Continuations second = rig.Run();
  EXPECT_EQ(rig.engine->counters().reused_tokens, 20);
  EXPECT_EQ(rig.engine->counters().computed_tokens, 2 * computed - 20);
  EXPECT_TRUE(first.at({1, 0}) == second.at({2, 0}));
}

TEST(EngineAdmissionTest, AStepTakesAllThatPagesSufficeFor) {
  constexpr int32_t kRequests = 8, kPrompt = 12, kPageTokens = 4;
  EngineOptions options;
  options.step_tokens = kRequests * kPrompt;
  options.cache_pages = kRequests * (kPrompt / kPageTokens + 1);
  EngineRig rig(options, kPageTokens);
  Request request;
  request.max_tokens = kPageTokens;
  for (int32_t i = 0; i < kRequests; ++i) {
    request.ids.assign(kPrompt, i);
    rig.Submit(request);
  }
  std::vector<TokenEvent> events;
  ASSERT_TRUE(rig.engine->Step(&events).ok());
  EXPECT_EQ(rig.engine->counters().computed_tokens, kRequests * kPrompt);
}

}  // namespace
}  // namespace quire
