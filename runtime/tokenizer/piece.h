// A piece of the text on its way through the tokenizer: words to be, and added tokens already
// found.
#ifndef QUIRE_RUNTIME_TOKENIZER_PIECE_H_
#define QUIRE_RUNTIME_TOKENIZER_PIECE_H_

#include <cstdint>
#include <deque>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"

namespace quire::tokenizer {

struct Piece {
  absl::string_view text;
  int32_t id = -1;        // an added token, not to be split further; -1 for text
  bool at_start = false;  // its first character comes from the first character of the input
};

// Text that steps make, at addresses that stay.
class TextArena {
 public:
  absl::string_view Add(std::string text) { return texts_.emplace_back(std::move(text)); }

 private:
  std::deque<std::string> texts_;
};

}  // namespace quire::tokenizer

#endif  // QUIRE_RUNTIME_TOKENIZER_PIECE_H_
