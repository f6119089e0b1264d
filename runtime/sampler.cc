#include "runtime/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "ir/status.h"
#include "runtime/philox.h"

namespace quire {
namespace {

constexpr int32_t kMaxTopLogprobs = 1024;

absl::Status Bad(absl::string_view key, double value, absl::string_view allowed) {
  return absl::InvalidArgumentError(
      absl::StrCat("sampling: ", key, "=", value, " is not possible\n  allowed: ", allowed));
}

template <typename Candidate>
bool IsGreater(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

absl::Status Unsound() { return absl::InternalError(absl::StrCat("sampling: ", kUnsoundLogits)); }

absl::Status NoToken() { return absl::InternalError("sampling: no token is possible"); }

// log(sum(exp(logits))), summed in order of ids after subtracting the greatest.
double LogSumExp(absl::Span<const float> logits, double greatest) {
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - greatest);
  return greatest + std::log(sum);
}

std::vector<TokenLogprob> TopLogprobs(absl::Span<const float> logits, size_t count,
                                      double log_sum) {
  std::vector<TokenLogprob> top;
  for (const int32_t id : GreatestIds(logits, count)) {
    top.push_back({id, static_cast<float>(logits[id] - log_sum)});
  }
  return top;
}

}  // namespace

absl::Status CheckSampling(const SamplingParams& params, int32_t vocabulary) {
  const auto in = [](double value, double low, double high) {
    return value >= low && value <= high;
  };
  if (!in(params.temperature, 0, 1e4)) return Bad("temperature", params.temperature, "0 .. 10000");
  if (params.top_k < 0) return Bad("top_k", params.top_k, "0 (off) or more");
  if (!in(params.top_p, 0, 1)) return Bad("top_p", params.top_p, "0 .. 1");
  if (!in(params.min_p, 0, 1)) return Bad("min_p", params.min_p, "0 .. 1");
  if (!in(params.repetition_penalty, 1e-4, 1e4)) {
    return Bad("repetition_penalty", params.repetition_penalty, "0.0001 .. 10000");
  }
  if (!in(params.presence_penalty, -1e4, 1e4)) {
    return Bad("presence_penalty", params.presence_penalty, "-10000 .. 10000");
  }
  if (!in(params.frequency_penalty, -1e4, 1e4)) {
    return Bad("frequency_penalty", params.frequency_penalty, "-10000 .. 10000");
  }
  if (params.top_logprobs < 0 || params.top_logprobs > kMaxTopLogprobs) {
    return Bad("top_logprobs", params.top_logprobs, absl::StrCat("0 .. ", kMaxTopLogprobs));
  }
  if (params.no_repeat_ngram < 0) {
    return Bad("no_repeat_ngram", params.no_repeat_ngram, "0 (off) or more");
  }
  if (params.min_length < 0) return Bad("min_length", params.min_length, "0 or more");
  if (params.min_new_tokens < 0) return Bad("min_new_tokens", params.min_new_tokens, "0 or more");
  for (const auto& [key, id] :
       {std::pair("forced_bos", params.forced_bos), std::pair("forced_eos", params.forced_eos)}) {
    if (id < -1 || id >= vocabulary) {
      return Bad(key, id, absl::StrCat("-1 (none) or a token, 0 .. ", vocabulary - 1));
    }
  }
  for (const auto& [id, bias] : params.logit_bias) {
    if (id < 0 || id >= vocabulary) {
      return Bad("logit_bias of token", id, absl::StrCat("a token, 0 .. ", vocabulary - 1));
    }
    if (!in(bias, -std::numeric_limits<double>::infinity(), 1e4)) {
      return Bad("logit_bias", bias, "up to 10000");
    }
  }
  for (const int32_t id : params.begin_suppressed) {
    if (id < 0 || id >= vocabulary) {
      return Bad("begin_suppressed", id, absl::StrCat("tokens, 0 .. ", vocabulary - 1));
    }
  }
  return absl::OkStatus();
}

bool IsGreedy(const SamplingParams& params) {
  return params.temperature == 0 && !ReadsCounts(params) && params.logit_bias.empty() &&
         !params.logprobs && params.top_logprobs == 0;
}

absl::StatusOr<int32_t> ChooseGreedily(const GreatestLogit& greatest) {
  if (greatest.is_sound == 0) return Unsound();
  if (std::isinf(greatest.logit)) return NoToken();
  return greatest.id;
}

bool ReadsCounts(const SamplingParams& params) {
  return params.repetition_penalty != 1 || params.presence_penalty != 0 ||
         params.frequency_penalty != 0;
}

absl::StatusOr<Choice> Sampler::Choose(const SamplingParams& params, absl::Span<const float> logits,
                                       const TokenCounts& counts, uint64_t position,
                                       uint32_t sample) {
  Choice choice;
  const GreatestLogit plain = GreatestOf(logits);
  QUIRE_ASSIGN_OR_RETURN(choice.token.id,
                         ChooseId(params, logits, plain, counts, position, sample));
  if (params.logprobs || params.top_logprobs > 0) {
    const double log_sum = LogSumExp(logits, plain.logit);
    choice.token.logprob = static_cast<float>(logits[choice.token.id] - log_sum);
    choice.top = TopLogprobs(logits, static_cast<size_t>(params.top_logprobs), log_sum);
  }
  return choice;
}

absl::StatusOr<int32_t> Sampler::ChooseId(const SamplingParams& params,
                                          absl::Span<const float> logits,
                                          const GreatestLogit& plain, const TokenCounts& counts,
                                          uint64_t position, uint32_t sample) {
  if (params.temperature == 0 && !ReadsCounts(params) && params.logit_bias.empty()) {
    return ChooseGreedily(plain);
  }
  if (plain.is_sound == 0) return Unsound();
  Keep(params, logits, counts);
  Adjust(params, counts);
  const auto greatest = std::min_element(kept_.begin(), kept_.end(), IsGreater<Candidate>);
  if (std::isinf(greatest->logit)) return NoToken();
  if (params.temperature == 0) return greatest->id;
  greatest_ = greatest->logit / params.temperature;
  for (Candidate& candidate : kept_) candidate.logit /= params.temperature;
  if (params.top_k > 0) KeepTopK(static_cast<size_t>(params.top_k));
  if (params.top_p < 1) KeepTopP(params.top_p);
  if (params.min_p > 0) KeepMinP(params.min_p);
  return Draw(PhiloxUniform(params.seed, position, sample));
}

void Sampler::Keep(const SamplingParams& params, absl::Span<const float> logits,
                   const TokenCounts& counts) {
  adjusted_.clear();
  if (ReadsCounts(params)) {
    for (const auto& [id, count] : counts.counts()) adjusted_.push_back(id);
  }
  for (const auto& [id, bias] : params.logit_bias) adjusted_.push_back(id);
  // Whatever becomes of those that are adjusted, what is chosen among the greatest k is one of
  // them, or of the k greatest of the others: among these neither adjusting nor a temperature
  // changes the order.
  const size_t k = params.temperature == 0 ? 1 : static_cast<size_t>(params.top_k);
  const size_t enough = k + adjusted_.size();
  kept_.clear();
  if (k == 0 || enough > logits.size() / 8) {
    kept_.resize(logits.size());
    for (size_t i = 0; i < logits.size(); ++i) kept_[i] = {logits[i], static_cast<int32_t>(i)};
    return;
  }
  const auto keep = [&](int32_t id) {
    // What is beyond the vocabulary is read, and never chosen.
    if (static_cast<size_t>(id) < logits.size()) kept_.push_back({logits[id], id});
  };
  for (const int32_t id : GreatestIds(logits, enough)) keep(id);
  for (const int32_t id : adjusted_) keep(id);
  SortById();
  kept_.erase(std::unique(kept_.begin(), kept_.end(),
                          [](const Candidate& a, const Candidate& b) { return a.id == b.id; }),
              kept_.end());
}

double* Sampler::Find(int32_t id) {
  const auto found = std::lower_bound(
      kept_.begin(), kept_.end(), id,
      [](const Candidate& candidate, int32_t wanted) { return candidate.id < wanted; });
  return found == kept_.end() || found->id != id ? nullptr : &found->logit;
}

void Sampler::Adjust(const SamplingParams& params, const TokenCounts& counts) {
  if (ReadsCounts(params)) {
    for (const auto& [id, count] : counts.counts()) {
      double* const logit = Find(id);
      if (logit == nullptr) continue;
      *logit = *logit > 0 ? *logit / params.repetition_penalty : *logit * params.repetition_penalty;
      if (count > 0) {
        *logit -= params.presence_penalty + double{params.frequency_penalty} * count;
      }
    }
  }
  for (const auto& [id, bias] : params.logit_bias) {
    double* const logit = Find(id);
    if (logit != nullptr) *logit = bias == kForcedBias ? bias : *logit + bias;
  }
}

void Sampler::SortById() {
  const auto by_id = [](const Candidate& a, const Candidate& b) { return a.id < b.id; };
  if (!std::is_sorted(kept_.begin(), kept_.end(), by_id)) {
    std::sort(kept_.begin(), kept_.end(), by_id);
  }
}

void Sampler::KeepTopK(size_t k) {
  if (k >= kept_.size()) return;
  std::nth_element(kept_.begin(), kept_.begin() + static_cast<ptrdiff_t>(k), kept_.end(),
                   IsGreater<Candidate>);
  kept_.resize(k);
}

void Sampler::KeepTopP(double top_p) {
  double total = 0;
  // In order of ids, so that the total does not depend on how the step before left them.
  SortById();
  for (const Candidate& candidate : kept_) total += std::exp(candidate.logit - greatest_);
  // A nucleus is small as a rule: sort a few, and more only while they do not reach top_p.
  size_t sorted = 0, stay = 0;
  double sum = 0;
  do {
    if (stay == sorted) {
      const size_t next = std::min(kept_.size(), std::max<size_t>(128, sorted * 4));
      std::partial_sort(kept_.begin() + static_cast<ptrdiff_t>(sorted),
                        kept_.begin() + static_cast<ptrdiff_t>(next), kept_.end(),
                        IsGreater<Candidate>);
      sorted = next;
    }
    sum += std::exp(kept_[stay++].logit - greatest_);
  } while (stay < kept_.size() && sum < top_p * total);
  kept_.resize(stay);
}

void Sampler::KeepMinP(double min_p) {
  kept_.erase(std::remove_if(kept_.begin(), kept_.end(),
                             [&](const Candidate& candidate) {
                               return std::exp(candidate.logit - greatest_) < min_p;
                             }),
              kept_.end());
}

int32_t Sampler::Draw(double u) {
  SortById();
  double total = 0;
  for (Candidate& candidate : kept_) {
    candidate.logit = std::exp(candidate.logit - greatest_);
    total += candidate.logit;
  }
  double sum = 0;
  int32_t last = kept_[0].id;
  for (const Candidate& candidate : kept_) {
    if (candidate.logit == 0) continue;
    sum += candidate.logit;
    last = candidate.id;
    if (sum > u * total) break;
  }
  return last;
}

}  // namespace quire
