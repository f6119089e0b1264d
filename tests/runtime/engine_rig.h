// An engine over the fake program, and the sequential generation that it must agree with.
#ifndef QUIRE_TESTS_RUNTIME_ENGINE_RIG_H_
#define QUIRE_TESTS_RUNTIME_ENGINE_RIG_H_

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/engine.h"
#include "runtime/sampler.h"
#include "tests/runtime/fake_program.h"

namespace quire::testing {

inline constexpr int32_t kRigVocabulary = 30;

// All events of one continuation, joined.
struct Continuation {
  std::vector<int32_t> ids;
  std::vector<float> logprobs;
  std::vector<std::pair<int32_t, float>> top;
  std::string text;
  FinishReason finish = FinishReason::kNone;
  std::string error;
  bool operator==(const Continuation& other) const {
    return ids == other.ids && logprobs == other.logprobs && top == other.top;
  }
};
using Continuations = std::map<std::pair<RequestId, int32_t>, Continuation>;

inline void Collect(const TokenEvent& event, Continuations* all) {
  Continuation& one = (*all)[{event.request, event.sample}];
  EXPECT_EQ(one.finish, FinishReason::kNone) << "an event after the last";
  if (event.token.id >= 0) {
    one.ids.push_back(event.token.id);
    one.logprobs.push_back(event.token.logprob);
  }
  for (const TokenLogprob& top : event.top) one.top.push_back({top.id, top.logprob});
  one.text += event.text;
  one.finish = event.finish;
  one.error = event.error;
}

struct EngineRig {
  explicit EngineRig(const EngineOptions& options = {}, int32_t page_tokens = 4,
                     int64_t max_positions = 0, const Tokenizer* tokenizer = nullptr)
      : program(kRigVocabulary, page_tokens) {
    EngineModel model;
    model.program = &program;
    model.tokenizer = tokenizer;
    model.vocabulary = kRigVocabulary;
    model.max_positions = max_positions;
    model.page_tokens = page_tokens;
    model.eos_ids = {27};
    auto created = Engine::Create(model, options);
    EXPECT_TRUE(created.ok()) << created.status();
    engine = std::move(created).value();
  }

  RequestId Submit(const Request& request) {
    auto id = engine->Submit(request);
    EXPECT_TRUE(id.ok()) << id.status();
    return id.ok() ? *id : 0;
  }

  Continuations Run() {
    Continuations all;
    const absl::Status status = engine->Run([&](const TokenEvent& event) { Collect(event, &all); });
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(engine->counters().available_pages, engine->counters().total_pages);
    return all;
  }

  FakeProgram program;
  std::unique_ptr<Engine> engine;
};

// What `request` must get for one sample: token after token, nothing shared with anything.
inline Continuation Sequential(const FakeProgram& program, const Request& request, int32_t sample) {
  Continuation out;
  Sampler sampler;
  TokenCounts counts;
  counts.AddPrompt(request.ids);
  std::vector<int32_t> ids = request.ids;
  while (static_cast<int32_t>(out.ids.size()) < request.max_tokens) {
    auto choice = sampler.Choose(request.sampling, program.LogitsAfter(ids), counts, ids.size(),
                                 static_cast<uint32_t>(sample));
    EXPECT_TRUE(choice.ok()) << choice.status();
    if (!choice.ok()) break;
    ids.push_back(choice->token.id);
    counts.AddOutput(choice->token.id);
    out.ids.push_back(choice->token.id);
    out.logprobs.push_back(choice->token.logprob);
    for (const TokenLogprob& top : choice->top) out.top.push_back({top.id, top.logprob});
    if (choice->token.id == 27 && !request.ignore_eos) break;
  }
  return out;
}

}  // namespace quire::testing

#endif  // QUIRE_TESTS_RUNTIME_ENGINE_RIG_H_
