#include "runtime/tokenizer/split.h"

#include <algorithm>

namespace quire::tokenizer {
namespace {

using plan::SplitBehavior;

// Joins spans that `joins(previous, span)` puts together, in the order given.
template <typename Joins>
std::vector<Span> Join(const std::vector<Span>& spans, Joins joins) {
  std::vector<Span> joined;
  bool previous_is_match = false;
  for (const Span& span : spans) {
    if (!joined.empty() && joins(previous_is_match, span.is_match)) {
      joined.back().begin = std::min(joined.back().begin, span.begin);
      joined.back().end = std::max(joined.back().end, span.end);
    } else {
      joined.push_back(span);
    }
    previous_is_match = span.is_match;
  }
  return joined;
}

// The first of several matches in a row goes with its neighbour, the others stand alone.
bool IsFirstMatch(bool previous_is_match, bool is_match) { return is_match && !previous_is_match; }

}  // namespace

void AppendSplit(const Piece& piece, std::vector<Span> spans, SplitBehavior behavior,
                 std::vector<Piece>* out) {
  switch (behavior) {
    case SplitBehavior::kRemoved:
      spans.erase(
          std::remove_if(spans.begin(), spans.end(), [](const Span& s) { return s.is_match; }),
          spans.end());
      break;
    case SplitBehavior::kIsolated:
      break;
    case SplitBehavior::kContiguous:
      spans = Join(spans, [](bool previous, bool current) { return previous == current; });
      break;
    case SplitBehavior::kMergedWithPrevious:
      spans = Join(spans, IsFirstMatch);
      break;
    case SplitBehavior::kMergedWithNext:
      std::reverse(spans.begin(), spans.end());
      spans = Join(spans, IsFirstMatch);
      std::reverse(spans.begin(), spans.end());
      break;
  }
  for (const Span& span : spans) {
    if (span.begin == span.end) continue;
    Piece part;
    part.text = piece.text.substr(span.begin, span.end - span.begin);
    part.at_start = piece.at_start && span.begin == 0;
    out->push_back(part);
  }
}

}  // namespace quire::tokenizer
