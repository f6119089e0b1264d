// What a caller asks an engine for, and what it gets back, token by token.
#ifndef QUIRE_RUNTIME_REQUEST_H_
#define QUIRE_RUNTIME_REQUEST_H_

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/sampling.h"

namespace quire {

using RequestId = uint64_t;

struct Request {
  // The prompt: ids, or a text that the engine tokenises when `ids` is empty.
  std::vector<int32_t> ids;
  std::string text;
  bool add_special = true;  // text: put the tokens around it that the model wants

  int32_t max_tokens = 0;  // 0: as many as positions and memory allow
  int32_t samples = 1;     // continuations, drawn independently
  SamplingParams sampling;
  std::vector<std::string> stop;  // a continuation ends before the first of these
  std::vector<int32_t> stop_ids;  // and after one of these, beside the model's own
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
  std::string error;
};

}  // namespace quire

#endif  // QUIRE_RUNTIME_REQUEST_H_
