#include "runtime/beam_search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "runtime/greatest_logit.h"
#include "runtime/sampler.h"

namespace quire {
namespace {

constexpr double kImpossible = -std::numeric_limits<double>::infinity();

bool Contains(const std::vector<int32_t>& ids, int32_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

// Log-softmax, then the penalties and rules.
absl::StatusOr<std::vector<double>> Logprobs(const SamplingParams& sampling,
                                             absl::Span<const float> logits,
                                             const TokenHistory& history) {
  const GreatestLogit found = GreatestOf(logits);
  if (found.is_sound == 0) {
    return absl::InternalError(absl::StrCat("beams: ", kUnsoundLogits));
  }
  const double greatest = found.logit;
  if (std::isinf(greatest)) return absl::InternalError("beams: no token is possible");
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - greatest);
  const double log_sum = greatest + std::log(sum);
  std::vector<double> logprobs(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) logprobs[i] = logits[i] - log_sum;

  if (sampling.repetition_penalty != 1) {
    const absl::flat_hash_set<int32_t> seen(history.ids.begin(), history.ids.end());
    for (const int32_t id : seen) {
      if (static_cast<size_t>(id) >= logprobs.size()) continue;  // read, and never chosen
      double& logprob = logprobs[static_cast<size_t>(id)];
      logprob = logprob > 0 ? logprob / sampling.repetition_penalty
                            : logprob * sampling.repetition_penalty;
    }
  }
  for (const auto& [id, bias] : sampling.logit_bias) logprobs[static_cast<size_t>(id)] += bias;
  const TokenRules rules = RulesOf(sampling, history);
  for (const int32_t id : rules.forbidden) {
    if (static_cast<size_t>(id) < logprobs.size()) logprobs[static_cast<size_t>(id)] = kImpossible;
  }
  if (rules.forced >= 0) {
    std::fill(logprobs.begin(), logprobs.end(), kImpossible);
    logprobs[static_cast<size_t>(rules.forced)] = 0;
  }
  return logprobs;
}

}  // namespace

BeamSearch::BeamSearch(const BeamParams& params, int32_t prompt_tokens, int32_t max_tokens,
                       std::vector<int32_t> end_ids)
    : params_(params),
      prompt_tokens_(prompt_tokens),
      max_tokens_(max_tokens),
      end_ids_(std::move(end_ids)) {}

size_t BeamSearch::looked_at() const {
  return std::max<size_t>(2, 1 + end_ids_.size()) * static_cast<size_t>(params_.beams);
}

absl::StatusOr<std::vector<BeamCandidate>> BeamSearch::Candidates(
    const SamplingParams& sampling, absl::Span<const float> logits,
    absl::Span<const int32_t> ids) const {
  const auto logprobs = Logprobs(sampling, logits, {ids, prompt_tokens_, max_tokens_, end_ids_});
  if (!logprobs.ok()) return logprobs.status();
  std::vector<BeamCandidate> candidates;
  for (const int32_t id : GreatestIds(*logprobs, looked_at())) {
    const double logprob = (*logprobs)[static_cast<size_t>(id)];
    if (logprob > kImpossible) candidates.push_back({id, logprob});
  }
  if (candidates.empty()) return absl::InternalError("beams: no token is possible");
  return candidates;
}

double BeamSearch::Scored(double sum, int32_t output_tokens) const {
  return sum / std::pow(static_cast<double>(output_tokens), double{params_.length_penalty});
}

void BeamSearch::Keep(BeamResult result) {
  const auto place = std::find_if(results_.begin(), results_.end(), [&](const BeamResult& other) {
    return other.score < result.score;
  });
  results_.insert(place, std::move(result));
  if (results_.size() > static_cast<size_t>(params_.beams)) results_.pop_back();
}

bool BeamSearch::CanImprove(double best_running, int32_t output_tokens) const {
  if (results_.size() < static_cast<size_t>(params_.beams)) return true;
  const bool may_grow = params_.stop == BeamParams::Stop::kNever && params_.length_penalty > 0;
  return Scored(best_running, may_grow ? max_tokens_ : output_tokens) > results_.back().score;
}

std::vector<BeamStep> BeamSearch::Advance(absl::Span<const absl::Span<const int32_t>> ids,
                                          absl::Span<const std::vector<BeamCandidate>> candidates) {
  const int32_t output_tokens = static_cast<int32_t>(ids[0].size()) + 1 - prompt_tokens_;
  const bool is_last = output_tokens >= max_tokens_;
  const auto beams = static_cast<size_t>(params_.beams);
  std::vector<Continuation> found;
  for (size_t beam = 0; beam < candidates.size(); ++beam) {
    for (const auto& [token, logprob] : candidates[beam]) {
      found.push_back({static_cast<int32_t>(beam), token, sums_[beam] + logprob,
                       is_last || Contains(end_ids_, token)});
    }
  }
  std::stable_sort(found.begin(), found.end(), [](const Continuation& a, const Continuation& b) {
    if (a.score != b.score) return a.score > b.score;
    return std::pair(a.beam, a.token) < std::pair(b.beam, b.token);
  });
  if (found.size() > looked_at()) found.resize(looked_at());

  const bool are_full = results_.size() == beams && params_.stop == BeamParams::Stop::kEarly;
  std::vector<BeamStep> next;
  std::vector<double> sums;
  for (size_t i = 0; i < found.size(); ++i) {
    const Continuation& one = found[i];
    if (!one.ends && next.size() < beams) {
      next.push_back({one.beam, one.token});
      sums.push_back(one.score);
    }
    if (!one.ends || i >= beams || are_full || !can_improve_) continue;
    const absl::Span<const int32_t> parent = ids[static_cast<size_t>(one.beam)];
    BeamResult result{{parent.begin(), parent.end()}, Scored(one.score, output_tokens)};
    result.ids.push_back(one.token);
    Keep(std::move(result));
  }
  if (!next.empty()) can_improve_ = can_improve_ && CanImprove(sums[0], output_tokens);
  const bool is_done =
      results_.size() == beams && (params_.stop == BeamParams::Stop::kEarly || !can_improve_);
  if (next.empty() || is_done) return {};
  sums_ = std::move(sums);
  return next;
}

}  // namespace quire
