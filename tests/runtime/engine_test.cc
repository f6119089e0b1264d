#include "runtime/engine.h"

#include <tuple>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/runtime/engine_rig.h"
#include "tests/runtime/letters.h"

namespace quire {
namespace {

using testing::Continuations;
using testing::EngineRig;
using ::testing::HasSubstr;
using testing::Sequential;

Request Prompt(std::vector<int32_t> ids, int32_t max_tokens) {
  Request request;
  request.ids = std::move(ids);
  request.max_tokens = max_tokens;
  request.ignore_eos = true;
  return request;
}

TEST(EngineRequestTest, PromptsThatDoNotFitAreRefusedWithWhatDoes) {
  EngineRig rig({.cache_pages = 5});
  const auto error = [&](int32_t prompt, int32_t max_tokens) {
    return rig.engine->Submit(Prompt(std::vector<int32_t>(prompt, 1), max_tokens)).status();
  };
  EXPECT_EQ(error(21, 1).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(error(21, 1).message(), HasSubstr("prompts of up to 20 tokens"));
  EXPECT_EQ(error(15, 7).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(error(15, 7).message(), HasSubstr("max_tokens up to 6 after this prompt"));
  EXPECT_TRUE(error(15, 6).ok());
  EXPECT_TRUE(error(20, 1).ok());
  const Continuations all = rig.Run();
  EXPECT_EQ(all.at({1, 0}).ids.size(), 6u);
  EXPECT_EQ(all.at({2, 0}).ids.size(), 1u);
}

TEST(EngineRequestTest, PositionsLimitToo) {
  EngineRig rig({}, 4, /*max_positions=*/10);
  const auto refused = rig.engine->Submit(Prompt(std::vector<int32_t>(11, 1), 1)).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.message(), HasSubstr("prompts of up to 10 tokens"));
  rig.Submit(Prompt({1, 2, 3}, 0));
  EXPECT_EQ(rig.Run().at({1, 0}).ids.size(), 8u);
}

TEST(EngineRequestTest, LengthsThatTheModelStatesHoldWhereTheRequestSaysNone) {
  EngineRig rig({}, 4, /*max_positions=*/10);
  const auto submit = [&](int32_t max_tokens, int32_t default_tokens, int32_t max_length) {
    Request request = Prompt({1, 2, 3}, max_tokens);
    request.default_tokens = default_tokens;
    request.max_length = max_length;
    return rig.engine->Submit(std::move(request)).status();
  };
  for (const auto& [max_tokens, default_tokens, max_length] :
       {std::tuple(0, 5, 0), std::tuple(0, 500, 0), std::tuple(0, 0, 7), std::tuple(0, 2, 7),
        std::tuple(0, 0, 700), std::tuple(6, 2, 4)}) {
    ASSERT_TRUE(submit(max_tokens, default_tokens, max_length).ok());
  }
  const Continuations all = rig.Run();
  const size_t expected[] = {5, 8, 4, 2, 8, 6};
  for (RequestId id = 1; id <= 6; ++id) EXPECT_EQ(all.at({id, 0}).ids.size(), expected[id - 1]);
  const absl::Status refused = submit(0, 0, 3);
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.message(), HasSubstr("a prompt of 3 tokens leaves none of max_length=3"));
  EXPECT_THAT(submit(0, -1, 0).message(), HasSubstr("default_tokens=-1"));
  EXPECT_THAT(submit(0, 0, -2).message(), HasSubstr("max_length=-2"));
}

TEST(EngineRequestTest, MalformedRequestsAreRefused) {
  EngineRig rig({.max_sequences = 4});
  const auto message = [&](const Request& request) {
    const absl::Status status = rig.engine->Submit(request).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_THAT(message(Prompt({}, 1)), HasSubstr("prompt is empty"));
  EXPECT_THAT(message(Prompt({1, 30}, 1)), HasSubstr("prompt: 30 is not a token"));
  EXPECT_THAT(message(Prompt({-1}, 1)), HasSubstr("prompt: -1 is not a token"));
  EXPECT_THAT(message(Prompt({1}, -1)), HasSubstr("max_tokens=-1"));
  Request request = Prompt({1}, 1);
  request.samples = 5;
  EXPECT_THAT(message(request), HasSubstr("samples=5"));
  request = Prompt({1}, 1);
  request.stop = {"x"};
  EXPECT_THAT(message(request), HasSubstr("tokenizer"));
  request = Prompt({}, 1);
  request.text = "abc";
  EXPECT_THAT(message(request), HasSubstr("tokenizer"));
  request = Prompt({1}, 1);
  request.sampling.top_p = 2;
  EXPECT_THAT(message(request), HasSubstr("top_p=2"));
  request = Prompt({1}, 1);
  request.timeout_s = -1;
  EXPECT_THAT(message(request), HasSubstr("timeout_s=-1"));
}

TEST(EngineOptionsTest, AreChecked) {
  testing::FakeProgram program(30, 4);
  EngineModel model;
  model.program = &program;
  model.vocabulary = 30;
  model.page_tokens = 4;
  const auto message = [&](const EngineOptions& options) {
    return std::string(Engine::Create(model, options).status().message());
  };
  EXPECT_THAT(message({.max_sequences = 0}), HasSubstr("max_sequences=0"));
  EXPECT_THAT(message({.step_tokens = 0}), HasSubstr("step_tokens=0"));
  EXPECT_THAT(message({.cache_bytes = 65535}), HasSubstr("allowed: 65536 or more"));
  auto engine = Engine::Create(model, {.cache_bytes = 65536 * 100});
  ASSERT_TRUE(engine.ok());
  EXPECT_EQ((*engine)->counters().total_pages, 100);
  model.max_positions = 30;
  engine = Engine::Create(model, {.max_sequences = 3});
  ASSERT_TRUE(engine.ok());
  EXPECT_EQ((*engine)->counters().total_pages, 3 * 8);
}

TEST(EngineTest, StopsAtTokens) {
  EngineRig rig;
  Request request = Prompt({4, 5}, 200);
  request.sampling.temperature = 3;
  request.ignore_eos = false;
  rig.Submit(request);
  const auto stopped = rig.Run().at({1, 0});
  EXPECT_EQ(stopped.finish, FinishReason::kStopToken);
  EXPECT_EQ(stopped.ids.back(), 27);
  request.ignore_eos = true;
  request.stop_ids = {stopped.ids[2]};
  rig.Submit(request);
  const auto again = rig.Run().at({2, 0});
  EXPECT_EQ(again.finish, FinishReason::kStopToken);
  EXPECT_EQ(again.ids.back(), stopped.ids[2]);
  EXPECT_LE(again.ids.size(), 3u);
}

TEST(EngineTest, CancelEndsEverySampleAndFreesPages) {
  EngineRig rig;
  Request request = Prompt({1, 2, 3, 4, 5}, 50);
  request.samples = 3;
  const RequestId cancelled = rig.Submit(request);
  const RequestId other = rig.Submit(Prompt({7, 8}, 20));
  const RequestId queued = rig.Submit(request);
  Continuations all;
  int events = 0;
  ASSERT_TRUE(rig.engine
                  ->Run([&](const TokenEvent& event) {
                    testing::Collect(event, &all);
                    if (++events == 10) {
                      EXPECT_TRUE(rig.engine->Cancel(cancelled).ok());
                    }
                  })
                  .ok());
  for (int32_t sample = 0; sample < 3; ++sample) {
    const auto& one = all.at({cancelled, sample});
    EXPECT_EQ(one.finish, FinishReason::kCancelled);
    EXPECT_LT(one.ids.size(), 10u);
    EXPECT_EQ(all.at({queued, sample}).ids.size(), 50u);
  }
  EXPECT_EQ(all.at({other, 0}).ids, Sequential(rig.program, Prompt({7, 8}, 20), 0).ids);
  EXPECT_EQ(rig.engine->Cancel(cancelled).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(rig.engine->counters().available_pages, rig.engine->counters().total_pages);
}

TEST(EngineTest, CancelBeforeTheFirstStepEndsEverySample) {
  EngineRig rig;
  Request request = Prompt({1, 2}, 5);
  request.samples = 2;
  const RequestId id = rig.Submit(request);
  ASSERT_TRUE(rig.engine->Cancel(id).ok());
  EXPECT_FALSE(rig.engine->idle());
  const Continuations all = rig.Run();
  EXPECT_EQ(all.size(), 2u);
  EXPECT_EQ(all.at({id, 1}).finish, FinishReason::kCancelled);
  EXPECT_EQ(rig.program.steps, 0);
}

TEST(EngineTest, TimeoutEndsARequest) {
  EngineRig rig;
  Request request = Prompt({1, 2}, 100);
  request.timeout_s = 1e-9;
  rig.Submit(request);
  rig.Submit(Prompt({1, 2}, 3));
  const Continuations all = rig.Run();
  EXPECT_EQ(all.at({1, 0}).finish, FinishReason::kTimeout);
  EXPECT_EQ(all.at({2, 0}).ids.size(), 3u);
}

TEST(EngineTest, FailedStepIsFinal) {
  EngineRig rig;
  rig.program.fail_at_step = 3;
  rig.Submit(Prompt({1, 2}, 10));
  const absl::Status status = rig.engine->Run([](const TokenEvent&) {});
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  std::vector<TokenEvent> events;
  EXPECT_EQ(rig.engine->Step(&events), status);
  EXPECT_EQ(rig.engine->Submit(Prompt({1}, 1)).status(), status);
}

TEST(EngineTest, BrokenLogitsEndTheirOwnContinuationOnly) {
  EngineRig rig;
  for (int32_t i = 0; i < 20; ++i) rig.Submit(Prompt({i, 3}, 4));
  rig.program.broken_token = 5;
  const Continuations all = rig.Run();
  int failed = 0;
  for (const auto& [key, one] : all) {
    failed += one.finish == FinishReason::kFailed;
    EXPECT_EQ(one.error.empty(), one.finish != FinishReason::kFailed);
  }
  EXPECT_GT(failed, 0);
  EXPECT_LT(failed, 20);
}

class EngineTextTest : public ::testing::Test {
 protected:
  EngineTextTest() : tokenizer_(testing::LetterTokenizer()), rig_({}, 4, 0, &tokenizer_) {}
  Tokenizer tokenizer_;
  EngineRig rig_;
};

TEST_F(EngineTextTest, TextIsThatOfTheTokens) {
  Request request;
  request.text = "hello";
  request.max_tokens = 40;
  request.ignore_eos = true;
  request.sampling.temperature = 2;
  rig_.Submit(request);
  Continuations all;
  ASSERT_TRUE(rig_.engine
                  ->Run([&](const TokenEvent& event) {
                    testing::Collect(event, &all);
                    EXPECT_THAT(event.text, ::testing::Not(::testing::EndsWith("\xc3")));
                  })
                  .ok());
  const auto& one = all.at({1, 0});
  EXPECT_EQ(one.ids.size(), 40u);
  EXPECT_EQ(one.text, tokenizer_.Decode(one.ids));
  request.ids = {7, 4, 11, 11, 14};
  EXPECT_EQ(one.ids, Sequential(rig_.program, request, 0).ids);
}

TEST_F(EngineTextTest, StopStringEndsTheText) {
  Request request;
  request.ids = {0, 1, 2};
  request.max_tokens = 30;
  request.ignore_eos = true;
  rig_.Submit(request);
  const std::string whole = rig_.Run().at({1, 0}).text;
  ASSERT_GT(whole.size(), 12u);
  request.stop = {"no such text", whole.substr(8, 3)};
  const size_t cut = whole.find(whole.substr(8, 3));
  rig_.Submit(request);
  const auto stopped = rig_.Run().at({2, 0});
  EXPECT_EQ(stopped.finish, FinishReason::kStopString);
  EXPECT_EQ(stopped.text, whole.substr(0, cut));
}

}  // namespace
}  // namespace quire
