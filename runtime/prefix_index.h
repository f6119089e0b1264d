// Finds full pages by what they hold: a trie whose edges are the token ids of one page.
//
// A node stands for one prefix, that is for its page's tokens and all before them; keys and values
// of a page depend on exactly that. Look-ups compare ids, not hashes of them, so that a collision
// cannot show one request the cache of another. Node numbers are never used twice: children of an
// erased node become unreachable, and leave when their own pages do.
#ifndef QUIRE_RUNTIME_PREFIX_INDEX_H_
#define QUIRE_RUNTIME_PREFIX_INDEX_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/hash/hash.h"
#include "absl/types/span.h"

namespace quire {

class PrefixIndex {
 public:
  using Node = uint64_t;
  static constexpr Node kRoot = 0;
  // Further roots, which nothing else is a child or parent of.
  static constexpr Node RootOf(int64_t number) { return ~static_cast<Node>(number); }

  struct Entry {
    Node node = kRoot;
    int32_t page = -1;  // -1: none
  };

  // The page that holds `ids` after the prefix `parent`.
  Entry Find(Node parent, absl::Span<const int32_t> ids) const;
  // REQUIRES: Find() finds none, and `page` is not in the index.
  Node Insert(Node parent, absl::Span<const int32_t> ids, int32_t page);
  bool Has(int32_t page) const { return keys_.contains(page); }
  void Erase(int32_t page);
  size_t page_count() const { return keys_.size(); }

 private:
  using Key = std::pair<Node, std::vector<int32_t>>;
  using KeyView = std::pair<Node, absl::Span<const int32_t>>;
  // Keys are found by ids that are elsewhere, without a copy of them.
  struct KeyHash {
    using is_transparent = void;
    size_t operator()(const KeyView& key) const { return absl::HashOf(key.first, key.second); }
    size_t operator()(const Key& key) const { return (*this)(KeyView(key.first, key.second)); }
  };
  struct KeysAreEqual {
    using is_transparent = void;
    template <typename A, typename B>
    bool operator()(const A& a, const B& b) const {
      return a.first == b.first && absl::MakeConstSpan(a.second) == absl::MakeConstSpan(b.second);
    }
  };
  absl::flat_hash_map<Key, Entry, KeyHash, KeysAreEqual> entries_;
  absl::flat_hash_map<int32_t, Key> keys_;  // of each page
  Node next_ = 1;
};

}  // namespace quire

#endif  // QUIRE_RUNTIME_PREFIX_INDEX_H_
