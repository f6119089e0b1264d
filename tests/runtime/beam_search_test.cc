// Beam search and the rules of tokens on rows written by hand. Beside transformers: in
// encoder_decoder_test.cc.
#include "runtime/beam_search.h"

#include <cmath>
#include <limits>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/sampler.h"

namespace quire {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

constexpr int32_t kEnd = 0;

std::vector<std::pair<int32_t, int32_t>> Pairs(const std::vector<BeamStep>& steps) {
  std::vector<std::pair<int32_t, int32_t>> pairs;
  for (const BeamStep& step : steps) pairs.emplace_back(step.parent, step.token);
  return pairs;
}

TEST(BeamSearchTest, KeepsTheBestContinuationsAndResults) {
  BeamParams params;
  params.beams = 2;
  params.length_penalty = 0;  // scores are sums
  BeamSearch search(params, 1, 3, {kEnd});
  EXPECT_EQ(search.beams_due(), 1);
  const std::vector<int32_t> prompt = {9};
  EXPECT_THAT(Pairs(search.Advance({prompt}, {{{3, -1}, {kEnd, -1.5}, {5, -2}, {6, -3}}})),
              ElementsAre(std::pair(0, 3), std::pair(0, 5)));
  EXPECT_EQ(search.beams_due(), 0);
  ASSERT_EQ(search.results().size(), 1u);
  EXPECT_THAT(search.results()[0].ids, ElementsAre(9, kEnd));
  EXPECT_DOUBLE_EQ(search.results()[0].score, -1.5);
  // Both go on from the better beam; the end of the worse one is no longer among the best two.
  const std::vector<int32_t> a = {9, 3}, b = {9, 5};
  EXPECT_THAT(Pairs(search.Advance({a, b}, {{{4, -0.1}, {7, -0.2}}, {{kEnd, -0.3}, {8, -4}}})),
              ElementsAre(std::pair(0, 4), std::pair(0, 7)));
  EXPECT_EQ(search.results().size(), 1u);
  // The third token is the last: everything ends.
  const std::vector<int32_t> c = {9, 3, 4}, d = {9, 3, 7};
  EXPECT_THAT(search.Advance({c, d}, {{{4, -0.5}}, {{kEnd, -0.1}, {1, -0.2}}}), IsEmpty());
  ASSERT_EQ(search.results().size(), 2u);
  EXPECT_THAT(search.results()[0].ids, ElementsAre(9, 3, 7, kEnd));
  EXPECT_THAT(search.results()[1].ids, ElementsAre(9, 3, 7, 1));
}

TEST(BeamSearchTest, StopsWhenItShould) {
  const auto steps_until_done = [](BeamParams::Stop stop) {
    BeamParams params;
    params.beams = 1;
    params.stop = stop;
    BeamSearch search(params, 1, 50, {kEnd});
    std::vector<int32_t> ids = {9};
    for (int step = 1;; ++step) {
      // The end is good at the first step; what runs gets better for each token later.
      const double running = step == 1 ? -1.0 : -0.6;
      const auto next = search.Advance(
          {ids}, {{{kEnd, step == 1 ? -0.9 : -5.0}, {3, running}, {4, running - 9}}});
      if (next.empty()) return step;
      ids.push_back(next[0].token);
    }
  };
  EXPECT_EQ(steps_until_done(BeamParams::Stop::kEarly), 1);
  EXPECT_EQ(steps_until_done(BeamParams::Stop::kUnlikely), 1);
  EXPECT_GT(steps_until_done(BeamParams::Stop::kNever), 1);
}

TEST(BeamSearchTest, CandidatesAreLogProbabilitiesAfterTheRules) {
  BeamParams params;
  params.beams = 2;
  const BeamSearch search(params, 1, 5, {kEnd});
  const std::vector<float> logits = {0, 1, 2, 3};
  const std::vector<int32_t> ids = {3};
  const double sum = std::log(1 + std::exp(1.0) + std::exp(2.0) + std::exp(3.0));
  SamplingParams sampling;
  auto candidates = search.Candidates(sampling, logits, ids);
  ASSERT_TRUE(candidates.ok()) << candidates.status();
  ASSERT_EQ(candidates->size(), 4u);
  EXPECT_EQ((*candidates)[0].token, 3);
  EXPECT_NEAR((*candidates)[0].logprob, 3 - sum, 1e-14);
  sampling.repetition_penalty = 2;
  candidates = search.Candidates(sampling, logits, ids);
  ASSERT_TRUE(candidates.ok()) << candidates.status();
  EXPECT_NEAR((*candidates)[0].logprob, 2 * (3 - sum), 1e-6);
  sampling.forced_bos = 1;
  candidates = search.Candidates(sampling, logits, ids);
  ASSERT_TRUE(candidates.ok()) << candidates.status();
  ASSERT_EQ(candidates->size(), 1u);
  EXPECT_EQ((*candidates)[0].token, 1);
  EXPECT_EQ((*candidates)[0].logprob, 0);
  const std::vector<float> broken = {0, std::nanf("")};
  EXPECT_EQ(search.Candidates({}, broken, ids).status().code(), absl::StatusCode::kInternal);
}

TEST(TokenRulesTest, ForbidAndForce) {
  SamplingParams params;
  const std::vector<int32_t> ids = {5, 6, 7, 5, 6, 8, 5, 6}, ends = {kEnd, 2};
  const auto rules = [&](int32_t max_tokens) {
    return RulesOf(params, {ids, 1, max_tokens, ends});
  };
  EXPECT_THAT(rules(20).forbidden, IsEmpty());
  EXPECT_EQ(rules(20).forced, -1);
  params.no_repeat_ngram = 3;
  EXPECT_THAT(rules(20).forbidden, UnorderedElementsAre(7, 8));
  params.no_repeat_ngram = 1;
  EXPECT_THAT(rules(20).forbidden, UnorderedElementsAre(5, 6, 7, 8));
  params.no_repeat_ngram = 9;
  EXPECT_THAT(rules(20).forbidden, IsEmpty());
  params.min_length = 9;
  EXPECT_THAT(rules(20).forbidden, UnorderedElementsAre(kEnd, 2));
  params.min_length = 8;
  EXPECT_THAT(rules(20).forbidden, IsEmpty());
  params.min_new_tokens = 8;
  EXPECT_THAT(rules(20).forbidden, UnorderedElementsAre(kEnd, 2));
  params.min_new_tokens = 7;
  EXPECT_THAT(rules(20).forbidden, IsEmpty());
  params.forced_bos = 4;
  params.forced_eos = 2;
  EXPECT_EQ(rules(9).forced, -1);
  EXPECT_EQ(rules(8).forced, 2);
  const std::vector<int32_t> start = {9};
  EXPECT_EQ(RulesOf(params, {start, 1, 5, ends}).forced, 4);
}

// The first of an output, as transformers counts it: a forced one is not suppressed.
TEST(TokenRulesTest, SuppressAtTheBegin) {
  SamplingParams params;
  params.begin_suppressed = {3, 7};
  const std::vector<int32_t> ids = {5, 6, 8, 9};
  const auto forbidden = [&](size_t length, int32_t prompt_tokens) {
    return RulesOf(params, {absl::MakeConstSpan(ids).first(length), prompt_tokens, 9, {}})
        .forbidden;
  };
  EXPECT_THAT(forbidden(2, 2), UnorderedElementsAre(3, 7));
  EXPECT_THAT(forbidden(1, 1), UnorderedElementsAre(3, 7));
  EXPECT_THAT(forbidden(3, 2), IsEmpty());
  params.forced_bos = 4;
  EXPECT_THAT(forbidden(1, 1), IsEmpty());
  EXPECT_THAT(forbidden(2, 1), UnorderedElementsAre(3, 7));
  EXPECT_THAT(forbidden(3, 1), IsEmpty());
  EXPECT_THAT(forbidden(2, 2), UnorderedElementsAre(3, 7));
  EXPECT_TRUE(HasRules(params));
  params = {};
  params.begin_suppressed = {20};
  EXPECT_TRUE(CheckSampling(params, 21).ok());
  EXPECT_THAT(std::string(CheckSampling(params, 20).message()),
              ::testing::HasSubstr("begin_suppressed=20"));
}

}  // namespace
}  // namespace quire
