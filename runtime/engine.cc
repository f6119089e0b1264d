#include "runtime/engine.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
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
  return CheckOption("cache_bytes", options.cache_bytes, 1, int64_t{1} << 50);
}

// Pages of the pool: what the options allow, but no more than can be used.
absl::StatusOr<int32_t> PagesOf(const EngineModel& model, const EngineOptions& options) {
  if (options.cache_pages > 0) return options.cache_pages;
  const int64_t page_bytes = std::max<int64_t>(model.program->page_bytes(), 1);
  int64_t pages = options.cache_bytes / page_bytes;
  if (pages == 0) {
    return absl::InvalidArgumentError(absl::StrCat("engine: cache_bytes=", options.cache_bytes,
                                                   " is less than one page",
                                                   "\n  allowed: ", page_bytes, " or more"));
  }
  if (model.max_positions > 0) {
    const int64_t pages_of_one = (model.max_positions + model.page_tokens - 1) / model.page_tokens;
    pages = std::min(pages, pages_of_one * options.max_sequences);
  }
  return static_cast<int32_t>(std::min<int64_t>(pages, int64_t{1} << 30));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(const EngineModel& model,
                                                       const EngineOptions& options) {
  QUIRE_RETURN_IF_ERROR(CheckOptions(options));
  QUIRE_ASSIGN_OR_RETURN(const int32_t pages, PagesOf(model, options));
  QUIRE_ASSIGN_OR_RETURN(std::unique_ptr<PagePool> pool, model.program->CreatePool(pages));
  return std::unique_ptr<Engine>(
      new Engine(std::make_unique<Impl>(model, options, std::move(pool))));
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() = default;

absl::StatusOr<RequestId> Engine::Submit(Request request) {
  QUIRE_RETURN_IF_ERROR(impl_->failure);
  const EngineModel& model = impl_->model;
  if (request.ids.empty() && !request.text.empty()) {
    if (model.tokenizer == nullptr) {
      return absl::InvalidArgumentError(
          "request: a text needs a tokenizer, and the plan has none\n  fix: give ids");
    }
    QUIRE_ASSIGN_OR_RETURN(
        request.ids, model.tokenizer->Encode(request.text, {.add_special = request.add_special}));
  }
  RequestLimits limits;
  limits.vocabulary = model.vocabulary;
  limits.max_positions = model.max_positions;
  limits.cache_tokens = int64_t{impl_->cache.total_pages()} * impl_->cache.page_tokens();
  limits.max_sequences = impl_->options.max_sequences;
  limits.has_tokenizer = model.tokenizer != nullptr;
  QUIRE_RETURN_IF_ERROR(CheckRequest(limits, &request));
  const RequestId id = impl_->next_request++;
  Sequence* sequence =
      impl_->NewSequence(id, /*sample=*/0, std::make_shared<const Request>(std::move(request)));
  const double timeout_s = sequence->request->timeout_s;
  // Ten years are forever, and do not overflow the clock.
  if (timeout_s > 0 && timeout_s < 3e8) {
    sequence->deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                            std::chrono::duration<double>(timeout_s));
  }
  sequence->forks_due = sequence->request->samples - 1;
  impl_->scheduler.Add(sequence);
  return id;
}

absl::Status Engine::Cancel(RequestId request) {
  bool is_known = false;
  for (Sequence* sequence : impl_->SequencesOf(request)) {
    is_known = true;
    QUIRE_RETURN_IF_ERROR(impl_->End(sequence, FinishReason::kCancelled, "", &impl_->due_events));
  }
  if (is_known) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("engine: request ", request, " does not exist or has ended"));
}

bool Engine::idle() const { return impl_->sequences.empty() && impl_->due_events.empty(); }

absl::Status Engine::Step(std::vector<TokenEvent>* events) {
  QUIRE_RETURN_IF_ERROR(impl_->failure);
  impl_->failure = impl_->Step(events);
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
  return counters;
}

}  // namespace quire
