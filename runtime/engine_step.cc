#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "ir/status.h"
#include "runtime/engine_impl.h"
#include "runtime/token_rules.h"

namespace quire {
namespace {

bool Contains(const std::vector<int32_t>& ids, int32_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

constexpr float kForbidden = -std::numeric_limits<float>::infinity();

// Of so many rows of logits, reading one alone takes less than reading all.
constexpr size_t kRowsForOne = 8;

}  // namespace

Engine::Impl::Impl(const EngineModel& engine_model, const EngineOptions& engine_options,
                   std::unique_ptr<PagePool> page_pool,
                   std::unique_ptr<PagePool> page_pool_of_encoder)
    : model(engine_model),
      options(engine_options),
      pool(std::move(page_pool)),
      encoder_pool(std::move(page_pool_of_encoder)),
      cache(pool.get(), model.page_tokens),
      encoder_cache(encoder_pool == nullptr
                        ? nullptr
                        : std::make_unique<EncoderCache>(encoder_pool.get(), model.page_tokens)),
      scheduler(&cache, encoder_cache.get(),
                {.max_sequences = options.max_sequences,
                 .step_tokens = options.step_tokens,
                 .chunk_tokens = options.chunk_tokens,
                 .reuse_prefixes = options.reuse_prefixes}) {}

Sequence* Engine::Impl::NewSequence(RequestId id, int32_t sample,
                                    std::shared_ptr<const Request> request) {
  auto sequence = std::make_unique<Sequence>();
  sequence->id = id;
  sequence->sample = sample;
  sequence->ids = request->ids;
  sequence->prompt_tokens = static_cast<int32_t>(request->ids.size());
  if (ReadsCounts(request->sampling)) sequence->counts.AddPrompt(request->ids);
  if (model.tokenizer != nullptr) {
    std::vector<std::string> stop = request->stop;
    if (!request->ignore_eos && request->beam.beams == 1) {
      stop.insert(stop.end(), model.stop.begin(), model.stop.end());
    }
    sequence->text.emplace(*model.tokenizer, request->ids, stop);
  }
  if (model.encoder != nullptr) {
    sequence->input = request->encoder_input(model.encoder->states_width());
  }
  sequence->request = std::move(request);
  sequence->place = sequences.insert(sequences.end(), nullptr);
  *sequence->place = std::move(sequence);
  return sequences.back().get();
}

std::vector<Sequence*> Engine::Impl::SequencesOf(RequestId request) const {
  std::vector<Sequence*> found;
  for (const auto& sequence : sequences) {
    if (sequence->id == request) found.push_back(sequence.get());
  }
  return found;
}

absl::Status Engine::Impl::Step(std::vector<TokenEvent>* events) {
  for (TokenEvent& event : due_events) events->push_back(std::move(event));
  due_events.clear();
  QUIRE_RETURN_IF_ERROR(EndLate(events));
  QUIRE_ASSIGN_OR_RETURN(const std::vector<ScheduledRows> scheduled, scheduler.Next());
  if (scheduled.empty()) return absl::OkStatus();
  if (encoder_cache != nullptr) QUIRE_RETURN_IF_ERROR(Encode(scheduled));
  QUIRE_RETURN_IF_ERROR(Compute(scheduled));
  size_t row = 0;
  for (const auto& [sequence, rows] : scheduled) {
    QUIRE_RETURN_IF_ERROR(cache.Commit(
        *sequence->cache, absl::MakeConstSpan(sequence->ids).subspan(sequence->computed, rows)));
    sequence->computed += rows;
  }
  for (const auto& [sequence, rows] : scheduled) {
    if (sequence->tokens_due() > 0) continue;
    const size_t logits_row = row++;
    if (sequence->beams == nullptr) {
      QUIRE_RETURN_IF_ERROR(Advance(sequence, logits_row, events));
      continue;
    }
    QUIRE_ASSIGN_OR_RETURN(const absl::Span<const float> row_logits, LogitsOf(logits_row));
    QUIRE_RETURN_IF_ERROR(AdvanceBeam(sequence, row_logits, events));
  }
  return absl::OkStatus();
}

absl::Status Engine::Impl::Encode(absl::Span<const ScheduledRows> scheduled) {
  std::vector<EncoderCache::EntryId> entries;
  absl::flat_hash_set<EncoderCache::EntryId> of_this_step;
  int32_t rows = 0;
  for (const auto& [sequence, unused] : scheduled) {
    if (!sequence->encoder.has_value()) continue;
    const EncoderCache::EntryId entry = *sequence->encoder;
    const bool is_due = model.encodes_every_step ? of_this_step.insert(entry).second
                                                 : !encoder_cache->encoded(entry);
    if (!is_due) continue;
    encoder_cache->set_encoded(entry);
    const auto more = static_cast<int32_t>(encoder_cache->input(entry).tokens());
    // An input goes as a whole, however long it is.
    if (!entries.empty() && rows + more > options.step_tokens) {
      QUIRE_RETURN_IF_ERROR(EncodeSome(entries));
      entries.clear();
      rows = 0;
    }
    entries.push_back(entry);
    rows += more;
  }
  return entries.empty() ? absl::OkStatus() : EncodeSome(entries);
}

absl::Status Engine::Impl::EncodeSome(absl::Span<const EncoderCache::EntryId> entries) {
  ids.clear();
  positions.clear();
  sequence_rows.clear();
  std::vector<absl::Span<const float>> states;
  for (const EncoderCache::EntryId entry : entries) {
    const EncoderInput& input = encoder_cache->input(entry);
    absl::Span<const float> left = input.states();
    ids.insert(ids.end(), input.ids().begin(), input.ids().end());
    const std::vector<int32_t> runs = input.Runs();
    for (size_t run = 0; run < runs.size(); ++run) {
      SequenceRows& part = sequence_rows.emplace_back();
      part.first_row = static_cast<int32_t>(positions.size());
      part.rows = part.context_tokens = runs[run];
      part.pages = encoder_cache->pages(entry, run);
      for (int32_t i = 0; i < part.rows; ++i) positions.push_back(i);
      const auto width = static_cast<size_t>(model.encoder->states_width());
      if (width == 0) continue;
      ids.resize(positions.size());  // which nothing reads
      states.push_back(left.first(static_cast<size_t>(part.rows) * width));
      left.remove_prefix(states.back().size());
    }
  }
  counters.encoded_tokens += static_cast<int64_t>(ids.size());
  quire::Step step = {ids, positions, {}, sequence_rows};
  step.states = states;
  return model.encoder->Run(step, *encoder_pool, {});
}

absl::Status Engine::Impl::EndLate(std::vector<TokenEvent>* events) {
  const auto now = std::chrono::steady_clock::now();
  if (now <= earliest_deadline) return absl::OkStatus();
  earliest_deadline = std::chrono::steady_clock::time_point::max();
  std::vector<Sequence*> late;
  for (const auto& sequence : sequences) {
    if (sequence->deadline < now) {
      late.push_back(sequence.get());
    } else {
      earliest_deadline = std::min(earliest_deadline, sequence->deadline);
    }
  }
  while (!late.empty()) {
    Sequence* sequence = late.back();
    if (sequence->beams != nullptr) {
      const std::vector<Sequence*> beams = sequence->beams->sequences;
      late.erase(
          std::remove_if(late.begin(), late.end(),
                         [&](const Sequence* other) { return other->beams == sequence->beams; }),
          late.end());
      QUIRE_RETURN_IF_ERROR(EndBeams(beams, FinishReason::kTimeout, "", events));
      continue;
    }
    late.pop_back();
    QUIRE_RETURN_IF_ERROR(End(sequence, FinishReason::kTimeout, "", events));
  }
  return absl::OkStatus();
}

absl::Status Engine::Impl::Compute(absl::Span<const ScheduledRows> scheduled) {
  ids.clear();
  positions.clear();
  logit_rows.clear();
  sequence_rows.clear();
  size_t whole_rows = 0;  // of logits, that are looked at
  for (const auto& [sequence, rows] : scheduled) {
    SequenceRows& part = sequence_rows.emplace_back();
    part.first_row = static_cast<int32_t>(ids.size());
    part.rows = rows;
    part.context_tokens = sequence->computed + rows;
    counters.prompt_tokens += std::clamp(sequence->prompt_tokens - sequence->computed, 0, rows);
    part.pages = cache.pages(*sequence->cache);
    if (sequence->encoder.has_value()) {
      const EncoderInput::Sight sight = sequence->input.SightAt(sequence->computed);
      part.encoder_tokens = sight.tokens;
      part.encoder_pages = encoder_cache->pages(*sequence->encoder, sight.run);
    }
    for (int32_t i = sequence->computed; i < part.context_tokens; ++i) {
      ids.push_back(sequence->ids[i]);
      positions.push_back(i);
    }
    if (rows != sequence->tokens_due()) continue;
    logit_rows.push_back(part.first_row + rows - 1);
    if (sequence->beams != nullptr || !IsGreedy(sequence->request->sampling)) ++whole_rows;
  }
  // A few are read one by one.
  is_greedy = model.program->finds_greatest() && whole_rows <= logit_rows.size() / kRowsForOne;
  // Programs are planned for one row of logits or more.
  if (logit_rows.empty()) logit_rows.push_back(static_cast<int32_t>(ids.size()) - 1);
  ++counters.steps;
  counters.computed_tokens += static_cast<int64_t>(ids.size());
  const quire::Step step = {ids, positions, logit_rows, sequence_rows, encoder_pool.get()};
  if (is_greedy) {
    greatest.resize(logit_rows.size());
    return model.program->RunGreedy(step, *pool, absl::MakeSpan(greatest));
  }
  MakeLogits(logit_rows.size() * static_cast<size_t>(model.vocabulary));
  return model.program->Run(step, *pool, logits);
}

absl::Status Engine::Impl::Advance(Sequence* sequence, size_t row,
                                   std::vector<TokenEvent>* events) {
  std::vector<Sequence*> samples;  // that are forked off it
  const int32_t forks = std::exchange(sequence->forks_due, 0);
  for (int32_t i = 1; i <= forks; ++i) {
    Sequence* fork = NewSequence(sequence->id, i, sequence->request);
    fork->deadline = sequence->deadline;
    fork->computed = sequence->computed;
    QUIRE_RETURN_IF_ERROR(scheduler.Fork(samples.empty() ? sequence : samples.back(), fork));
    samples.push_back(fork);
  }
  QUIRE_RETURN_IF_ERROR(ChooseToken(sequence, row, events));
  for (Sequence* sample : samples) QUIRE_RETURN_IF_ERROR(ChooseToken(sample, row, events));
  return absl::OkStatus();
}

absl::StatusOr<absl::Span<const float>> Engine::Impl::LogitsOf(size_t row) {
  const auto vocabulary = static_cast<size_t>(model.vocabulary);
  if (!is_greedy) return logits.subspan(row * vocabulary, vocabulary);
  MakeLogits(vocabulary);
  QUIRE_RETURN_IF_ERROR(model.program->ReadLogits(row, logits));
  return logits;
}

void Engine::Impl::MakeLogits(size_t floats) {
  logits = model.program->LogitsMemory(floats);
  if (!logits.empty()) return;
  own_logits.resize(floats);
  logits = absl::MakeSpan(own_logits);
}

std::optional<absl::StatusOr<Choice>> Engine::Impl::ChooseByGreatest(const SamplingParams& sampling,
                                                                     const TokenRules& rules,
                                                                     size_t row) const {
  if (!is_greedy || !IsGreedy(sampling)) return std::nullopt;
  Choice choice;
  const bool is_forced = rules.forced >= 0 && greatest[row].is_sound != 0;
  const absl::StatusOr<int32_t> id = is_forced ? rules.forced : ChooseGreedily(greatest[row]);
  if (!id.ok()) return id.status();
  if (!is_forced && Contains(rules.forbidden, *id)) return std::nullopt;
  choice.token.id = *id;
  return choice;
}

absl::Status Engine::Impl::Choose(const Sequence& sequence, size_t row,
                                  absl::StatusOr<Choice>* choice) {
  const Request& request = *sequence.request;
  TokenRules rules;
  if (HasRules(request.sampling)) {
    rules = RulesOf(request.sampling,
                    {sequence.ids, sequence.prompt_tokens, request.max_tokens,
                     request.ignore_eos ? absl::Span<const int32_t>() : model.eos_ids});
  }
  if (auto chosen = ChooseByGreatest(request.sampling, rules, row)) {
    *choice = *std::move(chosen);
    return absl::OkStatus();
  }
  SamplingParams ruled;
  const bool has_rules = rules.forced >= 0 || !rules.forbidden.empty();
  if (has_rules) {
    ruled = request.sampling;
    for (const int32_t id : rules.forbidden) ruled.logit_bias.emplace_back(id, kForbidden);
    if (rules.forced >= 0) ruled.logit_bias = {{rules.forced, kForcedBias}};
  }
  QUIRE_ASSIGN_OR_RETURN(const absl::Span<const float> row_logits, LogitsOf(row));
  *choice = sampler.Choose(has_rules ? ruled : request.sampling, row_logits, sequence.counts,
                           sequence.ids.size(), static_cast<uint32_t>(sequence.sample));
  return absl::OkStatus();
}

absl::Status Engine::Impl::ChooseToken(Sequence* sequence, size_t row,
                                       std::vector<TokenEvent>* events) {
  absl::StatusOr<Choice> choice = Choice();
  QUIRE_RETURN_IF_ERROR(Choose(*sequence, row, &choice));
  if (!choice.ok()) {
    return End(sequence, FinishReason::kFailed, choice.status().message(), events);
  }
  ++counters.chosen_tokens;
  TokenEvent& event = events->emplace_back();
  event.request = sequence->id;
  event.sample = sequence->sample;
  event.token = choice->token;
  event.top = std::move(choice->top);
  event.finish = Append(sequence, &event);
  return event.finish == FinishReason::kNone ? absl::OkStatus() : Destroy(sequence);
}

FinishReason Engine::Impl::Append(Sequence* sequence, TokenEvent* event) const {
  const Request& request = *sequence->request;
  const int32_t id = event->token.id;
  sequence->ids.push_back(id);
  if (ReadsCounts(request.sampling)) sequence->counts.AddOutput(id);
  FinishReason reason = FinishReason::kNone;
  if (Contains(request.stop_ids, id) || (!request.ignore_eos && Contains(model.eos_ids, id))) {
    reason = FinishReason::kStopToken;  // which is no part of the text
  } else if (sequence->text.has_value()) {
    event->text = sequence->text->Push(id);
    if (sequence->text->stopped()) reason = FinishReason::kStopString;
  }
  if (reason == FinishReason::kNone && sequence->output_tokens() >= request.max_tokens) {
    reason = FinishReason::kLength;
  }
  if (reason != FinishReason::kNone && sequence->text.has_value()) {
    event->text += sequence->text->Finish();
    if (reason == FinishReason::kLength && sequence->text->stopped()) {
      reason = FinishReason::kStopString;
    }
  }
  return reason;
}

absl::Status Engine::Impl::End(Sequence* sequence, FinishReason reason, absl::string_view error,
                               std::vector<TokenEvent>* events) {
  for (int32_t i = 0; i <= sequence->forks_due; ++i) {
    TokenEvent& event = events->emplace_back();
    event.request = sequence->id;
    event.sample = sequence->sample + i;
    event.finish = reason;
    event.error = std::string(error);
    if (i == 0 && sequence->text.has_value()) event.text = sequence->text->Finish();
  }
  return Destroy(sequence);
}

absl::Status Engine::Impl::Destroy(Sequence* sequence) {
  QUIRE_RETURN_IF_ERROR(scheduler.Remove(sequence));
  if (sequence->beams != nullptr) {
    std::vector<Sequence*>& beams = sequence->beams->sequences;
    beams.erase(std::remove(beams.begin(), beams.end(), sequence), beams.end());
  }
  sequences.erase(sequence->place);
  return absl::OkStatus();
}

}  // namespace quire
