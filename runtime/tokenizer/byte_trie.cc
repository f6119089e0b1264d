#include "runtime/tokenizer/byte_trie.h"

#include <algorithm>

namespace quire::tokenizer {

ByteTrie::ByteTrie(const std::vector<std::pair<absl::string_view, int32_t>>& strings) {
  struct Entry {
    absl::string_view text;
    size_t order;
    int32_t value;
  };
  std::vector<Entry> entries;
  entries.reserve(strings.size());
  for (const auto& [text, value] : strings) entries.push_back({text, entries.size(), value});
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return a.text != b.text ? a.text < b.text : a.order < b.order;
  });
  // Breadth first, so that the children of a node are appended together. Work item i describes node
  // i: the sorted entries [begin, end) share the node's `depth` leading bytes.
  struct Item {
    size_t begin, end, depth;
  };
  std::vector<Item> items = {{0, entries.size(), 0}};
  nodes_.resize(1);
  for (size_t node = 0; node < items.size(); ++node) {
    auto [begin, end, depth] = items[node];
    while (begin < end && entries[begin].text.size() == depth) {
      if (depth > 0 && nodes_[node].value == kNone) nodes_[node].value = entries[begin].value;
      ++begin;
    }
    nodes_[node].first_child = static_cast<int32_t>(nodes_.size());
    while (begin < end) {
      const auto label = static_cast<uint8_t>(entries[begin].text[depth]);
      size_t stop = begin + 1;
      while (stop < end && static_cast<uint8_t>(entries[stop].text[depth]) == label) ++stop;
      Node child;
      child.label = label;
      nodes_.push_back(child);
      ++nodes_[node].child_count;
      items.push_back({begin, stop, depth + 1});
      begin = stop;
    }
  }
  std::fill(std::begin(root_children_), std::end(root_children_), kNone);
  for (int32_t i = 0; i < nodes_[0].child_count; ++i) {
    const int32_t child = nodes_[0].first_child + i;
    root_children_[nodes_[child].label] = child;
  }
}

}  // namespace quire::tokenizer
