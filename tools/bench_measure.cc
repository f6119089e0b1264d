#include "tools/bench_measure.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "codegen/spec.h"
#include "ir/dtype.h"
#include "ir/status.h"
#include "tools/summary.h"

namespace quire {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// A batch of requests, and the steps that work on it.
class Batch {
 public:
  static absl::StatusOr<Batch> Submit(const Session& session, const BenchShape& shape,
                                      int32_t prompt, int32_t gen, Engine& engine,
                                      std::mt19937* random) {
    Batch batch(session, engine);
    // The start of the vocabulary is where special tokens are.
    const int32_t vocabulary = session.vocabulary();
    std::uniform_int_distribution<int32_t> any(vocabulary / 8, vocabulary - 1);
    for (int32_t i = 0; i < shape.batch; ++i) {
      Request request;
      request.add_special = false;
      for (int32_t j = 0; j < prompt; ++j) request.ids.push_back(any(*random));
      if (const int64_t width = session.model->info().states_width; width > 0) {
        std::normal_distribution<float> normal;
        std::vector<float> states(static_cast<size_t>(shape.source(i) * width));
        for (float& state : states) state = normal(*random);
        request.source_states = std::make_shared<const std::vector<float>>(std::move(states));
      } else if (session.model->info().has_encoder) {
        for (int32_t j = 0; j < shape.source(i); ++j) request.source_ids.push_back(any(*random));
      }
      request.max_tokens = gen;
      request.ignore_eos = true;
      QUIRE_RETURN_IF_ERROR(engine.Submit(std::move(request)).status());
    }
    batch.size_ = shape.batch;
    batch.begin_ = Clock::now();
    return batch;
  }

  // Steps until every request has its first token, at `first_token_ms` each. Returns the rows
  // computed a second.
  absl::StatusOr<double> ReadPrompts(std::vector<double>* first_token_ms) {
    const int64_t before = engine_.counters().computed_tokens;
    absl::flat_hash_set<RequestId> started;
    while (static_cast<int32_t>(started.size()) < size_) {
      QUIRE_RETURN_IF_ERROR(Step());
      for (const TokenEvent& event : events_) {
        if (started.insert(event.request).second && first_token_ms != nullptr) {
          first_token_ms->push_back(SecondsSince(begin_) * 1e3);
        }
      }
    }
    const auto rows = static_cast<double>(engine_.counters().computed_tokens - before);
    return rows / SecondsSince(begin_);
  }

  // Steps until all is done. Returns the tokens generated a second.
  absl::StatusOr<double> Decode(std::vector<double>* step_ms) {
    const int64_t before = engine_.counters().chosen_tokens;
    const auto begin = Clock::now();
    while (!engine_.idle()) {
      const auto step = Clock::now();
      QUIRE_RETURN_IF_ERROR(Step());
      step_ms->push_back(SecondsSince(step) * 1e3);
    }
    const auto tokens = static_cast<double>(engine_.counters().chosen_tokens - before);
    return tokens / SecondsSince(begin);
  }

  double ms() const { return SecondsSince(begin_) * 1e3; }

 private:
  Batch(const Session& session, Engine& engine) : session_(session), engine_(engine) {}

  // A request that fails would count as one that took no time.
  absl::Status Step() {
    events_.clear();
    QUIRE_RETURN_IF_ERROR(engine_.Step(&events_));
    for (const TokenEvent& event : events_) {
      if (event.finish == FinishReason::kFailed) return session_.ErrorOf(event);
    }
    return absl::OkStatus();
  }

  const Session& session_;
  Engine& engine_;
  std::vector<TokenEvent> events_;  // of the last step
  int32_t size_ = 0;
  Clock::time_point begin_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Engine>> CreateBenchEngine(const Session& session,
                                                          const BenchShape& shape) {
  EngineOptions options;
  options.max_sequences = shape.batch;
  options.step_tokens = std::max(shape.step_tokens, shape.batch);
  const int32_t page = session.target->page_tokens;
  const int32_t tokens = std::max(shape.prompt, shape.context) + shape.gen + 1;
  options.cache_pages = shape.batch * ((tokens + page - 1) / page + 1);
  options.reuse_prefixes = false;
  return session.model->CreateEngine(options);
}

absl::Status MeasureRound(const Session& session, const BenchShape& shape, Engine& engine,
                          std::mt19937* random, BenchSamples* samples) {
  QUIRE_ASSIGN_OR_RETURN(Batch whole,
                         Batch::Submit(session, shape, shape.prompt, shape.gen, engine, random));
  QUIRE_ASSIGN_OR_RETURN(const double prefill, whole.ReadPrompts(&samples->first_token_ms));
  samples->prefill_tokens_per_s.push_back(prefill);
  std::vector<double> steps;
  QUIRE_ASSIGN_OR_RETURN(double decode, whole.Decode(&steps));
  samples->latency_ms.push_back(whole.ms());
  if (shape.context > 0) {
    // One token more than is measured: that of the step that reads the context.
    QUIRE_ASSIGN_OR_RETURN(
        Batch after, Batch::Submit(session, shape, shape.context, shape.gen + 1, engine, random));
    QUIRE_RETURN_IF_ERROR(after.ReadPrompts(nullptr).status());
    steps.clear();
    QUIRE_ASSIGN_OR_RETURN(decode, after.Decode(&steps));
  }
  if (decode > 0) samples->decode_tokens_per_s.push_back(decode);
  samples->step_ms.insert(samples->step_ms.end(), steps.begin(), steps.end());
  return absl::OkStatus();
}

double Percentile(std::vector<double> values, double part) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const auto index = static_cast<size_t>(part * static_cast<double>(values.size() - 1) + 0.5);
  return values[index];
}

double NeededBytes(const plan::TargetT& target, const BenchShape& shape) {
  absl::flat_hash_set<uint32_t> seen;
  double bytes = 0;
  for (const auto& program : target.programs) {
    for (const auto& launch : program->launches) {
      const absl::StatusOr<KernelSpec> spec = ParseSpec(target.kernels[launch->kernel]->spec);
      if (!spec.ok()) continue;
      const auto* linear = std::get_if<LinearSpec>(&*spec);
      if (linear == nullptr || !seen.insert(launch->inputs[1].index()).second) continue;
      bytes += static_cast<double>(linear->weight_rows()) *
               static_cast<double>(RowBytes(linear->weight, linear->k));
    }
  }
  return bytes + static_cast<double>(KvBytesPerToken(target)) * shape.mean_context() * shape.batch;
}

}  // namespace quire
