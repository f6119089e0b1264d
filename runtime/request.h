// What a caller asks an engine for, and what it gets back, token by token.
#ifndef QUIRE_RUNTIME_REQUEST_H_
#define QUIRE_RUNTIME_REQUEST_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "runtime/encoder_input.h"
#include "runtime/sampling.h"

namespace quire {

using RequestId = uint64_t;

// Beam search, as transformers defines it: the sequences of greatest score are kept, the sum of the
// log-probabilities of their tokens over (their number ^ length_penalty).
struct BeamParams {
  int32_t beams = 1;  // 1: no beam search
  float length_penalty = 1;
  // When to stop: as soon as there are as many ended sequences as beams; when the running ones are
  // not likely to become better; or when they cannot.
  enum class Stop : uint8_t { kEarly, kUnlikely, kNever };
  Stop stop = Stop::kUnlikely;
};

struct Request {
  // `width`: of the states that the model's encoder reads; 0: it reads ids.
  EncoderInput encoder_input(int64_t width) const {
    return width > 0 ? EncoderInput(source_states, width, source_images) : EncoderInput(source_ids);
  }

  // What the encoder reads, for a model that has one: ids, or a text that the engine tokenises.
  std::vector<int32_t> source_ids;
  std::string source;
  // Or, where it reads states: [rows, width], row after row. Without any, the prompt is all there
  // is. Requests may share them.
  std::shared_ptr<const std::vector<float>> source_states;
  // The images that these are of, in order: a row of the prompt or the output sees those at or
  // before it, of the last images that follow each other directly. Without any it sees all states.
  std::vector<SourceImage> source_images;

  // The prompt: ids, or a text that the engine tokenises when `ids` is empty; of an empty one stays
  // what add_special puts around a text, where that is a token or more. With an encoder it
  // may be empty, and stands behind the token that decoders of the model start with; a text also
  // behind the one that is forced to be the first (sampling.forced_bos).
  std::vector<int32_t> ids;
  std::string text;
  // Put the tokens around them that the model wants. Without it ids are the whole of a prompt.
  bool add_special = true;

  int32_t max_tokens = 0;      // 0: as many as positions, memory and these two allow
  int32_t default_tokens = 0;  // 0: any
  int32_t max_length = 0;      // of prompt and output; 0: any
  int32_t samples = 1;         // continuations, drawn independently; the best, of beams
  SamplingParams sampling;
  BeamParams beam;
  std::vector<std::string> stop;  // a continuation ends before the first of these
  std::vector<int32_t> stop_ids;  // and after one of these, each beside the model's own
  bool ignore_eos = false;        // the model's own do not stop
  double timeout_s = 0;           // 0: none
};

enum class FinishReason : uint8_t {
  kNone,       // more follows
  kStopToken,  // the model's end of sequence, or one of stop_ids
  kStopString,
  kLength,  // max_tokens
  kCancelled,
  kTimeout,
  kFailed,  // `error` says why
};

// One token of one continuation, or its end. Events of a continuation come in order; the last has a
// finish reason.
struct TokenEvent {
  RequestId request = 0;
  int32_t sample = 0;             // 0 .. samples - 1
  TokenLogprob token;             // id -1: no token, only an end
  std::vector<TokenLogprob> top;  // as asked for by sampling.top_logprobs
  // Text that is certain by now: whole characters, nothing that may turn out to begin a stop
  // string. The texts of all events, joined, are the continuation's text.
  std::string text;
  FinishReason finish = FinishReason::kNone;
  float score = 0;  // of a beam's last event
  std::string error;
  // Of the error: INVALID_ARGUMENT where the request asks for what there is not.
  absl::StatusCode error_code = absl::StatusCode::kInternal;
};

}  // namespace quire

#endif  // QUIRE_RUNTIME_REQUEST_H_
