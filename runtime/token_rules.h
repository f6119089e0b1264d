// Tokens that what a sequence holds already forbids or forces, as transformers' processors of the
// same names do.
#ifndef QUIRE_RUNTIME_TOKEN_RULES_H_
#define QUIRE_RUNTIME_TOKEN_RULES_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "runtime/sampling.h"

namespace quire {

struct TokenRules {
  std::vector<int32_t> forbidden;
  int32_t forced = -1;  // -1: none; wins over what is forbidden
};

// Whether there may be any.
bool HasRules(const SamplingParams& params);

// What the rules look at.
struct TokenHistory {
  absl::Span<const int32_t> ids;  // prompt and output
  int32_t prompt_tokens = 0;
  int32_t max_tokens = 0;  // of the output
  absl::Span<const int32_t> eos_ids;
};

// Of the next token.
TokenRules RulesOf(const SamplingParams& params, const TokenHistory& history);

}  // namespace quire

#endif  // QUIRE_RUNTIME_TOKEN_RULES_H_
