// A read-only trie over byte strings: every stored string that starts at a place in a text, in one
// walk.
#ifndef QUIRE_RUNTIME_TOKENIZER_BYTE_TRIE_H_
#define QUIRE_RUNTIME_TOKENIZER_BYTE_TRIE_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace quire::tokenizer {

class ByteTrie {
 public:
  static constexpr int32_t kNone = -1;

  ByteTrie() : ByteTrie(std::vector<std::pair<absl::string_view, int32_t>>()) {}

  // Of equal strings the first counts. Values are not negative; empty strings are left out.
  explicit ByteTrie(const std::vector<std::pair<absl::string_view, int32_t>>& strings);

  static constexpr int32_t Root() { return 0; }

  // The node reached from `node` by `byte`, or kNone.
  int32_t Child(int32_t node, uint8_t byte) const {
    if (node == 0) return root_children_[byte];
    const Node& from = nodes_[node];
    for (int32_t i = 0; i < from.child_count; ++i) {
      if (nodes_[from.first_child + i].label == byte) return from.first_child + i;
    }
    return kNone;
  }

  // The value of the string that ends at `node`, or kNone.
  int32_t Value(int32_t node) const { return nodes_[node].value; }

  bool CanStartWith(uint8_t byte) const { return root_children_[byte] != kNone; }
  bool empty() const { return nodes_.size() == 1; }

 private:
  struct Node {
    int32_t first_child = 0;
    int32_t value = kNone;
    uint16_t child_count = 0;
    uint8_t label = 0;
  };
  std::vector<Node> nodes_;  // siblings are adjacent
  int32_t root_children_[256];
};

}  // namespace quire::tokenizer

#endif  // QUIRE_RUNTIME_TOKENIZER_BYTE_TRIE_H_
