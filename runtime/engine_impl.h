// The state of an engine, and one step of it.
#ifndef QUIRE_RUNTIME_ENGINE_IMPL_H_
#define QUIRE_RUNTIME_ENGINE_IMPL_H_

#include <chrono>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "runtime/device.h"
#include "runtime/engine.h"
#include "runtime/kv_cache.h"
#include "runtime/sampler.h"
#include "runtime/scheduler.h"
#include "runtime/sequence.h"
#include "runtime/token_rules.h"

namespace quire {

struct Engine::Impl {
  Impl(const EngineModel& engine_model, const EngineOptions& engine_options,
       std::unique_ptr<PagePool> page_pool, std::unique_ptr<PagePool> page_pool_of_encoder);

  Sequence* NewSequence(RequestId id, int32_t sample, std::shared_ptr<const Request> request);
  std::vector<Sequence*> SequencesOf(RequestId request) const;

  absl::Status Step(std::vector<TokenEvent>* events);
  // Ends the sequences whose time is over.
  absl::Status EndLate(std::vector<TokenEvent>* events);
  static absl::StatusOr<std::unique_ptr<Engine>> Create(const EngineModel& model,
                                                        const EngineOptions& options);
  absl::StatusOr<RequestId> Submit(Request request);
  absl::Status Cancel(RequestId request);
  // Runs the encoder on the inputs of these sequences on which it did not run yet, or on all.
  absl::Status Encode(absl::Span<const ScheduledRows> scheduled);
  absl::Status EncodeSome(absl::Span<const EncoderCache::EntryId> entries);
  absl::Status Compute(absl::Span<const ScheduledRows> rows);
  // Chooses the next token of a sequence, and of the samples that are forked off it here, by row
  // `row` of the step's results.
  absl::Status Advance(Sequence* sequence, size_t row, std::vector<TokenEvent>* events);
  absl::Status ChooseToken(Sequence* sequence, size_t row, std::vector<TokenEvent>* events);
  // In `choice` is, too, why there is none; an error is the device's.
  absl::Status Choose(const Sequence& sequence, size_t row, absl::StatusOr<Choice>* choice);
  // By the greatest logit alone, where that suffices.
  std::optional<absl::StatusOr<Choice>> ChooseByGreatest(const SamplingParams& sampling,
                                                         const TokenRules& rules, size_t row) const;
  // Has `logits` be memory for so many.
  void MakeLogits(size_t floats);
  // Valid until the next row's.
  absl::StatusOr<absl::Span<const float>> LogitsOf(size_t row);
  FinishReason Append(Sequence* sequence, TokenEvent* event) const;
  // An event without a token that ends the sequence, and the samples still to be forked off it; the
  // sequence is destroyed.
  absl::Status End(Sequence* sequence, FinishReason reason, absl::string_view error,
                   std::vector<TokenEvent>* events);
  absl::Status Destroy(Sequence* sequence);

  // Beam search (engine_beams.cc). A sequence's candidates from its row of logits; when those of
  // all beams of its search are there, the search goes one step.
  absl::Status AdvanceBeam(Sequence* sequence, absl::Span<const float> row,
                           std::vector<TokenEvent>* events);
  absl::Status Fork(const std::vector<Sequence*>& beams, absl::Span<const BeamStep> steps);
  // Ends a search with its results so far, or with `reason`.
  absl::Status EndBeams(const std::vector<Sequence*>& beams, FinishReason reason,
                        absl::string_view error, std::vector<TokenEvent>* events);

  const EngineModel model;
  const EngineOptions options;
  std::unique_ptr<PagePool> pool, encoder_pool;  // the latter null without an encoder
  KvCache cache;
  std::unique_ptr<EncoderCache> encoder_cache;
  Scheduler scheduler;
  Sampler sampler;
  std::list<std::unique_ptr<Sequence>> sequences;  // in the order in which they were made
  // No sequence's is before it.
  std::chrono::steady_clock::time_point earliest_deadline =
      std::chrono::steady_clock::time_point::max();
  RequestId next_request = 1;
  std::vector<TokenEvent> due_events;  // of Cancel()
  EngineCounters counters;
  absl::Status failure;

  // Of the step at hand, kept to save allocations.
  std::vector<int32_t> ids, positions, logit_rows;
  std::vector<SequenceRows> sequence_rows;
  bool is_greedy = false;               // `greatest` has the results, else `logits`
  absl::Span<float> logits;             // [R, V], or the row at hand of those on the device
  std::vector<float> own_logits;        // their memory, unless it is the program's
  std::vector<GreatestLogit> greatest;  // [R]
};

}  // namespace quire

#endif  // QUIRE_RUNTIME_ENGINE_IMPL_H_
