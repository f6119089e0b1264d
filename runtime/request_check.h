// What a request must satisfy before it is queued, so that nothing in it can fail later.
#ifndef QUIRE_RUNTIME_REQUEST_CHECK_H_
#define QUIRE_RUNTIME_REQUEST_CHECK_H_

#include <cstdint>

#include "absl/status/status.h"
#include "runtime/request.h"

namespace quire {

struct RequestLimits {
  int32_t vocabulary = 0;
  int64_t more_ids = 0;       // from the vocabulary on, of prompts
  int64_t max_positions = 0;  // 0: any
  int64_t cache_tokens = 0;   // of one sequence that has all pages
  int64_t page_tokens = 1;
  int32_t max_sequences = 0;
  bool has_tokenizer = false;
  bool has_encoder = false;
  int64_t max_source = 0;      // 0: any
  int64_t states_width = 0;    // of the states that an encoder reads; 0: it reads ids
  int64_t encoder_tokens = 0;  // of one encoder input that has all pages
};

// Checks `request`, whose text was tokenised, and fills in max_tokens.
// Errors: INVALID_ARGUMENT; RESOURCE_EXHAUSTED when prompt and output do not fit into the cache.
// Both name the greatest value that is possible.
absl::Status CheckRequest(const RequestLimits& limits, Request* request);

}  // namespace quire

#endif  // QUIRE_RUNTIME_REQUEST_CHECK_H_
