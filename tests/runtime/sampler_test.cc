#include "runtime/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/philox.h"

namespace quire {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

int32_t ChooseId(const SamplingParams& params, const std::vector<float>& logits,
                 uint64_t position = 0, const TokenCounts& counts = {}) {
  Sampler sampler;
  auto choice = sampler.Choose(params, logits, counts, position, 0);
  EXPECT_TRUE(choice.ok()) << choice.status();
  return choice.ok() ? choice->token.id : -1;
}

std::vector<float> RandomLogits(uint32_t seed, size_t count, float spread) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> logits(count);
  for (float& logit : logits) logit = normal(random);
  return logits;
}

// The definition in runtime/sampling.h written the slow way: sort everything, walk everything.
int32_t Expected(const SamplingParams& params, const std::vector<float>& logits, uint64_t position,
                 const std::vector<int32_t>& prompt, const std::vector<int32_t>& output) {
  std::vector<double> adjusted(logits.begin(), logits.end());
  for (size_t id = 0; id < adjusted.size(); ++id) {
    const auto count = std::count(output.begin(), output.end(), static_cast<int32_t>(id));
    const auto in_prompt = std::count(prompt.begin(), prompt.end(), static_cast<int32_t>(id));
    if (count + in_prompt > 0) {
      adjusted[id] *= adjusted[id] > 0 ? 1 / double{params.repetition_penalty}
                                       : double{params.repetition_penalty};
    }
    if (count > 0) {
      adjusted[id] -= params.presence_penalty + params.frequency_penalty * double(count);
    }
  }
  for (const auto& [id, bias] : params.logit_bias) adjusted[id] += bias;
  std::vector<int32_t> order(adjusted.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return adjusted[a] > adjusted[b]; });
  if (params.temperature == 0) return order[0];
  if (params.top_k > 0 && static_cast<size_t>(params.top_k) < order.size()) {
    order.resize(params.top_k);
  }
  const auto weight = [&](int32_t id) {
    return std::exp((adjusted[id] - adjusted[order[0]]) / params.temperature);
  };
  double total = 0;
  for (const int32_t id : order) total += weight(id);
  double before = 0;
  std::vector<int32_t> stay;
  for (const int32_t id : order) {
    if (before / total < params.top_p && weight(id) >= params.min_p) stay.push_back(id);
    before += weight(id);
  }
  std::sort(stay.begin(), stay.end());
  total = 0;
  for (const int32_t id : stay) total += weight(id);
  const double u = PhiloxUniform(params.seed, position, 0);
  double sum = 0;
  for (const int32_t id : stay) {
    sum += weight(id);
    if (sum > u * total) return id;
  }
  return stay.back();
}

TEST(PhiloxTest, KnownAnswers) {
  // The vectors that the paper's authors publish with their code.
  EXPECT_THAT(Philox4x32({0, 0}, {0, 0, 0, 0}),
              ElementsAre(0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8));
  EXPECT_THAT(
      Philox4x32({0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}),
      ElementsAre(0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd));
  EXPECT_THAT(
      Philox4x32({0xa4093822, 0x299f31d0}, {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}),
      ElementsAre(0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1));
}

TEST(PhiloxTest, UniformDependsOnAllThree) {
  const double u = PhiloxUniform(1, 2, 3);
  EXPECT_NE(u, PhiloxUniform(uint64_t{1} << 32 | 1, 2, 3));
  EXPECT_NE(u, PhiloxUniform(1, uint64_t{1} << 32 | 2, 3));
  EXPECT_NE(u, PhiloxUniform(1, 2, 4));
  EXPECT_EQ(u, PhiloxUniform(1, 2, 3));
}

TEST(SamplerTest, GreedyTakesTheLowestIdOfEquals) {
  EXPECT_EQ(ChooseId({}, {1, 3, 2, 3}), 1);
  EXPECT_EQ(ChooseId({}, {-kInfinity, -5, -kInfinity}), 1);
}

TEST(SamplerTest, AgreesWithTheDefinition) {
  std::mt19937 random(7);
  const auto uniform = [&](float low, float high) {
    return std::uniform_real_distribution<float>(low, high)(random);
  };
  for (uint32_t i = 0; i < 3000; ++i) {
    const size_t vocabulary = 2 + random() % 700;
    std::vector<float> logits = RandomLogits(i, vocabulary, uniform(0.1f, 5));
    if (i % 3 == 0) {
      for (float& logit : logits) logit = std::round(logit);  // many ties
    }
    SamplingParams params;
    params.temperature = i % 5 == 0 ? 0 : uniform(0.3f, 2);
    params.seed = i;
    if (random() % 2) params.top_k = static_cast<int32_t>(1 + random() % 40);
    if (random() % 2) params.top_p = uniform(0.05f, 1);
    if (random() % 3 == 0) params.min_p = uniform(0, 0.3f);
    if (random() % 2) params.repetition_penalty = uniform(0.7f, 1.5f);
    if (random() % 2) params.presence_penalty = uniform(-1, 2);
    if (random() % 2) params.frequency_penalty = uniform(-1, 1);
    std::vector<int32_t> prompt, output;
    TokenCounts counts;
    for (int t = 0; t < 10; ++t) {
      prompt.push_back(static_cast<int32_t>(random() % vocabulary));
      output.push_back(static_cast<int32_t>(random() % vocabulary % 30));
      counts.AddOutput(output.back());
    }
    counts.AddPrompt(prompt);
    params.logit_bias = {{0, uniform(-3, 3)}, {1, -kInfinity}};
    const int32_t expected = Expected(params, logits, i, prompt, output);
    ASSERT_EQ(ChooseId(params, logits, i, counts), expected) << i;
  }
}

// Of a large vocabulary few tokens are looked at: those that are adjusted, up or down, and enough
// of the others.
TEST(SamplerTest, FewOfManyTokensAreEnough) {
  std::mt19937 random(8);
  const auto uniform = [&](float low, float high) {
    return std::uniform_real_distribution<float>(low, high)(random);
  };
  for (uint32_t i = 0; i < 300; ++i) {
    constexpr size_t kVocabulary = 4000;
    std::vector<float> logits = RandomLogits(i, kVocabulary, uniform(0.5f, 3));
    if (i % 3 == 0) {
      for (float& logit : logits) logit = std::round(logit);
    }
    SamplingParams params;
    params.temperature = i % 2 == 0 ? 0 : uniform(0.3f, 2);
    params.top_k = static_cast<int32_t>(1 + random() % 5);
    params.repetition_penalty = uniform(0.5f, 2);
    params.presence_penalty = uniform(-3, 3);
    params.seed = i;
    // The greatest are among those that are adjusted.
    std::vector<int32_t> prompt = GreatestIds(logits, random() % 20), output = {0, 1, 2};
    for (const int32_t id : GreatestIds(logits, random() % 10)) {
      params.logit_bias.emplace_back(id, uniform(-9, 3));
    }
    params.logit_bias.emplace_back(3, uniform(0, 9));
    TokenCounts counts;
    for (const int32_t id : output) counts.AddOutput(id);
    counts.AddPrompt(prompt);
    ASSERT_EQ(ChooseId(params, logits, i, counts), Expected(params, logits, i, prompt, output))
        << i;
  }
}

TEST(GreatestLogitTest, AgreesWithSortingAll) {
  std::mt19937 random(9);
  for (uint32_t i = 0; i < 400; ++i) {
    std::vector<float> logits = RandomLogits(i, 1 + random() % 100, 2);
    for (float& logit : logits) {
      if (i % 2 == 0) logit = std::round(logit);
      if (random() % 5 == 0) logit = -kInfinity;
    }
    std::vector<int32_t> order(logits.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
    const GreatestLogit greatest = GreatestOf(logits);
    ASSERT_EQ(greatest.id, order[0]) << i;
    ASSERT_EQ(greatest.logit, logits[order[0]]) << i;
    ASSERT_EQ(greatest.is_sound, 1) << i;
    const size_t count = random() % (logits.size() + 2);
    order.resize(std::min(count, logits.size()));
    ASSERT_EQ(GreatestIds(logits, count), order) << i;
    const std::vector<double> wide(logits.begin(), logits.end());
    ASSERT_EQ(GreatestIds(wide, count), order) << i;
    logits[random() % logits.size()] = i % 3 == 0 ? kInfinity : std::nanf("");
    ASSERT_EQ(GreatestOf(logits).is_sound, 0) << i;
  }
}

TEST(SamplerTest, NucleusWiderThanItsFirstSort) {
  SamplingParams params;
  params.temperature = 1;
  params.top_p = 0.97f;
  const std::vector<float> logits = RandomLogits(3, 5000, 0.2f);
  for (uint64_t position = 0; position < 200; ++position) {
    ASSERT_EQ(ChooseId(params, logits, position), Expected(params, logits, position, {}, {}));
  }
}

TEST(SamplerTest, TopPZeroKeepsTheBest) {
  SamplingParams params;
  params.temperature = 1;
  params.top_p = 0;
  for (uint64_t position = 0; position < 20; ++position) {
    EXPECT_EQ(ChooseId(params, {1, 1.1f, 0.5f, 1.1f}, position), 1);
  }
}

// 20000 draws per configuration against exact probabilities: chi-square of 4 degrees of freedom
// stays below 23.5 in all but one of ten thousand runs, and the seed is fixed.
TEST(SamplerTest, DrawsFollowTheDistribution) {
  const std::vector<float> logits = {0.3f, -1, 2, 1.2f, -0.4f};
  SamplingParams params;
  params.temperature = 0.8f;
  params.seed = 99;
  constexpr int kDraws = 20000;
  std::vector<int> hits(5);
  for (uint64_t position = 0; position < kDraws; ++position) {
    ++hits[ChooseId(params, logits, position)];
  }
  double total = 0, chi_square = 0;
  for (const float logit : logits) total += std::exp(logit / 0.8);
  for (size_t i = 0; i < 5; ++i) {
    const double expected = kDraws * std::exp(logits[i] / 0.8) / total;
    chi_square += (hits[i] - expected) * (hits[i] - expected) / expected;
  }
  EXPECT_LT(chi_square, 23.5);
}

TEST(SamplerTest, LogprobsAreThoseOfTheModel) {
  SamplingParams params;
  params.logprobs = true;
  params.top_logprobs = 3;
  params.logit_bias = {{2, 100.0f}};
  Sampler sampler;
  const std::vector<float> logits = {1, 3, 0, 3, -kInfinity};
  auto choice = sampler.Choose(params, logits, {}, 0, 0);
  ASSERT_TRUE(choice.ok());
  const double log_sum = std::log(std::exp(1.0) + 2 * std::exp(3.0) + 1);
  EXPECT_EQ(choice->token.id, 2);
  EXPECT_FLOAT_EQ(choice->token.logprob, static_cast<float>(0 - log_sum));
  ASSERT_EQ(choice->top.size(), 3u);
  EXPECT_EQ(choice->top[0].id, 1);
  EXPECT_EQ(choice->top[1].id, 3);
  EXPECT_EQ(choice->top[2].id, 0);
  EXPECT_FLOAT_EQ(choice->top[2].logprob, static_cast<float>(1 - log_sum));
}

TEST(SamplerTest, BrokenLogitsAreErrors) {
  Sampler sampler;
  const auto code = [&](const std::vector<float>& logits) {
    return sampler.Choose({}, logits, {}, 0, 0).status().code();
  };
  EXPECT_EQ(code({0, std::nanf(""), 1}), absl::StatusCode::kInternal);
  EXPECT_EQ(code({0, kInfinity}), absl::StatusCode::kInternal);
  EXPECT_EQ(code({-kInfinity, -kInfinity}), absl::StatusCode::kInternal);
}

TEST(SamplerTest, ParametersAreChecked) {
  const auto message = [](void (*change)(SamplingParams&)) {
    SamplingParams params;
    change(params);
    const absl::Status status = CheckSampling(params, 10);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_TRUE(CheckSampling({}, 10).ok());
  EXPECT_THAT(message([](auto& p) { p.temperature = -1; }), HasSubstr("temperature=-1"));
  EXPECT_THAT(message([](auto& p) { p.temperature = std::nanf(""); }), HasSubstr("temperature"));
  EXPECT_THAT(message([](auto& p) { p.top_k = -2; }), HasSubstr("top_k=-2"));
  EXPECT_THAT(message([](auto& p) { p.top_p = 1.5f; }), HasSubstr("top_p=1.5"));
  EXPECT_THAT(message([](auto& p) { p.min_p = -0.5f; }), HasSubstr("min_p=-0.5"));
  EXPECT_THAT(message([](auto& p) { p.repetition_penalty = 0; }), HasSubstr("repetition"));
  EXPECT_THAT(message([](auto& p) { p.presence_penalty = kInfinity; }), HasSubstr("presence"));
  EXPECT_THAT(message([](auto& p) { p.frequency_penalty = -kInfinity; }), HasSubstr("frequency"));
  EXPECT_THAT(message([](auto& p) { p.top_logprobs = -1; }), HasSubstr("top_logprobs=-1"));
  EXPECT_THAT(message([](auto& p) { p.logit_bias = {{10, 1}}; }), HasSubstr("0 .. 9"));
  EXPECT_THAT(message([](auto& p) { p.logit_bias = {{1, kInfinity}}; }), HasSubstr("logit_bias"));
}

}  // namespace
}  // namespace quire
