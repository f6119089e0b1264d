// Splitting a piece on matches, in the ways that tokenizer files name.
#ifndef QUIRE_RUNTIME_TOKENIZER_SPLIT_H_
#define QUIRE_RUNTIME_TOKENIZER_SPLIT_H_

#include <vector>

#include "ir/plan_generated.h"
#include "runtime/tokenizer/piece.h"

namespace quire::tokenizer {

// Part of a text: a match, or what lies between two. The spans of a text cover it in order.
struct Span {
  size_t begin;
  size_t end;
  bool is_match;
};

// Appends the parts of `piece` that remain after `behavior` is applied to `spans`; empty ones are
// left out.
void AppendSplit(const Piece& piece, std::vector<Span> spans, plan::SplitBehavior behavior,
                 std::vector<Piece>* out);

// Collects matches, given left to right, into spans that cover a text of `text_bytes`.
class SpanBuilder {
 public:
  explicit SpanBuilder(size_t text_bytes) : text_bytes_(text_bytes) {}

  void AddMatch(size_t begin, size_t end) {
    if (begin > covered_) spans_.push_back({covered_, begin, false});
    spans_.push_back({begin, end, true});
    covered_ = end;
  }

  std::vector<Span> Finish() && {
    if (covered_ < text_bytes_) spans_.push_back({covered_, text_bytes_, false});
    return std::move(spans_);
  }

 private:
  size_t text_bytes_;
  size_t covered_ = 0;
  std::vector<Span> spans_;
};

}  // namespace quire::tokenizer

#endif  // QUIRE_RUNTIME_TOKENIZER_SPLIT_H_
