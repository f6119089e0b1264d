#include "tools/step_runner.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <utility>

#include "ir/status.h"

namespace quire {

absl::StatusOr<StepRunner> StepRunner::Create(Program* program, const StepRunnerShape& shape,
                                              uint32_t page_seed) {
  StepRunner runner(program, shape);
  const int32_t pages = (shape.max_tokens + shape.page_tokens - 1) / shape.page_tokens;
  QUIRE_ASSIGN_OR_RETURN(runner.pool_, program->CreatePool(pages * shape.sequences));
  std::vector<int32_t> order(static_cast<size_t>(pages) * static_cast<size_t>(shape.sequences));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937(page_seed));
  for (int32_t s = 0; s < shape.sequences; ++s) {
    runner.pages_.emplace_back(order.begin() + s * pages, order.begin() + (s + 1) * pages);
  }
  runner.tokens_.resize(static_cast<size_t>(shape.sequences));
  if (shape.encoder != nullptr) QUIRE_RETURN_IF_ERROR(runner.Encode());
  return runner;
}

int32_t StepRunner::encoder_tokens() const {
  const int64_t width = shape_.encoder->states_width();
  return static_cast<int32_t>(width == 0 ? static_cast<int64_t>(shape_.source.size())
                                         : static_cast<int64_t>(shape_.states.size()) / width);
}

absl::Status StepRunner::Encode() {
  const int32_t tokens = encoder_tokens();
  encoder_pages_.resize(
      static_cast<size_t>((tokens + shape_.page_tokens - 1) / shape_.page_tokens));
  std::iota(encoder_pages_.rbegin(), encoder_pages_.rend(), 0);
  QUIRE_ASSIGN_OR_RETURN(encoder_pool_,
                         shape_.encoder->CreatePool(static_cast<int32_t>(encoder_pages_.size())));
  std::vector<int32_t> ids = shape_.source, positions(static_cast<size_t>(tokens));
  ids.resize(positions.size());  // which nothing reads beside states
  std::iota(positions.begin(), positions.end(), 0);
  const std::vector<SequenceRows> sequences = {{0, tokens, tokens, encoder_pages_}};
  Step step = {ids, positions, {}, sequences};
  const absl::Span<const float> states[] = {shape_.states};
  if (!shape_.states.empty()) step.states = states;
  return Run("encode", *shape_.encoder, step, *encoder_pool_, {});
}

absl::Status StepRunner::Run(absl::string_view name, Program& program, const Step& step,
                             PagePool& pool, absl::Span<float> logits) const {
  StepWatcher* watcher = shape_.watcher;
  if (watcher == nullptr) return program.Run(step, pool, logits);
  QUIRE_RETURN_IF_ERROR(watcher->Begin(name, step));
  return program.RunWatched(step, pool, logits, [&](size_t launch, const LaunchMemory& memory) {
    return watcher->After(launch, memory);
  });
}

absl::StatusOr<std::vector<float>> StepRunner::Append(absl::Span<const std::vector<int32_t>> ids) {
  std::vector<int32_t> all_ids, positions;
  std::vector<SequenceRows> sequences;
  for (size_t s = 0; s < ids.size(); ++s) {
    if (ids[s].empty()) continue;
    SequenceRows& part = sequences.emplace_back();
    part.first_row = static_cast<int32_t>(all_ids.size());
    part.rows = static_cast<int32_t>(ids[s].size());
    for (const int32_t id : ids[s]) {
      all_ids.push_back(id);
      positions.push_back(tokens_[s]++);
    }
    part.context_tokens = tokens_[s];
    const auto pages =
        static_cast<size_t>((tokens_[s] + shape_.page_tokens - 1) / shape_.page_tokens);
    part.pages = absl::MakeConstSpan(pages_[s]).first(pages);
    if (encoder_pool_ != nullptr) {
      part.encoder_tokens = encoder_tokens();
      part.encoder_pages = encoder_pages_;
    }
  }
  std::vector<int32_t> rows(all_ids.size());
  std::iota(rows.begin(), rows.end(), 0);
  std::vector<float> logits(all_ids.size() * static_cast<size_t>(shape_.vocabulary));
  QUIRE_RETURN_IF_ERROR(Run("step", *program_,
                            {all_ids, positions, rows, sequences, encoder_pool_.get()}, *pool_,
                            absl::MakeSpan(logits)));
  return logits;
}

}  // namespace quire
