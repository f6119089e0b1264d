// Chooses one token from a row of logits, as runtime/sampling.h defines.
//
// Errors:  INVALID_ARGUMENT on parameters out of their range; INTERNAL on logits that hold a NaN or
//          +infinity, or leave no token possible: the model's numbers are broken.
// Threads: a Sampler is immutable but for its scratch memory: one at a time.
#ifndef QUIRE_RUNTIME_SAMPLER_H_
#define QUIRE_RUNTIME_SAMPLER_H_

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/greatest_logit.h"
#include "runtime/sampling.h"

namespace quire {

// INVALID_ARGUMENT naming the parameter, its value and what is allowed.
absl::Status CheckSampling(const SamplingParams& params, int32_t vocabulary);

// The tokens of a sequence, for penalties.
class TokenCounts {
 public:
  void AddPrompt(absl::Span<const int32_t> ids) {
    for (const int32_t id : ids) counts_[id];
  }
  void AddOutput(int32_t id) { ++counts_[id]; }
  // Times in the output, by id; 0 for a token of the prompt alone.
  const absl::flat_hash_map<int32_t, int32_t>& counts() const { return counts_; }

 private:
  absl::flat_hash_map<int32_t, int32_t> counts_;
};

struct Choice {
  TokenLogprob token;             // logprob is 0 unless params.logprobs
  std::vector<TokenLogprob> top;  // top_logprobs of them, most probable first
};

class Sampler {
 public:
  // REQUIRES: CheckSampling(params, logits.size()) is OK; the ids of `counts` are below that.
  // `counts` may be empty when no penalty is set.
  absl::StatusOr<Choice> Choose(const SamplingParams& params, absl::Span<const float> logits,
                                const TokenCounts& counts, uint64_t position, uint32_t sample);

 private:
  struct Candidate {
    double logit;
    int32_t id;
  };
  absl::StatusOr<int32_t> ChooseId(const SamplingParams& params, absl::Span<const float> logits,
                                   const GreatestLogit& plain, const TokenCounts& counts,
                                   uint64_t position, uint32_t sample);
  // Keeps, in order of ids, all tokens or as many as the choice can be of.
  void Keep(const SamplingParams& params, absl::Span<const float> logits,
            const TokenCounts& counts);
  // The logit of a token that is kept; null of any other.
  double* Find(int32_t id);
  void Adjust(const SamplingParams& params, const TokenCounts& counts);
  void KeepTopK(size_t k);
  void KeepTopP(double top_p);
  void KeepMinP(double min_p);
  int32_t Draw(double u);
  void SortById();

  std::vector<Candidate> kept_;
  std::vector<int32_t> adjusted_;  // ids that penalties or biases change
  double greatest_ = 0;            // of kept_
};

// Bias of a token that is chosen, whatever its logit is; greater than that of any request.
inline constexpr float kForcedBias = 1e30f;

// Whether a choice is of the greatest logit, among the tokens that rules allow, and nothing else is
// wanted; without rules, or where they allow it, ChooseGreedily makes it.
bool IsGreedy(const SamplingParams& params);
absl::StatusOr<int32_t> ChooseGreedily(const GreatestLogit& greatest);

// Whether penalties of `params` read TokenCounts.
bool ReadsCounts(const SamplingParams& params);

}  // namespace quire

#endif  // QUIRE_RUNTIME_SAMPLER_H_
