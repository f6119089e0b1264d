#include "runtime/step_check.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "ir/plan_check.h"
#include "ir/status.h"

namespace quire {
namespace {

absl::Status Wrong(absl::string_view what, int64_t value, absl::string_view allowed) {
  return WithLine(absl::InvalidArgumentError(absl::StrCat("step: ", what, " is ", value)),
                  "allowed", allowed);
}

absl::Status CheckAll(absl::Span<const int32_t> values, absl::string_view what, int64_t limit) {
  // Without a way out, the compiler makes vectors of it.
  const auto end = static_cast<uint32_t>(std::clamp<int64_t>(limit, 0, int64_t{1} << 31));
  int wrong = 0;
  for (const int32_t value : values) wrong |= static_cast<uint32_t>(value) >= end ? 1 : 0;
  if (wrong == 0) return absl::OkStatus();
  for (const int32_t value : values) {
    if (value < 0 || value >= limit) return Wrong(what, value, absl::StrCat("0 .. ", limit - 1));
  }
  return absl::OkStatus();
}

absl::Status CheckTable(absl::Span<const int32_t> pages, int64_t tokens, int64_t first_token,
                        int64_t page_tokens, int32_t pool_pages) {
  const int64_t count = (tokens + page_tokens - 1) / page_tokens;
  if (static_cast<int64_t>(pages.size()) < count) {
    return Wrong("the length of a block table", static_cast<int64_t>(pages.size()),
                 absl::StrCat("at least ", count));
  }
  const int64_t first = first_token / page_tokens;
  return CheckAll(pages.subspan(static_cast<size_t>(first), static_cast<size_t>(count - first)),
                  "a page", pool_pages);
}

absl::Status CheckPages(const SequenceRows& sequence, const StepLimits& limits,
                        int32_t pool_pages) {
  const int64_t tokens = sequence.context_tokens;
  const int64_t first =
      limits.window == 0 ? 0 : std::max<int64_t>(0, tokens - sequence.rows + 1 - limits.window);
  return CheckTable(sequence.pages, tokens, first, limits.page_tokens, pool_pages);
}

absl::Status CheckEncoder(const Step& step, const SequenceRows& sequence,
                          const StepLimits& limits) {
  if (!limits.needs_encoder && sequence.encoder_tokens == 0) return absl::OkStatus();
  if (step.encoder_pool == nullptr || sequence.encoder_tokens < 1) {
    return absl::FailedPreconditionError(
        absl::StrCat("step: the sequence at row ", sequence.first_row,
                     " has no encoder output\n  fix: run encode on its source first"));
  }
  return CheckTable(sequence.encoder_pages, sequence.encoder_tokens, 0, limits.page_tokens,
                    step.encoder_pool->page_count());
}

// Of the states that a program reads, 0 for none.
int64_t StatesWidth(const plan::ProgramT& program) {
  int64_t width = 0;
  for (const auto& argument : program.arguments) {
    if (argument->name != "states" || argument->extents.size() != 2) continue;
    if (!absl::SimpleAtoi(argument->extents[1], &width)) return 0;
  }
  return width;
}

absl::Status CheckStates(const Step& step, int64_t width) {
  if (width == 0 && step.states.empty()) return absl::OkStatus();
  if (step.states.size() != (width == 0 ? 0 : step.sequences.size())) {
    return Wrong("the number of sequences' states", static_cast<int64_t>(step.states.size()),
                 absl::StrCat(width == 0 ? 0 : step.sequences.size()));
  }
  for (size_t i = 0; i < step.states.size(); ++i) {
    const int64_t wanted = step.sequences[i].rows * width;
    if (static_cast<int64_t>(step.states[i].size()) == wanted) continue;
    return Wrong("the number of a sequence's states", static_cast<int64_t>(step.states[i].size()),
                 absl::StrCat(wanted));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<StepArgument> StepArgumentNamed(absl::string_view name) {
  if (name == "ids") return StepArgument::kIds;
  if (name == "pos") return StepArgument::kPositions;
  if (name == "rows") return StepArgument::kLogitRows;
  if (name == "states") return StepArgument::kStates;
  return WithLine(absl::InvalidArgumentError(absl::StrCat("argument ", name)), "allowed",
                  "ids, pos, rows, states");
}

absl::StatusOr<StepLimits> LimitsOf(const plan::TargetT& target, const plan::ProgramT& program) {
  StepLimits limits;
  limits.is_encode = program.name == "encode";
  limits.ids = std::numeric_limits<int32_t>::max();
  if (!limits.is_encode) {
    if (program.results.size() != 1 || program.results[0].kind() != plan::OperandKind::Buffer ||
        !absl::SimpleAtoi(program.buffers[program.results[0].index()]->extents.back(),
                          &limits.vocabulary)) {
      return absl::InvalidArgumentError("the plan's result is not logits of a fixed vocabulary");
    }
  }
  limits.page_tokens = target.page_tokens;
  limits.states_width = StatesWidth(program);
  limits.needs_encoder = std::none_of(target.programs.begin(), target.programs.end(),
                                      [](const auto& any) { return StatesWidth(*any) > 0; });
  bool all_have_windows = true;
  for (const auto& layer : target.kv_layers) {
    const bool is_own =
        layer->cache == (limits.is_encode ? plan::KvCache::Cross : plan::KvCache::Self);
    limits.reads_pages |= is_own;
    limits.reads_encoder |= !limits.is_encode && layer->cache == plan::KvCache::Cross;
    if (!is_own) continue;
    all_have_windows &= layer->window != 0;
    limits.window = std::max(limits.window, layer->window);
  }
  if (!all_have_windows) limits.window = 0;
  return limits;
}

absl::Status LimitLookups(const RowOperands& rows, const plan::ProgramT& program,
                          const plan::LaunchT& launch, StepLimits& limits) {
  // What a function's argument is of the step; nothing where it is no argument of the program.
  const auto step_argument = [&](int argument) -> std::optional<StepArgument> {
    if (argument < 0 || static_cast<size_t>(argument) >= launch.inputs.size()) return std::nullopt;
    const plan::Operand& operand = launch.inputs[static_cast<size_t>(argument)];
    if (operand.kind() != plan::OperandKind::Argument) return std::nullopt;
    const auto named = StepArgumentNamed(program.arguments[operand.index()]->name);
    return named.ok() ? std::optional(*named) : std::nullopt;
  };
  const auto bad = [&launch](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat("launch ", launch.name, ": ", what));
  };
  for (const int argument : rows.takes) {
    if (step_argument(argument) != StepArgument::kLogitRows) {
      return bad("takes rows by other numbers than those of the rows with logits");
    }
  }
  for (const RowOperands::Look& look : rows.looks) {
    const std::optional<StepArgument> by = step_argument(look.argument);
    if (by == StepArgument::kIds) {
      limits.ids = std::min(limits.ids, look.limit);
    } else if (by == StepArgument::kPositions) {
      limits.positions = std::min(limits.positions, look.limit);
    } else {
      return bad("looks up what is neither an id nor a position");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckStep(const Step& step, const StepLimits& limits, int32_t pool_pages,
                       size_t logit_floats) {
  const auto rows = static_cast<int64_t>(step.ids.size());
  const auto wanted = static_cast<int64_t>(step.logit_rows.size());
  if (rows == 0 || rows > kMaxStepRows) {
    return Wrong("the number of rows", rows, absl::StrCat("1 .. ", kMaxStepRows));
  }
  if (step.positions.size() != step.ids.size()) {
    return Wrong("the number of positions", static_cast<int64_t>(step.positions.size()),
                 absl::StrCat(rows));
  }
  // Buffers are planned for at most as many rows with logits as rows.
  if (wanted > rows) {
    return Wrong("the number of rows with logits", wanted, absl::StrCat("0 .. ", rows));
  }
  QUIRE_RETURN_IF_ERROR(CheckAll(step.ids, "a token id", limits.ids));
  QUIRE_RETURN_IF_ERROR(CheckAll(step.positions, "a position", limits.positions));
  QUIRE_RETURN_IF_ERROR(CheckAll(step.logit_rows, "a logit row", rows));
  if (static_cast<int64_t>(logit_floats) != wanted * limits.vocabulary) {
    return Wrong("the number of logits", static_cast<int64_t>(logit_floats),
                 absl::StrCat(wanted * limits.vocabulary));
  }
  QUIRE_RETURN_IF_ERROR(CheckStates(step, limits.states_width));
  int64_t next_row = 0;
  for (const SequenceRows& sequence : step.sequences) {
    if (sequence.first_row != next_row || sequence.rows < 1) {
      return Wrong("the first row of a sequence", sequence.first_row,
                   absl::StrCat(next_row, ", and one row or more"));
    }
    next_row += sequence.rows;
    if (sequence.context_tokens < sequence.rows) {
      return Wrong("a context", sequence.context_tokens,
                   absl::StrCat("at least its ", sequence.rows, " rows"));
    }
    if (limits.is_encode && sequence.context_tokens != sequence.rows) {
      return Wrong("a context of encode", sequence.context_tokens,
                   absl::StrCat(sequence.rows, ", its rows: an encoder sees an input as a whole"));
    }
    if (limits.reads_encoder) QUIRE_RETURN_IF_ERROR(CheckEncoder(step, sequence, limits));
    if (limits.reads_pages) QUIRE_RETURN_IF_ERROR(CheckPages(sequence, limits, pool_pages));
  }
  if (next_row != rows)
    return Wrong("the number of rows of all sequences", next_row, absl::StrCat(rows));
  return absl::OkStatus();
}

}  // namespace quire
