// How a request chooses tokens, and what it gets to know about the choice.
//
// The logits of a row go through these steps, in this order, which is that of transformers:
//   1. repetition penalty r: every token of the prompt or output: logit / r if positive, else * r;
//   2. presence and frequency penalties: tokens of the output: logit - presence - frequency *
//   count;
//   3. logit bias: logit + bias of that token;
//   4. temperature 0: the token with the greatest logit, and no further step; else logit /
//   temperature;
//   5. top_k: the k greatest stay;
//   6. top_p: of the tokens by descending probability, those before which the sum is less than
//   top_p;
//   7. min_p: those with at least min_p times the probability of the most probable;
//   8. a draw: with u uniform in [0, 1), the first token, in order of ids, at which the sum of the
//      probabilities of what stayed exceeds u times their total.
// Among equal logits the lower id counts as the greater, in every step. Probabilities in 6 are
// those of what 5 left. All arithmetic is double precision. The u of a token is PhiloxUniform(seed,
// position, sample): position counts from the prompt's first token.
//
// What a sequence holds already can forbid or force a token (runtime/token_rules.h), in step 3: a
// forbidden token has the bias -infinity, a forced one is chosen.
//
// Log-probabilities are those of the model: log-softmax of its logits, before step 1.
#ifndef QUIRE_RUNTIME_SAMPLING_H_
#define QUIRE_RUNTIME_SAMPLING_H_

#include <cstdint>
#include <utility>
#include <vector>

namespace quire {

struct SamplingParams {
  float temperature = 0;
  int32_t top_k = 0;  // 0: off
  float top_p = 1;    // 1: off
  float min_p = 0;    // 0: off
  float repetition_penalty = 1;
  float presence_penalty = 0, frequency_penalty = 0;
  std::vector<std::pair<int32_t, float>> logit_bias;  // may be -infinity, which bans the token
  // Not chosen as the first of the output, or, where that is forced_bos behind a prompt of one
  // token, as the second.
  std::vector<int32_t> begin_suppressed;
  int32_t no_repeat_ngram = 0;  // no run of so many tokens stands twice; 0: off
  int32_t min_length = 0;       // tokens, the prompt's included, before which no end is chosen
  int32_t min_new_tokens = 0;   // likewise of the output alone
  int32_t forced_bos = -1;      // chosen behind a prompt of one token; -1: none
  int32_t forced_eos = -1;      // chosen as the last of max_tokens; -1: none
  uint64_t seed = 0;
  bool logprobs = false;
  int32_t top_logprobs = 0;  // of so many most probable tokens too
};

struct TokenLogprob {
  int32_t id = -1;
  float logprob = 0;
};

}  // namespace quire

#endif  // QUIRE_RUNTIME_SAMPLING_H_
