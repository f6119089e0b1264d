// Engine, device and kernels together: the same bits however requests share steps, and the tokens
// that the reference interpreter chooses.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "gtest/gtest.h"
#include "ir/file.h"
#include "ir/reference/dequantize.h"
#include "ir/reference/interpreter.h"
#include "ir/status.h"
#include "ir/text.h"
#include "models/import/checkpoint.h"
#include "tests/runtime/compiled_fixture.h"
#include "tests/runtime/engine_rig.h"

namespace quire {
namespace {

using testing::CompiledFixture;
using testing::Continuation;
using testing::Continuations;

std::vector<Request> RandomRequests(int32_t vocabulary, size_t count) {
  std::mt19937 random(21);
  const auto draw = [&](int32_t bound) {
    return static_cast<int32_t>(random() % static_cast<uint32_t>(bound));
  };
  std::vector<Request> requests(count);
  for (Request& request : requests) {
    request.ids.resize(static_cast<size_t>(1 + draw(30)));
    for (int32_t& id : request.ids) id = draw(vocabulary);
    request.max_tokens = 4 + draw(10);
    request.ignore_eos = true;
    request.sampling.temperature = draw(2) ? 1.0f : 0.0f;
    request.sampling.seed = random();
    request.sampling.top_p = draw(2) ? 0.9f : 1.0f;
    request.sampling.logprobs = true;
    request.sampling.top_logprobs = 2;
  }
  return requests;
}

// All continuations, by the place of their request in `requests`.
std::vector<Continuation> RunTogether(const Model& model, const std::vector<Request>& requests,
                                      const EngineOptions& options, bool preempts = false) {
  auto engine = model.CreateEngine(options);
  EXPECT_TRUE(engine.ok()) << engine.status();
  std::vector<RequestId> ids;
  for (const Request& request : requests) {
    auto id = (*engine)->Submit(request);
    EXPECT_TRUE(id.ok()) << id.status();
    ids.push_back(id.ok() ? *id : 0);
  }
  Continuations all;
  const absl::Status status =
      (*engine)->Run([&](const TokenEvent& event) { testing::Collect(event, &all); });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ((*engine)->counters().preemptions > 0, preempts);
  std::vector<Continuation> continuations;
  for (const RequestId id : ids) continuations.push_back(all[{id, 0}]);
  return continuations;
}

// Binds an opened model, or skips where this build has no CPU device.
#define SKIP_WITHOUT_DEVICE(name, expression)                                      \
  auto name##_or = expression;                                                     \
  if (absl::IsUnavailable(name##_or.status())) GTEST_SKIP() << name##_or.status(); \
  ASSERT_TRUE(name##_or.ok()) << name##_or.status();                               \
  const std::unique_ptr<Model> name = *std::move(name##_or)

class EngineCpuTest : public ::testing::TestWithParam<std::string> {};

TEST_P(EngineCpuTest, SameBitsInAnyCompany) {
  const CompiledFixture fixture(testing::FixturePath(GetParam()), /*page_tokens=*/2);
  SKIP_WITHOUT_DEVICE(one_thread, fixture.Open(1));
  SKIP_WITHOUT_DEVICE(two_threads, fixture.Open(2));
  std::vector<Request> requests = RandomRequests(one_thread->info().vocabulary, 16);
  for (int copies = 0; copies < 2; ++copies) {  // one prompt that chunks of 64 cut
    requests[3].ids.insert(requests[3].ids.end(), requests[copies].ids.begin(),
                           requests[copies].ids.end());
  }
  EngineOptions options;
  options.cache_pages = 500;
  std::vector<Continuation> alone;
  for (const Request& request : requests) {
    alone.push_back(RunTogether(*one_thread, {request}, options)[0]);
    ASSERT_EQ(alone.back().ids.size(), static_cast<size_t>(request.max_tokens));
  }
  const auto expect_same = [&](const Model& model, size_t batch, bool preempts,
                               const std::string& setting) {
    for (size_t begin = 0; begin < requests.size(); begin += batch) {
      const size_t end = std::min(begin + batch, requests.size());
      const auto together = RunTogether(model,
                                        {requests.begin() + static_cast<ptrdiff_t>(begin),
                                         requests.begin() + static_cast<ptrdiff_t>(end)},
                                        options, preempts);
      for (size_t i = begin; i < end; ++i) {
        EXPECT_EQ(together[i - begin].ids, alone[i].ids) << setting << ", request " << i;
        EXPECT_TRUE(together[i - begin] == alone[i]) << setting << ", request " << i;
      }
    }
  };
  for (const int32_t chunk : {1, 7, 64, 0}) {
    options.chunk_tokens = chunk;
    for (const size_t batch : {size_t{2}, size_t{5}, size_t{16}}) {
      expect_same(*two_threads, batch, false,
                  absl::StrCat("batches of ", batch, ", chunks of ", chunk, ", two threads"));
    }
    expect_same(*one_thread, 16, false, absl::StrCat("chunks of ", chunk, ", one thread"));
  }
  options.chunk_tokens = 0;
  options.step_tokens = 11;
  expect_same(*two_threads, 16, false, "steps of 11 tokens");
  // No more pages than the longest sequence takes, of two tokens each.
  options.cache_pages = static_cast<int32_t>(requests[3].ids.size() + 1) / 2 + 7;
  options.step_tokens = 512;
  expect_same(*two_threads, 16, true, "preemption");
}

TEST_P(EngineCpuTest, SameBitsAfterASharedPrefix) {
  const CompiledFixture fixture(testing::FixturePath(GetParam()), /*page_tokens=*/4);
  SKIP_WITHOUT_DEVICE(model, fixture.Open(2));
  Request request = RandomRequests(model->info().vocabulary, 1)[0];
  while (request.ids.size() < 11) request.ids.push_back(request.ids[0]);
  auto engine = model->CreateEngine({.cache_pages = 50});
  ASSERT_TRUE(engine.ok());
  Continuations all;
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE((*engine)->Submit(request).ok());
    ASSERT_TRUE(
        (*engine)->Run([&](const TokenEvent& event) { testing::Collect(event, &all); }).ok());
  }
  EXPECT_GE((*engine)->counters().reused_tokens, 8);
  EXPECT_TRUE((all[{1, 0}] == all[{2, 0}]));
}

// Logits of `ids`' last row, in double precision.
absl::StatusOr<std::vector<double>> ReferenceLogits(const Func& step, const Checkpoint& checkpoint,
                                                    const std::vector<int32_t>& ids) {
  reference::Inputs inputs;
  inputs.weights = [&](absl::string_view name, const Type&) -> absl::StatusOr<reference::Tensor> {
    QUIRE_ASSIGN_OR_RETURN(const TensorInfo* info, checkpoint.Require(name));
    QUIRE_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(checkpoint.PathOf(*info)));
    QUIRE_ASSIGN_OR_RETURN(reference::Tensor tensor, reference::Tensor::Zeros(info->extents));
    QUIRE_RETURN_IF_ERROR(Dequantize(*info->dtype, file.bytes().subspan(info->offset, info->bytes),
                                     absl::MakeSpan(tensor.values)));
    return tensor;
  };
  const auto tokens = static_cast<int64_t>(ids.size());
  reference::Tensor pos{{tokens}, std::vector<double>(ids.size())};
  std::iota(pos.values.begin(), pos.values.end(), 0);
  inputs.args = {{"ids", {{tokens}, {ids.begin(), ids.end()}}}, {"pos", pos}};
  QUIRE_ASSIGN_OR_RETURN(const std::vector<reference::Tensor> results,
                         reference::Interpret(step, inputs));
  const reference::Tensor& logits = results.front();
  return std::vector<double>(logits.row(tokens - 1), logits.row(tokens - 1) + logits.last());
}

TEST_P(EngineCpuTest, GreedyTokensAreThoseOfTheInterpreter) {
  const CompiledFixture fixture(testing::FixturePath(GetParam()));
  SKIP_WITHOUT_DEVICE(model, fixture.Open(2));
  const auto checkpoint = OpenCheckpoint(fixture.model_path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  auto plan = OpenPlan(fixture.plan_path());
  ASSERT_TRUE(plan.ok());
  const auto module = Parse(plan->plan().ir);
  ASSERT_TRUE(module.ok()) << module.status();
  std::vector<Request> requests = RandomRequests(model->info().vocabulary, 3);
  for (Request& request : requests) request.sampling.temperature = 0;
  const std::vector<Continuation> chosen = RunTogether(*model, requests, {.cache_pages = 50});
  for (size_t i = 0; i < requests.size(); ++i) {
    std::vector<int32_t> ids = requests[i].ids;
    for (size_t token = 0; token < chosen[i].ids.size(); ++token) {
      const auto logits = ReferenceLogits(*module->Find("step"), *checkpoint, ids);
      ASSERT_TRUE(logits.ok()) << logits.status();
      const double greatest = *std::max_element(logits->begin(), logits->end());
      double magnitude = 0, sum = 0;
      for (const double logit : *logits) {
        magnitude = std::max(magnitude, std::abs(logit));
        sum += std::exp(logit - greatest);
      }
      // What the engine may be off by (tests/parity/cpu_test.cc has the bound of logits), and twice
      // that between two logits.
      const double error = 1e-4 * magnitude;
      const double picked = (*logits)[static_cast<size_t>(chosen[i].ids[token])];
      EXPECT_GE(picked, greatest - 2 * error) << "request " << i << ", token " << token;
      EXPECT_NEAR(chosen[i].logprobs[token], picked - greatest - std::log(sum), 2 * error);
      ids.push_back(chosen[i].ids[token]);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Fixtures, EngineCpuTest,
                         ::testing::Values("llama_gqa_tied", "mistral_window", "gemma3", "gpt2",
                                           "bloom", "gpt_bigcode_mqa"),
                         [](const auto& fixture) { return fixture.param; });

}  // namespace
}  // namespace quire
