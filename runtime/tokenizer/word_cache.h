// A small cache of the ids of words, for text repeats its words.
//
// Fixed in size, direct-mapped: a word replaces the one in its slot. Long words and words of many
// ids stay out. Threads: one at a time.
#ifndef QUIRE_RUNTIME_TOKENIZER_WORD_CACHE_H_
#define QUIRE_RUNTIME_TOKENIZER_WORD_CACHE_H_

#include <cstdint>
#include <cstring>
#include <vector>

#include "absl/strings/string_view.h"

namespace quire::tokenizer {

class WordCache {
 public:
  static constexpr size_t kMaxWordBytes = 23;
  static constexpr size_t kMaxIds = 9;

  WordCache() : entries_(kEntries) {}

  // Appends the ids of `word` and returns true, if they are here.
  bool Find(absl::string_view word, std::vector<int32_t>* ids) const {
    if (word.size() > kMaxWordBytes) return false;
    const Key key = MakeKey(word);
    const Entry& entry = entries_[Slot(key)];
    if (entry.count == 0 || !(entry.key == key)) return false;
    ids->insert(ids->end(), entry.ids, entry.ids + entry.count);
    return true;
  }

  void Add(absl::string_view word, const int32_t* ids, size_t count) {
    if (word.size() > kMaxWordBytes || count > kMaxIds) return;
    const Key key = MakeKey(word);
    Entry& entry = entries_[Slot(key)];
    entry.key = key;
    entry.count = static_cast<uint32_t>(count);
    std::memcpy(entry.ids, ids, count * sizeof(*ids));
  }

 private:
  static constexpr int kBits = 13;
  static constexpr size_t kEntries = size_t{1} << kBits;

  // The word, zero-padded, and its length in the last byte.
  struct Key {
    uint64_t parts[3];
    bool operator==(const Key& other) const {
      return parts[0] == other.parts[0] && parts[1] == other.parts[1] && parts[2] == other.parts[2];
    }
  };
  struct Entry {
    Key key;
    uint32_t count = 0;
    int32_t ids[kMaxIds];
  };

  static Key MakeKey(absl::string_view word) {
    char bytes[24] = {};
    std::memcpy(bytes, word.data(), word.size());
    bytes[23] = static_cast<char>(word.size());
    Key key;
    std::memcpy(key.parts, bytes, sizeof(bytes));
    return key;
  }

  static size_t Slot(const Key& key) {
    uint64_t hash = key.parts[0] * 0x9e3779b97f4a7c15u;
    hash = (hash ^ hash >> 29 ^ key.parts[1]) * 0xbf58476d1ce4e5b9u;
    hash = (hash ^ hash >> 29 ^ key.parts[2]) * 0x94d049bb133111ebu;
    return static_cast<size_t>(hash >> (64 - kBits));
  }

  std::vector<Entry> entries_;
};

}  // namespace quire::tokenizer

#endif  // QUIRE_RUNTIME_TOKENIZER_WORD_CACHE_H_
