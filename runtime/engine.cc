#include "runtime/engine.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "ir/guarded.h"
#include "ir/plan_check.h"
#include "ir/status.h"
#include "runtime/device.h"
#include "runtime/engine_impl.h"
#include "runtime/request_check.h"

namespace quire {
namespace {

using Clock = std::chrono::steady_clock;

absl::Status CheckOption(absl::string_view key, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "engine: ", key, "=", value, " is not possible\n  allowed: ", low, " .. ", high));
}

absl::Status CheckOptions(const EngineOptions& options) {
  QUIRE_RETURN_IF_ERROR(CheckOption("max_sequences", options.max_sequences, 1, kMaxStepRows));
  QUIRE_RETURN_IF_ERROR(CheckOption("step_tokens", options.step_tokens, 1, kMaxStepRows));
  QUIRE_RETURN_IF_ERROR(CheckOption("chunk_tokens", options.chunk_tokens, 0, kMaxStepRows));
  QUIRE_RETURN_IF_ERROR(CheckOption("cache_pages", options.cache_pages, 0, int64_t{1} << 30));
  QUIRE_RETURN_IF_ERROR(CheckOption("encoder_pages", options.encoder_pages, 0, int64_t{1} << 30));
  return CheckOption("cache_bytes", options.cache_bytes, 0, int64_t{1} << 50);
}

// `pages`: of the pools. Block tables that share pages may have more entries than that; then a step
// makes room for itself.
StepRoom RoomOf(const EngineOptions& options, int64_t pages) {
  StepRoom room;
  room.rows = options.step_tokens;
  room.sequences = std::min(options.max_sequences, options.step_tokens);
  room.logit_rows = room.sequences;
  room.pages = pages;
  return room;
}

// Of an encoder, whose inputs go as a whole.
StepRoom EncoderRoomOf(const EngineOptions& options, int64_t max_source, int64_t pages) {
  StepRoom room = RoomOf(options, pages);
  room.rows = std::max(room.rows, max_source);
  room.logit_rows = 1;
  return room;
}

// Pages of a pool: what one of so many shares of `cache_bytes` allows, but no more than can be used
// by sequences of up to `max_tokens`, 0 for any.
absl::StatusOr<int32_t> PagesOf(const Program& program, int64_t cache_bytes, int64_t shares,
                                int64_t max_tokens, int32_t page_tokens, int32_t max_sequences) {
  // A page of a program that keeps nothing still costs its place in tables.
  const int64_t page_bytes = program.page_bytes() > 0 ? program.page_bytes() : 4096;
  int64_t pages = cache_bytes / shares / page_bytes;
  if (pages == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("engine: cache_bytes=", cache_bytes, " is less than one page",
                     shares == 1 ? "" : ", and one of an encoder's output",
                     "\n  allowed: ", shares * page_bytes, " or more"));
  }
  if (max_tokens > 0) {
    const int64_t pages_of_one = (max_tokens + page_tokens - 1) / page_tokens;
    pages = std::min(pages, pages_of_one * max_sequences);
  }
  return static_cast<int32_t>(std::min<int64_t>(pages, int64_t{1} << 30));
}

// Puts before the prompt what decoders start with. Of ids, what transformers makes of
// decoder_input_ids: the token that decoders start with, unless it is there. A text is how the
// output begins, and every output begins with the token that is forced, if one is.
void BeginDecoder(const EngineModel& model, bool is_text, Request* request) {
  std::vector<int32_t>& ids = request->ids;
  const int32_t start = model.decoder_start_id, forced = request->sampling.forced_bos;
  const int32_t first = ids.empty() ? -1 : ids.front();
  if (first >= 0 && first == start) return;
  // Where there is no text, the sampler forces it.
  const bool forces = is_text && request->add_special && first >= 0 && first != forced;
  if (forces && forced >= 0) ids.insert(ids.begin(), forced);
  if (start >= 0) ids.insert(ids.begin(), start);
}

// Ids of the texts of a request.
absl::Status Tokenise(const EngineModel& model, Request* request) {
  const auto encode = [&](const std::string& text, bool add_special, std::vector<int32_t>* ids) {
    if (!ids->empty()) return absl::OkStatus();
    if (model.tokenizer == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("request: a text needs a tokenizer, and the plan has none\n  fix: give ",
                       ids == &request->source_ids ? "source_ids" : "ids"));
    }
    auto encoded = model.tokenizer->Encode(text, {.add_special = add_special});
    if (!encoded.ok()) return encoded.status();
    *ids = *std::move(encoded);
    return absl::OkStatus();
  };
  if (!request->source.empty()) {
    QUIRE_RETURN_IF_ERROR(encode(request->source, request->add_special, &request->source_ids));
  }
  // A model that reads states has a prompt like any other. Of an empty text there are the tokens
  // that stand around every text.
  if (model.encoder == nullptr || model.encoder->states_width() > 0) {
    const bool is_nothing = request->text.empty() && model.tokenizer == nullptr;
    return is_nothing ? absl::OkStatus()
                      : encode(request->text, request->add_special, &request->ids);
  }
  const bool has_ids = !request->ids.empty();
  if (!request->text.empty()) {
    QUIRE_RETURN_IF_ERROR(encode(request->text, /*add_special=*/false, &request->ids));
  }
  if (!has_ids || request->add_special) BeginDecoder(model, /*is_text=*/!has_ids, request);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(const EngineModel& model,
                                                       const EngineOptions& options) {
  return Guarded([&] { return Impl::Create(model, options); });
}

absl::StatusOr<std::unique_ptr<Engine>> Engine::Impl::Create(const EngineModel& model,
                                                             const EngineOptions& options) {
  QUIRE_RETURN_IF_ERROR(CheckOptions(options));
  // With an encoder, one half is for what it leaves.
  const int64_t shares = model.encoder == nullptr ? 1 : 2;
  const auto budget = [&]() -> absl::StatusOr<int64_t> {
    if (options.cache_bytes > 0) return options.cache_bytes;
    return model.program->SpareBytes();
  };
  QUIRE_ASSIGN_OR_RETURN(int64_t bytes, budget());
  const auto pages_of = [&](const Program& program, int32_t wanted,
                            int64_t max_tokens) -> absl::StatusOr<int32_t> {
    if (wanted > 0) return wanted;
    return PagesOf(program, bytes, shares, max_tokens, model.page_tokens, options.max_sequences);
  };
  QUIRE_ASSIGN_OR_RETURN(int64_t pages,
                         pages_of(*model.program, options.cache_pages, model.max_positions));
  if (model.encoder != nullptr) {
    QUIRE_ASSIGN_OR_RETURN(const int32_t encoder_pages,
                           pages_of(*model.encoder, options.encoder_pages, model.max_source));
    pages += encoder_pages;
    QUIRE_RETURN_IF_ERROR(
        model.encoder->Reserve(EncoderRoomOf(options, model.max_source, encoder_pages)));
  }
  QUIRE_RETURN_IF_ERROR(model.program->Reserve(RoomOf(options, pages)));
  // Less is left for pages now.
  QUIRE_ASSIGN_OR_RETURN(bytes, budget());
  QUIRE_ASSIGN_OR_RETURN(const int32_t own_pages,
                         pages_of(*model.program, options.cache_pages, model.max_positions));
  QUIRE_ASSIGN_OR_RETURN(std::unique_ptr<PagePool> pool, model.program->CreatePool(own_pages));
  std::unique_ptr<PagePool> encoder_pool;
  if (model.encoder != nullptr) {
    QUIRE_ASSIGN_OR_RETURN(const int32_t encoder_pages,
                           pages_of(*model.encoder, options.encoder_pages, model.max_source));
    QUIRE_ASSIGN_OR_RETURN(encoder_pool, model.encoder->CreatePool(encoder_pages));
  }
  return std::unique_ptr<Engine>(
      new Engine(std::make_unique<Impl>(model, options, std::move(pool), std::move(encoder_pool))));
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() = default;

absl::StatusOr<RequestId> Engine::Submit(Request request) {
  QUIRE_RETURN_IF_ERROR(impl_->failure);
  return Guarded([&] { return impl_->Submit(std::move(request)); });
}

absl::StatusOr<RequestId> Engine::Impl::Submit(Request request) {
  QUIRE_RETURN_IF_ERROR(Tokenise(model, &request));
  RequestLimits limits;
  limits.vocabulary = model.vocabulary;
  limits.more_ids = model.program->more_ids();
  limits.max_positions = model.max_positions;
  limits.cache_tokens = int64_t{cache.total_pages()} * cache.page_tokens();
  limits.max_sequences = options.max_sequences;
  limits.has_tokenizer = model.tokenizer != nullptr;
  limits.page_tokens = cache.page_tokens();
  if (encoder_cache != nullptr) {
    limits.has_encoder = true;
    limits.max_source = model.max_source;
    limits.states_width = model.encoder->states_width();
    limits.encoder_tokens = int64_t{encoder_cache->total_pages()} * encoder_cache->page_tokens();
  }
  QUIRE_RETURN_IF_ERROR(CheckRequest(limits, &request));
  const RequestId id = next_request++;
  Sequence* sequence =
      NewSequence(id, /*sample=*/0, std::make_shared<const Request>(std::move(request)));
  auto undo = absl::MakeCleanup([this] { sequences.pop_back(); });
  const double timeout_s = sequence->request->timeout_s;
  // Ten years are forever, and do not overflow the clock.
  if (timeout_s > 0 && timeout_s < 3e8) {
    sequence->deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                            std::chrono::duration<double>(timeout_s));
    earliest_deadline = std::min(earliest_deadline, sequence->deadline);
  }
  if (sequence->request->beam.beams > 1) {
    std::vector<int32_t> ends = sequence->request->stop_ids;
    if (!sequence->request->ignore_eos) {
      ends.insert(ends.end(), model.eos_ids.begin(), model.eos_ids.end());
    }
    sequence->beams =
        std::make_shared<Beams>(Beams{BeamSearch(sequence->request->beam, sequence->prompt_tokens,
                                                 sequence->request->max_tokens, std::move(ends)),
                                      {sequence}});
  } else {
    sequence->forks_due = sequence->request->samples - 1;
  }
  scheduler.Add(sequence);
  std::move(undo).Cancel();
  return id;
}

absl::Status Engine::Cancel(RequestId request) {
  return Guarded([&] { return impl_->Cancel(request); });
}

absl::Status Engine::Impl::Cancel(RequestId request) {
  bool is_known = false;
  const std::vector<Sequence*> found = SequencesOf(request);
  if (!found.empty() && found[0]->beams != nullptr) {
    return EndBeams(found, FinishReason::kCancelled, "", &due_events);
  }
  for (Sequence* sequence : found) {
    is_known = true;
    QUIRE_RETURN_IF_ERROR(End(sequence, FinishReason::kCancelled, "", &due_events));
  }
  if (is_known) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("engine: request ", request, " does not exist or has ended"));
}

bool Engine::idle() const { return impl_->sequences.empty() && impl_->due_events.empty(); }

absl::Status Engine::Step(std::vector<TokenEvent>* events) {
  QUIRE_RETURN_IF_ERROR(impl_->failure);
  impl_->failure = Guarded([&] { return impl_->Step(events); });
  return impl_->failure;
}

absl::Status Engine::Run(absl::FunctionRef<void(const TokenEvent&)> on_event) {
  std::vector<TokenEvent> events;
  while (!idle()) {
    events.clear();
    QUIRE_RETURN_IF_ERROR(Step(&events));
    for (const TokenEvent& event : events) on_event(event);
  }
  return absl::OkStatus();
}

EngineCounters Engine::counters() const {
  EngineCounters counters = impl_->counters;
  counters.preemptions = impl_->scheduler.preemptions();
  counters.reused_tokens = impl_->cache.reused_tokens();
  counters.copied_pages = impl_->cache.copied_pages();
  counters.waiting_sequences = static_cast<int32_t>(impl_->scheduler.waiting());
  counters.running_sequences = static_cast<int32_t>(impl_->scheduler.running());
  counters.total_pages = impl_->cache.total_pages();
  counters.available_pages = impl_->cache.available_pages();
  if (impl_->encoder_cache != nullptr) {
    counters.total_encoder_pages = impl_->encoder_cache->total_pages();
    counters.available_encoder_pages = impl_->encoder_cache->available_pages();
  }
  return counters;
}

}  // namespace quire
