// Beam search over one prompt, step by step, without model or cache: which beams go on with which
// token, and which sequences have ended.
//
// Of the most probable continuations of all running beams, max(2, 1 + ends) * beams are looked at,
// `ends` being the number of tokens that end a sequence; so that at least `beams` of them go on. A
// continuation that ends among the first `beams` becomes a result, if its score is among the best
// `beams` of them; the others that end are dropped. A score is the sum of log-probabilities over
// tokens ^ length_penalty. Equal scores: the lower beam, then the lower token, comes first. Sums
// are double precision; otherwise as transformers does it (generation/utils.py, _beam_search).
//
// Owner:   a value; running beams are numbered 0 .. beams() - 1, most probable first.
#ifndef QUIRE_RUNTIME_BEAM_SEARCH_H_
#define QUIRE_RUNTIME_BEAM_SEARCH_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/request.h"
#include "runtime/token_rules.h"

namespace quire {

struct BeamCandidate {
  int32_t token = -1;
  double logprob = 0;
};

// A running beam's next form: beam `parent` with `token` behind it.
struct BeamStep {
  int32_t parent = 0;
  int32_t token = -1;
};

struct BeamResult {
  std::vector<int32_t> ids;  // prompt and output
  double score = 0;
};

class BeamSearch {
 public:
  BeamSearch(const BeamParams& params, int32_t prompt_tokens, int32_t max_tokens,
             std::vector<int32_t> end_ids);

  // The candidates of one beam from its row of logits, most probable first. The sampling's
  // penalties and rules change log-probabilities here, not logits. INTERNAL on a NaN or +infinity,
  // or if no token is possible.
  absl::StatusOr<std::vector<BeamCandidate>> Candidates(const SamplingParams& sampling,
                                                        absl::Span<const float> logits,
                                                        absl::Span<const int32_t> ids) const;

  // What a beam's logits were refused for; the first is kept.
  void Fail(const absl::Status& status) { status_.Update(status); }
  const absl::Status& status() const { return status_; }

  // One step: `ids` and `candidates` of every running beam. Returns how the beams go on, most
  // probable first; empty when the search is over.
  std::vector<BeamStep> Advance(absl::Span<const absl::Span<const int32_t>> ids,
                                absl::Span<const std::vector<BeamCandidate>> candidates);

  // Beams that are still to be made of the running ones: a search starts with one.
  int32_t beams_due() const { return params_.beams - static_cast<int32_t>(sums_.size()); }
  // Best first.
  absl::Span<const BeamResult> results() const { return results_; }

 private:
  struct Continuation {
    int32_t beam, token;
    double score;
    bool ends;
  };
  size_t looked_at() const;
  double Scored(double sum, int32_t output_tokens) const;
  void Keep(BeamResult result);
  bool CanImprove(double best_running, int32_t output_tokens) const;

  const BeamParams params_;
  const int32_t prompt_tokens_, max_tokens_;
  const std::vector<int32_t> end_ids_;
  std::vector<double> sums_ = {0};  // of each running beam
  std::vector<BeamResult> results_;
  bool can_improve_ = true;
  absl::Status status_;
};

}  // namespace quire

#endif  // QUIRE_RUNTIME_BEAM_SEARCH_H_
