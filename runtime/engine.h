// Requests in, token events out: continuous batching over one program.
//
// Every step is one ragged batch of prompt chunks and single tokens under a token budget
// (runtime/scheduler.h). A request's tokens and log-probabilities depend on its prompt, its
// sampling and its seed alone: not on what else is in the batch, on chunking, on preemption, or on
// a prefix that was found in the cache.
//
// Errors:  Submit: INVALID_ARGUMENT, and RESOURCE_EXHAUSTED when a request cannot fit even alone;
// both
//          say what would. Step: what the program returns; the engine is then unusable, and every
//          further step returns the same. Broken logits end only their own continuation.
// Threads: one at a time. Two engines over one program must not step at the same time.
// Owner:   owns its pages; program and tokenizer must outlive it.
#ifndef QUIRE_RUNTIME_ENGINE_H_
#define QUIRE_RUNTIME_ENGINE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/request.h"

namespace quire {

class Program;    // runtime/device.h
class Tokenizer;  // runtime/tokenizer/tokenizer.h

struct EngineOptions {
  int32_t max_sequences = 64;  // that run at the same time
  int32_t step_tokens = 512;   // computed in one step, over all sequences
  int32_t chunk_tokens = 0;    // of one prompt in one step; 0: no limit of its own
  // Memory for keys and values; 0: what a GPU has left, and a GiB on a CPU. Less is taken when
  // max_sequences of greatest length need less. With an encoder, one half is for what it leaves.
  int64_t cache_bytes = 0;
  int32_t cache_pages = 0;     // when not 0, instead of cache_bytes
  int32_t encoder_pages = 0;   // likewise, of what an encoder leaves
  bool reuse_prefixes = true;  // start from pages that hold the same tokens already
};

// What an engine runs.
struct EngineModel {
  Program* program = nullptr;
  Program* encoder = nullptr;            // of a model with one; then Requests have a source
  bool encodes_every_step = false;       // all that a step reads, instead of each input once
  const Tokenizer* tokenizer = nullptr;  // may be null: then prompts are ids
  int32_t vocabulary = 0;
  int64_t max_positions = 0;  // 0: any
  int64_t max_source = 0;     // likewise, of an encoder's input
  int32_t page_tokens = 0;
  std::vector<int32_t> eos_ids;
  std::vector<std::string> stop;  // texts before which outputs end, unless they are beams
  int32_t decoder_start_id = -1;  // with an encoder: stands before prompts; -1: none
};

struct EngineCounters {
  int64_t steps = 0;
  int64_t computed_tokens = 0;
  int64_t prompt_tokens = 0;  // of these, those of prompts
  int64_t chosen_tokens = 0;
  int64_t preemptions = 0;
  int64_t reused_tokens = 0;  // of prompts, found in the cache
  int64_t copied_pages = 0;
  int32_t waiting_sequences = 0;
  int32_t running_sequences = 0;
  int32_t total_pages = 0;
  int32_t available_pages = 0;
  int64_t encoded_tokens = 0;
  int32_t total_encoder_pages = 0;
  int32_t available_encoder_pages = 0;
};

class Engine {
 public:
  static absl::StatusOr<std::unique_ptr<Engine>> Create(const EngineModel& model,
                                                        const EngineOptions& options = {});
  ~Engine();

  absl::StatusOr<RequestId> Submit(Request request);
  // Ends its continuations; their last events come with the next step. INVALID_ARGUMENT when there
  // is no such request any more.
  absl::Status Cancel(RequestId request);

  // Computes one step and appends its events.
  absl::Status Step(std::vector<TokenEvent>* events);
  // No request is left, and no event is due.
  bool idle() const;
  // Steps until idle; `on_event` may submit and cancel.
  absl::Status Run(absl::FunctionRef<void(const TokenEvent&)> on_event);

  EngineCounters counters() const;

 private:
  struct Impl;
  explicit Engine(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace quire

#endif  // QUIRE_RUNTIME_ENGINE_H_
