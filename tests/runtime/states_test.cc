// Models that look at states, through the engine.
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "tests/parity/fixture.h"
#include "tests/runtime/compiled_fixture.h"
#include "tests/runtime/engine_rig.h"

namespace quire {
namespace {

using testing::CompiledFixture;
using testing::Continuation;
using testing::Continuations;
using testing::Fixture;
using States = std::shared_ptr<const std::vector<float>>;

class StatesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    absl::StatusOr<std::unique_ptr<Model>> model = compiled_.Open(2);
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *std::move(model);
  }

  Request RequestWith(States states) const {
    Request request;
    request.ids.assign(fixture_.ids.begin(), fixture_.ids.begin() + 7);
    request.source_states = std::move(states);
    request.max_tokens = 12;
    request.ignore_eos = true;
    return request;
  }
  States Rows(int64_t rows) const {
    return std::make_shared<const std::vector<float>>(
        fixture_.states.begin(), fixture_.states.begin() + rows * fixture_.states_width);
  }
  // Tokens of each request, submitted at once.
  std::vector<std::vector<int32_t>> Run(const std::vector<Request>& requests) {
    std::vector<std::vector<int32_t>> ids;
    for (const Continuation& one : RunAll(requests)) ids.push_back(one.ids);
    return ids;
  }
  std::vector<Continuation> RunAll(const std::vector<Request>& requests,
                                   const EngineOptions& options = {}) {
    auto engine = model_->CreateEngine(options);
    EXPECT_TRUE(engine.ok()) << engine.status();
    std::vector<RequestId> numbers;
    for (const Request& request : requests) {
      const auto number = (*engine)->Submit(request);
      EXPECT_TRUE(number.ok()) << number.status();
      numbers.push_back(number.value_or(0));
    }
    Continuations all;
    const absl::Status status =
        (*engine)->Run([&](const TokenEvent& event) { testing::Collect(event, &all); });
    EXPECT_TRUE(status.ok()) << status;
    std::vector<Continuation> outputs;
    for (const RequestId number : numbers) outputs.push_back(all[{number, 0}]);
    counters_ = (*engine)->counters();
    EXPECT_EQ(counters_.available_encoder_pages, counters_.total_encoder_pages);
    return outputs;
  }

  const CompiledFixture compiled_{testing::FixturePath("mllama"), 4};
  const Fixture fixture_ = *testing::ReadFixture("mllama");
  std::unique_ptr<Model> model_;
  EngineCounters counters_;
};

TEST_F(StatesTest, WithAndWithoutStatesInOneBatch) {
  EXPECT_TRUE(model_->info().has_encoder);
  EXPECT_EQ(model_->info().states_width, fixture_.states_width);
  const std::vector<Request> requests = {RequestWith(nullptr), RequestWith(Rows(21)),
                                         RequestWith(Rows(3)), RequestWith(nullptr),
                                         RequestWith(Rows(21))};
  const auto together = Run(requests);
  // Equal states are looked at once, whoever brings them.
  EXPECT_EQ(counters_.encoded_tokens, 21 + 3);
  for (size_t i = 0; i < requests.size(); ++i) EXPECT_EQ(Run({requests[i]})[0], together[i]) << i;
  EXPECT_NE(together[0], together[1]);
  EXPECT_NE(together[1], together[2]);
}

// Rows see the images at or before them, of the last that follow each other; as transformers has
// it.
TEST_F(StatesTest, RowsSeeTheImagesBeforeThem) {
  const auto vocabulary = static_cast<size_t>(fixture_.vocab_size);
  const std::vector<int32_t>& positions = fixture_.image_positions;
  ASSERT_EQ(positions.size(), 3u);
  std::vector<Request> requests;
  for (size_t tokens = 1; tokens <= 20; ++tokens) {
    Request& request = requests.emplace_back(RequestWith(nullptr));
    request.ids.assign(fixture_.ids.begin(), fixture_.ids.begin() + static_cast<ptrdiff_t>(tokens));
    int64_t rows = 0;
    for (size_t i = 0; i < positions.size() && positions[i] < static_cast<int32_t>(tokens); ++i) {
      request.source_images.push_back({positions[i], fixture_.image_rows[i]});
      rows += fixture_.image_rows[i];
    }
    if (rows > 0) request.source_states = Rows(rows);
    request.max_tokens = 1;
    request.sampling.top_logprobs = static_cast<int32_t>(vocabulary);
  }
  const std::vector<Continuation> together = RunAll(requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    const float* logits = fixture_.image_logits.data() + i * vocabulary;
    double sum = 0, error = 0, size = 0;
    for (size_t v = 0; v < vocabulary; ++v) sum += std::exp(double{logits[v]});
    ASSERT_EQ(together[i].top.size(), vocabulary);
    for (const auto& [id, logprob] : together[i].top) {
      const double wanted = logits[id] - std::log(sum);
      error += (logprob - wanted) * (logprob - wanted);
      size += wanted * wanted;
    }
    EXPECT_LT(std::sqrt(error / size), 1e-4) << "after " << i + 1 << " tokens";
    // The same bits alone, and a token at a time.
    EXPECT_EQ(RunAll({requests[i]})[0].top, together[i].top) << i;
    EngineOptions by_one;
    by_one.chunk_tokens = 1;
    EXPECT_EQ(RunAll({requests[i]}, by_one)[0].top, together[i].top) << i;
  }
}

TEST_F(StatesTest, ImagesTokensAreReadAndNeverChosen) {
  Request request = RequestWith(Rows(5));
  const auto vocabulary = model_->info().vocabulary;
  request.ids[2] = vocabulary;
  request.ids[4] = vocabulary + 7;
  request.sampling.repetition_penalty = 1.3f;
  request.sampling.no_repeat_ngram = 1;
  for (const int32_t beams : {1, 3}) {
    request.beam.beams = beams;
    const std::vector<std::vector<int32_t>> outputs = Run({request});
    EXPECT_EQ(outputs[0].size(), 12u);
    for (const int32_t id : outputs[0]) EXPECT_LT(id, vocabulary);
  }
  request.ids[4] = vocabulary + 8;
  auto engine = model_->CreateEngine();
  ASSERT_TRUE(engine.ok()) << engine.status();
  EXPECT_EQ((*engine)->Submit(request).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(StatesTest, WhatCannotBeIsSaid) {
  auto engine = model_->CreateEngine();
  ASSERT_TRUE(engine.ok()) << engine.status();
  const auto refused = [&](Engine& by, const Request& request, absl::string_view why) {
    const absl::Status status = by.Submit(request).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), why)) << status;
  };
  refused(**engine, RequestWith(std::make_shared<const std::vector<float>>(33)), "rows of 32");
  const auto with_images = [&](std::vector<SourceImage> images) {
    Request request = RequestWith(Rows(6));
    request.source_images = std::move(images);
    return request;
  };
  refused(**engine, with_images({{1, 4}}), "images of 4 rows for 6 rows of states");
  refused(**engine, with_images({{1, 6}, {2, 0}}), "an image of 0 rows");
  refused(**engine, with_images({{2, 3}, {2, 3}}), "allowed: 3 .. 6, in the prompt");
  refused(**engine, with_images({{7, 6}}), "an image at position 7");
  refused(**engine, with_images({{-1, 6}}), "an image at position -1");
  Request stateless = RequestWith(nullptr);
  stateless.source_images = {{1, 6}};
  refused(**engine, stateless, "images without states");
  refused(**engine, RequestWith(std::make_shared<const std::vector<float>>()), "rows of 32");
  Request tokens = RequestWith(nullptr);
  tokens.source_ids = {1, 2};
  refused(**engine, tokens, "reads states");
  const CompiledFixture bart(testing::FixturePath("bart"), 4);
  auto other = bart.Open(1);
  ASSERT_TRUE(other.ok()) << other.status();
  auto reads_tokens = (*other)->CreateEngine();
  ASSERT_TRUE(reads_tokens.ok()) << reads_tokens.status();
  refused(**reads_tokens, RequestWith(Rows(1)), "reads tokens");
}

}  // namespace
}  // namespace quire
