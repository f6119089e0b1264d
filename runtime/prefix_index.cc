#include "runtime/prefix_index.h"

namespace quire {

PrefixIndex::Entry PrefixIndex::Find(Node parent, absl::Span<const int32_t> ids) const {
  const auto found = entries_.find(KeyView(parent, ids));
  return found == entries_.end() ? Entry() : found->second;
}

PrefixIndex::Node PrefixIndex::Insert(Node parent, absl::Span<const int32_t> ids, int32_t page) {
  Key key(parent, {ids.begin(), ids.end()});
  keys_[page] = key;
  return (entries_[std::move(key)] = Entry{next_++, page}).node;
}

void PrefixIndex::Erase(int32_t page) {
  const auto found = keys_.find(page);
  if (found == keys_.end()) return;
  entries_.erase(found->second);
  keys_.erase(found);
}

}  // namespace quire
