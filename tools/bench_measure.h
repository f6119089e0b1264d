// What `quire bench` measures: batches of requests of random ids, through the engine, as `quire
// run` does it.
#ifndef QUIRE_TOOLS_BENCH_MEASURE_H_
#define QUIRE_TOOLS_BENCH_MEASURE_H_

#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ir/plan_generated.h"
#include "runtime/engine.h"
#include "tools/session.h"

namespace quire {

struct BenchShape {
  int32_t batch = 1;
  int32_t prompt = 512;                  // tokens of each prompt
  std::vector<int32_t> sources = {128};  // of encoder inputs in turn, if the model has an encoder
  int32_t gen = 128;    // tokens generated after it, the first of them by the last prompt step
  int32_t context = 0;  // when not 0: decoding is measured after so many tokens instead
  int32_t step_tokens = 512;  // computed in one step at most

  int32_t source(int32_t request) const {
    return sources[static_cast<size_t>(request) % sources.size()];
  }
  // The tokens that stand before a decoded one, on average.
  double mean_context() const { return (context > 0 ? context : prompt) + gen / 2.0; }
};

// Samples of all rounds.
struct BenchSamples {
  std::vector<double> prefill_tokens_per_s, decode_tokens_per_s;  // one a round
  std::vector<double> latency_ms;      // of a round: from submission to the last token of the batch
  std::vector<double> first_token_ms;  // one a request
  std::vector<double> step_ms;         // one for each step without prompts
};

// For all rounds of a shape: what an engine pays for once, memory that is touched for the first
// time and graphs, is no part of those that count.
absl::StatusOr<std::unique_ptr<Engine>> CreateBenchEngine(const Session& session,
                                                          const BenchShape& shape);

// One round: a batch that is read and continued; with a context, two batches. The engine is idle
// before and after it.
absl::Status MeasureRound(const Session& session, const BenchShape& shape, Engine& engine,
                          std::mt19937* random, BenchSamples* samples);

// The value below which `part` of the values lie; 0 of none.
double Percentile(std::vector<double> values, double part);

// Bytes that one decode step cannot do without: the weights of its linear kernels once, as kernels
// read them, and the keys and values of the mean context for each sequence.
double NeededBytes(const plan::TargetT& target, const BenchShape& shape);

}  // namespace quire

#endif  // QUIRE_TOOLS_BENCH_MEASURE_H_
