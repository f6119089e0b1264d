#include "runtime/step_check.h"

#include <limits>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "ir/status.h"

namespace quire {
namespace {

absl::Status Wrong(absl::string_view what, int64_t value, absl::string_view allowed) {
  return WithLine(absl::InvalidArgumentError(absl::StrCat("step: ", what, " is ", value)),
                  "allowed", allowed);
}

absl::Status CheckAll(absl::Span<const int32_t> values, absl::string_view what, int64_t limit) {
  for (int32_t value : values) {
    if (value < 0 || value >= limit) return Wrong(what, value, absl::StrCat("0 .. ", limit - 1));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckStep(const Step& step, const plan::TargetT& target, const plan::ProgramT& program,
                       int32_t pool_pages, size_t logit_floats) {
  const auto rows = static_cast<int64_t>(step.ids.size());
  if (rows == 0) return Wrong("the number of rows", rows, "at least 1");
  if (step.positions.size() != step.ids.size()) {
    return Wrong("the number of positions", static_cast<int64_t>(step.positions.size()),
                 absl::StrCat(rows));
  }
  int64_t vocabulary = 0;
  const plan::ValueT& logits = *program.buffers[program.results[0].index()];
  if (!absl::SimpleAtoi(logits.extents.back(), &vocabulary)) {
    return absl::InternalError("the plan's logits have no fixed vocabulary");
  }
  QUIRE_RETURN_IF_ERROR(CheckAll(step.ids, "a token id", vocabulary));
  QUIRE_RETURN_IF_ERROR(
      CheckAll(step.positions, "a position", std::numeric_limits<int32_t>::max()));
  QUIRE_RETURN_IF_ERROR(CheckAll(step.logit_rows, "a logit row", rows));
  // Buffers are placed for R <= T: more would lie over one another and beyond the arena.
  if (step.logit_rows.size() > step.ids.size()) {
    return Wrong("the number of logit rows", static_cast<int64_t>(step.logit_rows.size()),
                 absl::StrCat("at most ", rows));
  }
  if (logit_floats != step.logit_rows.size() * static_cast<size_t>(vocabulary)) {
    return Wrong("the number of logits", static_cast<int64_t>(logit_floats),
                 absl::StrCat(static_cast<int64_t>(step.logit_rows.size()) * vocabulary));
  }
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
    const int64_t pages =
        (int64_t{sequence.context_tokens} + target.page_tokens - 1) / target.page_tokens;
    if (static_cast<int64_t>(sequence.pages.size()) < pages) {
      return Wrong("the length of a block table", static_cast<int64_t>(sequence.pages.size()),
                   absl::StrCat("at least ", pages));
    }
    QUIRE_RETURN_IF_ERROR(
        CheckAll(sequence.pages.subspan(0, static_cast<size_t>(pages)), "a page", pool_pages));
  }
  if (next_row != rows)
    return Wrong("the number of rows of all sequences", next_row, absl::StrCat(rows));
  return absl::OkStatus();
}

}  // namespace quire
