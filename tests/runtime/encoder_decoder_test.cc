// Encoder-decoders through the engine: beams beside transformers', sharing of what encoders leave,
// and requests that cannot be.
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "ir/status.h"
#include "tests/parity/fixture.h"
#include "tests/runtime/compiled_fixture.h"
#include "tests/runtime/engine_rig.h"

namespace quire {
namespace {

using testing::CompiledFixture;
using testing::Continuation;
using testing::Continuations;
using testing::Fixture;

constexpr int32_t kBeams = 4;

// The searches of make_fixtures.py, whose outputs begin with the token that decoders start with.
std::vector<Request> Searches(const Fixture& fixture, const ModelInfo& info) {
  Request plain;
  plain.source_ids = fixture.source;
  plain.max_tokens = 19;
  plain.samples = kBeams;
  plain.beam.beams = kBeams;
  plain.sampling.forced_eos = info.sampling.forced_eos;
  std::vector<Request> searches(4, plain);
  searches[1].beam.stop = BeamParams::Stop::kEarly;
  searches[1].beam.length_penalty = 2;
  searches[2].beam.stop = BeamParams::Stop::kNever;
  searches[2].beam.length_penalty = 0.5;
  searches[2].sampling.no_repeat_ngram = 2;
  searches[3].max_tokens = 11;
  searches[3].sampling.min_length = 8;
  searches[3].sampling.forced_bos = 5;
  searches[3].sampling.repetition_penalty = 1.3f;
  return searches;
}

struct Outputs {
  std::vector<std::vector<int32_t>> ids;
  std::vector<float> scores;
  EngineCounters counters;
};

// Every continuation of all requests, in order, when they are submitted at once.
absl::StatusOr<Outputs> RunTogether(const Model& model, const std::vector<Request>& requests,
                                    const EngineOptions& options = {}) {
  QUIRE_ASSIGN_OR_RETURN(std::unique_ptr<Engine> engine, model.CreateEngine(options));
  std::vector<RequestId> numbers;
  for (const Request& request : requests) {
    QUIRE_ASSIGN_OR_RETURN(const RequestId number, engine->Submit(request));
    numbers.push_back(number);
  }
  Continuations all;
  std::map<std::pair<RequestId, int32_t>, float> scores;
  QUIRE_RETURN_IF_ERROR(engine->Run([&](const TokenEvent& event) {
    testing::Collect(event, &all);
    scores[{event.request, event.sample}] = event.score;
  }));
  Outputs outputs;
  for (size_t i = 0; i < requests.size(); ++i) {
    for (int32_t sample = 0; sample < requests[i].samples; ++sample) {
      outputs.ids.push_back(all[{numbers[i], sample}].ids);
      outputs.scores.push_back(scores[{numbers[i], sample}]);
    }
  }
  outputs.counters = engine->counters();
  EXPECT_EQ(outputs.counters.available_pages, outputs.counters.total_pages);
  EXPECT_EQ(outputs.counters.available_encoder_pages, outputs.counters.total_encoder_pages);
  return outputs;
}

class EncoderDecoderTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    absl::StatusOr<Fixture> fixture = testing::ReadFixture(GetParam());
    ASSERT_TRUE(fixture.ok()) << fixture.status();
    fixture_ = *std::move(fixture);
    compiled_ = std::make_unique<CompiledFixture>(testing::FixturePath(GetParam()), 4);
    absl::StatusOr<std::unique_ptr<Model>> model = compiled_->Open(2);
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *std::move(model);
  }

  Fixture fixture_;
  std::unique_ptr<CompiledFixture> compiled_;
  std::unique_ptr<Model> model_;
};

TEST_P(EncoderDecoderTest, BeamsAreThoseOfTransformers) {
  const std::vector<Request> searches = Searches(fixture_, model_->info());
  const absl::StatusOr<Outputs> outputs = RunTogether(*model_, searches);
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  ASSERT_EQ(outputs->ids.size(), fixture_.beams.size());
  for (size_t i = 0; i < outputs->ids.size(); ++i) {
    std::vector<int32_t> whole = {model_->info().decoder_start_id};
    whole.insert(whole.end(), outputs->ids[i].begin(), outputs->ids[i].end());
    EXPECT_EQ(whole, fixture_.beams[i]) << "search " << i / kBeams << ", sequence " << i % kBeams;
    // Scores are sums of log-probabilities, whose logits agree to 1e-4 of the largest.
    EXPECT_NEAR(outputs->scores[i], fixture_.scores[i], 1e-4 * std::abs(fixture_.scores[i]))
        << "search " << i / kBeams << ", sequence " << i % kBeams;
  }
  // Four searches over one source: it was encoded once.
  EXPECT_EQ(outputs->counters.encoded_tokens, static_cast<int64_t>(fixture_.source.size()));
  EXPECT_GT(outputs->counters.copied_pages, 0);
}

TEST_P(EncoderDecoderTest, SameBitsInAnyBatchAndWithPreemption) {
  std::vector<Request> requests = Searches(fixture_, model_->info());
  for (size_t i = 0; i < 6; ++i) {
    Request request;
    request.source_ids.assign(fixture_.source.begin(),
                              fixture_.source.begin() + 1 + static_cast<int64_t>(3 * i));
    // The longer ones outgrow a small cache.
    request.max_tokens = i % 2 == 0 ? 40 : 5 + static_cast<int32_t>(i);
    request.ignore_eos = true;
    request.samples = i % 2 == 0 ? 1 : 3;
    request.sampling.temperature = i % 2 == 0 ? 0.0f : 1.0f;
    request.sampling.seed = i;
    // A decoder's prompt of its own: its prefill is cut into chunks.
    if (i % 3 == 0) request.ids = {2, 7, 9, 11, 13, 4, 8};
    requests.push_back(request);
  }
  const absl::StatusOr<Outputs> together = RunTogether(*model_, requests);
  ASSERT_TRUE(together.ok()) << together.status();
  size_t at = 0;
  for (const Request& request : requests) {
    const absl::StatusOr<Outputs> alone = RunTogether(*model_, {request});
    ASSERT_TRUE(alone.ok()) << alone.status();
    for (size_t i = 0; i < alone->ids.size(); ++i, ++at) {
      EXPECT_EQ(alone->ids[i], together->ids[at]);
      EXPECT_EQ(alone->scores[i], together->scores[at]);
    }
  }
  EngineOptions tight;
  tight.cache_pages = 20;
  tight.encoder_pages = 9;
  tight.chunk_tokens = 2;
  tight.step_tokens = 5;
  const absl::StatusOr<Outputs> crowded = RunTogether(*model_, requests, tight);
  ASSERT_TRUE(crowded.ok()) << crowded.status();
  EXPECT_GT(crowded->counters.preemptions, 0);
  EXPECT_EQ(crowded->ids, together->ids);
  EXPECT_EQ(crowded->scores, together->scores);
}

// Compiled without the passes that make the encoder run once, it runs in every step over the inputs
// of that step's sequences: the same bits, beams and several lengths included.
TEST_P(EncoderDecoderTest, EncodingInEveryStepGivesTheSameBits) {
  const CompiledFixture compiled(testing::FixturePath(GetParam()), 4,
                                 "recognise-attention,remove-kv-expansion,merge-projections,"
                                 "split-rows,cache-kv,narrow-outputs,fuse");
  const auto every_step = compiled.Open(2);
  ASSERT_TRUE(every_step.ok()) << every_step.status();
  std::vector<Request> requests = {Searches(fixture_, model_->info())[2]};
  for (const int64_t length : {1, 7, 12}) {
    Request request;
    request.source_ids.assign(fixture_.source.begin(), fixture_.source.begin() + length);
    request.max_tokens = 3 + static_cast<int32_t>(length);
    request.ignore_eos = true;
    request.samples = 2;
    request.sampling.temperature = 1;
    requests.push_back(request);
  }
  const absl::StatusOr<Outputs> once = RunTogether(*model_, requests);
  ASSERT_TRUE(once.ok()) << once.status();
  // Runs of the encoder are cut by the budget.
  EngineOptions options;
  options.step_tokens = 16;
  const absl::StatusOr<Outputs> always = RunTogether(**every_step, requests, options);
  ASSERT_TRUE(always.ok()) << always.status();
  EXPECT_EQ(always->ids, once->ids);
  EXPECT_EQ(always->scores, once->scores);
  const auto source = static_cast<int64_t>(fixture_.source.size());
  EXPECT_EQ(once->counters.encoded_tokens, source + 1 + 7 + 12);
  // An input of one request takes part in as many steps as that computes tokens.
  EXPECT_GE(always->counters.encoded_tokens, 4 * 1 + 10 * 7 + 15 * 12 + source);
  EXPECT_LE(always->counters.encoded_tokens,
            always->counters.steps * once->counters.encoded_tokens);

  // One alone: every step of the search encodes its source once, however many beams there are.
  const absl::StatusOr<Outputs> alone = RunTogether(**every_step, {requests[0]});
  ASSERT_TRUE(alone.ok()) << alone.status();
  EXPECT_EQ(alone->counters.encoded_tokens, alone->counters.steps * source);
}

// Bytes of an encoder input: 2 x L x S x Hkv x D x dtype bytes, in whole pages, however many beams
// and requests read it.
TEST_P(EncoderDecoderTest, CrossPagesAreOfTheGroupedHeadsAndShared) {
  const plan::TargetT& target = *model_->plan().targets[0];
  int64_t bytes = 0;
  for (const auto& layer : target.kv_layers) {
    if (layer->cache != plan::KvCache::Cross) continue;
    bytes += int64_t{4} * layer->heads * (layer->k_dim + layer->v_dim) * target.page_tokens;
  }
  EXPECT_EQ(model_->encoder()->page_bytes(), bytes);
  auto engine = model_->CreateEngine();
  ASSERT_TRUE(engine.ok()) << engine.status();
  const std::vector<Request> searches = Searches(fixture_, model_->info());
  for (const Request& search : searches) ASSERT_TRUE((*engine)->Submit(search).ok());
  std::vector<TokenEvent> events;
  for (int step = 0; step < 3; ++step) ASSERT_TRUE((*engine)->Step(&events).ok());
  const EngineCounters counters = (*engine)->counters();
  const auto tokens = static_cast<int32_t>(fixture_.source.size());
  EXPECT_EQ(counters.total_encoder_pages - counters.available_encoder_pages,
            (tokens + target.page_tokens - 1) / target.page_tokens);
}

// The plan says which programs there are; step touches encoder rows nowhere but in attention.
TEST_P(EncoderDecoderTest, StepReadsCrossPagesInAttentionOnly) {
  const plan::TargetT& target = *model_->plan().targets[0];
  ASSERT_EQ(target.programs.size(), 2u);
  const plan::ProgramT& step = *target.programs[0];
  EXPECT_EQ(step.name, "step");
  EXPECT_EQ(target.programs[1]->name, "encode");
  for (const auto* values : {&step.arguments, &step.buffers}) {
    for (const auto& value : *values) {
      EXPECT_TRUE(value->extents[0] == "T" || value->extents[0] == "R") << value->name;
    }
  }
  size_t cross_layers = 0, reads = 0;
  for (const auto& layer : target.kv_layers) {
    cross_layers += layer->cache == plan::KvCache::Cross ? 1 : 0;
  }
  for (const auto& launch : step.launches) {
    for (const plan::Operand& input : launch->inputs) {
      if (input.kind() != plan::OperandKind::KvLayer) continue;
      if (target.kv_layers[input.index()]->cache != plan::KvCache::Cross) continue;
      ++reads;
      EXPECT_TRUE(absl::StartsWith(target.kernels[launch->kernel]->spec, "attention "));
    }
  }
  EXPECT_EQ(reads, cross_layers);
  EXPECT_GT(reads, 0u);
}

TEST_P(EncoderDecoderTest, RequestsThatCannotBeAreRefused) {
  auto engine = model_->CreateEngine();
  ASSERT_TRUE(engine.ok()) << engine.status();
  const auto refused = [&](const Request& request, absl::string_view why) {
    const absl::Status status = (*engine)->Submit(request).status();
    EXPECT_TRUE(absl::StrContains(status.message(), why)) << status;
  };
  Request request;
  request.ids = {2};
  refused(request, "the source is empty");
  request.source_ids = {1, 96};
  refused(request, "source: 96 is not a token");
  request.source_ids = fixture_.source;
  request.beam.beams = 65;
  refused(request, "beams=65 is not possible");
  request.beam.beams = 4;
  request.samples = 5;
  refused(request, "samples=5 of 4 beams");
  request.samples = 1;
  request.sampling.logprobs = true;
  refused(request, "logprobs of beams");
  request.sampling.logprobs = false;
  request.sampling.frequency_penalty = 0.5;
  refused(request, "a presence or frequency penalty for beams");
  request.sampling.frequency_penalty = 0;
  request.sampling.temperature = 1;
  refused(request, "temperature=1 for beams");
  if (model_->info().max_source > 0) {
    request.source_ids.assign(static_cast<size_t>(model_->info().max_source) + 1, 3);
    refused(request, "positions are defined");
  }
  EXPECT_TRUE((*engine)->idle());
  EngineOptions small;
  small.cache_pages = 6;
  small.encoder_pages = 5;
  auto tight = model_->CreateEngine(small);
  ASSERT_TRUE(tight.ok()) << tight.status();
  Request search = Searches(fixture_, model_->info())[0];
  EXPECT_EQ((*tight)->Submit(search).status().code(), absl::StatusCode::kResourceExhausted);
  search.source_ids = {3};
  const absl::Status beams = (*tight)->Submit(search).status();
  EXPECT_EQ(beams.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(absl::StrContains(beams.message(), "fewer beams")) << beams;
}

TEST_P(EncoderDecoderTest, ACancelledSearchLeavesNothing) {
  auto engine = model_->CreateEngine();
  ASSERT_TRUE(engine.ok()) << engine.status();
  const auto id = (*engine)->Submit(Searches(fixture_, model_->info())[0]);
  ASSERT_TRUE(id.ok()) << id.status();
  std::vector<TokenEvent> events;
  for (int step = 0; step < 3; ++step) ASSERT_TRUE((*engine)->Step(&events).ok());
  ASSERT_TRUE((*engine)->Cancel(*id).ok());
  events.clear();
  ASSERT_TRUE((*engine)->Step(&events).ok());
  ASSERT_EQ(events.size(), static_cast<size_t>(kBeams));
  for (const TokenEvent& event : events) EXPECT_EQ(event.finish, FinishReason::kCancelled);
  EXPECT_TRUE((*engine)->idle());
  const EngineCounters counters = (*engine)->counters();
  EXPECT_EQ(counters.available_pages, counters.total_pages);
  EXPECT_EQ(counters.available_encoder_pages, counters.total_encoder_pages);
}

std::vector<std::string> EncoderDecoders() {
  std::vector<std::string> names;
  for (const std::string& name : testing::FixtureNames()) {
    const absl::StatusOr<Fixture> fixture = testing::ReadFixture(name);
    if (fixture.ok() && !fixture->beams.empty()) names.push_back(name);
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(Fixtures, EncoderDecoderTest, ::testing::ValuesIn(EncoderDecoders()),
                         [](const auto& instance) { return instance.param; });

}  // namespace
}  // namespace quire
