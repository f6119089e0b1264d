// One continuation on its way through the engine.
#ifndef QUIRE_RUNTIME_SEQUENCE_H_
#define QUIRE_RUNTIME_SEQUENCE_H_

#include <chrono>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/beam_search.h"
#include "runtime/encoder_cache.h"
#include "runtime/kv_cache.h"
#include "runtime/request.h"
#include "runtime/sampler.h"
#include "runtime/text_stream.h"

namespace quire {

struct Sequence;

// A beam search, and the sequences that are its beams.
struct Beams {
  BeamSearch search;
  std::vector<Sequence*> sequences;  // most probable first
};

struct Sequence {
  std::list<std::unique_ptr<Sequence>>::iterator place;  // among all of its engine
  RequestId id = 0;                                      // of its request
  int32_t sample = 0;
  std::shared_ptr<const Request> request;
  std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max();

  std::vector<int32_t> ids;  // prompt and output; the last is not computed yet
  int32_t prompt_tokens = 0;
  TokenCounts counts;  // filled only when the sampling reads it
  std::optional<TextStream> text;

  // Samples that are forked off this one as soon as the prompt's logits are there.
  int32_t forks_due = 0;
  // Of beam search: the search that it is a beam of, and what may come next.
  std::shared_ptr<Beams> beams;
  std::vector<BeamCandidate> candidates;  // empty until its logits are there

  EncoderInput input;                            // its request's source; empty without one
  std::optional<EncoderCache::EntryId> encoder;  // of it, once it was admitted
  std::optional<KvCache::SequenceId> cache;      // none while it waits
  int32_t computed = 0;                          // of ids, those in the cache

  // Sequences that it will become, itself included.
  int32_t sequences_due() const {
    // The first of a search's beams stands for those that are still to be made.
    return 1 + forks_due + (beams == nullptr || sample != 0 ? 0 : beams->search.beams_due());
  }
  int32_t tokens_due() const { return static_cast<int32_t>(ids.size()) - computed; }
  int32_t output_tokens() const { return static_cast<int32_t>(ids.size()) - prompt_tokens; }
};

}  // namespace quire

#endif  // QUIRE_RUNTIME_SEQUENCE_H_
