#include "runtime/token_rules.h"

#include <algorithm>

namespace quire {
namespace {

// Tokens that would end a run of `length` tokens which stands in `ids` already.
void ForbidRuns(absl::Span<const int32_t> ids, size_t length, std::vector<int32_t>* forbidden) {
  if (ids.size() < length) return;
  const auto last = ids.last(length - 1);
  for (size_t begin = 0; begin + length <= ids.size(); ++begin) {
    const auto run = ids.subspan(begin, length);
    if (std::equal(last.begin(), last.end(), run.begin())) forbidden->push_back(run.back());
  }
  std::sort(forbidden->begin(), forbidden->end());
  forbidden->erase(std::unique(forbidden->begin(), forbidden->end()), forbidden->end());
}

}  // namespace

bool HasRules(const SamplingParams& params) {
  return !params.begin_suppressed.empty() || params.no_repeat_ngram > 0 || params.min_length > 0 ||
         params.min_new_tokens > 0 || params.forced_bos >= 0 || params.forced_eos >= 0;
}

TokenRules RulesOf(const SamplingParams& params, const TokenHistory& history) {
  TokenRules rules;
  const auto length = static_cast<int32_t>(history.ids.size());
  if (params.no_repeat_ngram > 0) {
    ForbidRuns(history.ids, static_cast<size_t>(params.no_repeat_ngram), &rules.forbidden);
  }
  const int32_t output_tokens = length - history.prompt_tokens;
  if (length < params.min_length || output_tokens < params.min_new_tokens) {
    rules.forbidden.insert(rules.forbidden.end(), history.eos_ids.begin(), history.eos_ids.end());
  }
  const bool has_forced_bos = history.prompt_tokens == 1 && params.forced_bos >= 0;
  if (output_tokens == (has_forced_bos ? 1 : 0)) {
    rules.forbidden.insert(rules.forbidden.end(), params.begin_suppressed.begin(),
                           params.begin_suppressed.end());
  }
  if (output_tokens == 0 && has_forced_bos) rules.forced = params.forced_bos;
  const bool is_last = output_tokens == history.max_tokens - 1;
  if (is_last && params.forced_eos >= 0) rules.forced = params.forced_eos;
  return rules;
}

}  // namespace quire
