// Beam search in an engine: beams are sequences that share pages, forked by copy-on-write.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ir/status.h"
#include "runtime/engine_impl.h"

namespace quire {

absl::Status Engine::Impl::AdvanceBeam(Sequence* sequence, absl::Span<const float> row,
                                       std::vector<TokenEvent>* events) {
  BeamSearch& search = sequence->beams->search;
  const std::vector<Sequence*> beams = sequence->beams->sequences;
  auto candidates = search.Candidates(sequence->request->sampling, row, sequence->ids);
  search.Fail(candidates.status());
  // Failed or not, the search goes on when every beam has been looked at.
  sequence->candidates =
      candidates.ok() ? *std::move(candidates) : std::vector<BeamCandidate>{BeamCandidate()};
  std::vector<absl::Span<const int32_t>> beam_ids;
  std::vector<std::vector<BeamCandidate>> all;
  for (const Sequence* beam : beams) {
    // A beam that was preempted is computed again before the search goes on.
    if (beam->candidates.empty() || beam->tokens_due() > 0) return absl::OkStatus();
    beam_ids.push_back(beam->ids);
    all.push_back(beam->candidates);
  }
  if (!search.status().ok()) {
    return EndBeams(beams, FinishReason::kFailed, search.status().message(), events);
  }
  const std::vector<BeamStep> steps = search.Advance(beam_ids, all);
  if (steps.empty()) return EndBeams(beams, FinishReason::kNone, "", events);
  counters.chosen_tokens += static_cast<int64_t>(steps.size());
  return Fork(beams, steps);
}

absl::Status Engine::Impl::Fork(const std::vector<Sequence*>& beams,
                                absl::Span<const BeamStep> steps) {
  // All forks are made before any beam changes; the first child of a beam is that beam itself.
  std::vector<bool> has_child(beams.size(), false);
  std::vector<std::pair<Sequence*, int32_t>> next;  // with the token that comes behind
  for (const BeamStep& step : steps) {
    const auto parent_rank = static_cast<size_t>(step.parent);
    Sequence* parent = beams[parent_rank];
    if (!has_child[parent_rank]) {
      has_child[parent_rank] = true;
      next.emplace_back(parent, step.token);
      continue;
    }
    Sequence* child = NewSequence(parent->id, 0, parent->request);
    child->ids = parent->ids;
    child->computed = parent->computed;
    child->deadline = parent->deadline;
    child->beams = parent->beams;
    QUIRE_RETURN_IF_ERROR(scheduler.Fork(parent, child));
    next.emplace_back(child, step.token);
  }
  for (size_t i = 0; i < beams.size(); ++i) {
    if (!has_child[i]) QUIRE_RETURN_IF_ERROR(Destroy(beams[i]));
  }
  std::vector<Sequence*>& all = next[0].first->beams->sequences;
  all.clear();
  for (size_t rank = 0; rank < next.size(); ++rank) {
    auto& [beam, token] = next[rank];
    all.push_back(beam);
    beam->sample = static_cast<int32_t>(rank);
    beam->ids.push_back(token);
    beam->candidates.clear();
  }
  return absl::OkStatus();
}

absl::Status Engine::Impl::EndBeams(const std::vector<Sequence*>& beams, FinishReason reason,
                                    absl::string_view error, std::vector<TokenEvent>* events) {
  const RequestId id = beams[0]->id;
  const std::shared_ptr<const Request> request = beams[0]->request;
  const std::shared_ptr<const Beams> of = beams[0]->beams;
  for (Sequence* beam : beams) QUIRE_RETURN_IF_ERROR(Destroy(beam));
  for (int32_t sample = 0; sample < request->samples; ++sample) {
    const auto rank = static_cast<size_t>(sample);
    if (reason != FinishReason::kNone || rank >= of->search.results().size()) {
      TokenEvent& event = events->emplace_back();
      event.request = id;
      event.sample = sample;
      event.finish = reason;
      event.error = std::string(error);
      if (reason != FinishReason::kNone) continue;
      // Few tokens, or few that are allowed, make few sequences.
      const size_t found = of->search.results().size();
      event.finish = FinishReason::kFailed;
      event.error_code = absl::StatusCode::kInvalidArgument;
      event.error =
          absl::StrCat("request: samples=", request->samples, " of a search that found ", found,
                       " sequences\n  allowed: 1 .. ", found, ", or a longer output");
      continue;
    }
    const BeamResult& result = of->search.results()[rank];
    Sequence* replayed = NewSequence(id, sample, request);
    for (size_t i = request->ids.size(); i < result.ids.size(); ++i) {
      TokenEvent& event = events->emplace_back();
      event.request = id;
      event.sample = sample;
      event.token.id = result.ids[i];
      event.finish = Append(replayed, &event);
      if (i + 1 == result.ids.size()) event.score = static_cast<float>(result.score);
    }
    QUIRE_RETURN_IF_ERROR(Destroy(replayed));
  }
  return absl::OkStatus();
}

}  // namespace quire
