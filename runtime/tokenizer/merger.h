// The merging of adjacent symbols, best pair first: the heart of byte-pair encoding.
//
// `Pairs` says what a pair of adjacent symbols becomes:
//   bool Find(const Symbol& left, const Symbol& right, MergedPair* pair) const
// Lower ranks merge first; of equal ranks the leftmost. Time is O(n log n).
#ifndef QUIRE_RUNTIME_TOKENIZER_MERGER_H_
#define QUIRE_RUNTIME_TOKENIZER_MERGER_H_

#include <algorithm>
#include <cstdint>
#include <vector>

namespace quire::tokenizer {

// A symbol of the word: bytes [begin, begin + bytes), with bytes = 0 once it is merged into its
// left neighbour.
struct Symbol {
  int32_t id;
  uint32_t begin;
  uint32_t bytes;
};

struct MergedPair {
  uint32_t rank;
  int32_t id;
};

// Merges until no pair is found. What remains is moved to the front of `symbols`, which is cut to
// it.
template <typename Pairs>
class Merger {
 public:
  explicit Merger(const Pairs& pairs) : pairs_(pairs) {}

  void Run(std::vector<Symbol>* symbols) {
    if (symbols->size() <= kShortWordSymbols) {
      RunShort(symbols);
    } else {
      RunLong(symbols);
    }
  }

 private:
  // Words of natural text: a scan for the best pair beats a heap.
  static constexpr size_t kShortWordSymbols = 32;
  static constexpr uint32_t kNoRank = UINT32_MAX;

  struct Candidate {
    uint32_t rank;
    uint32_t left;  // index of the left symbol
    int32_t id;
    uint32_t bytes;  // of both symbols; a candidate is stale when they no longer have as many
  };

  MergedPair Lookup(const Symbol& left, const Symbol& right) const {
    MergedPair pair;
    return pairs_.Find(left, right, &pair) ? pair : MergedPair{kNoRank, -1};
  }

  void RunShort(std::vector<Symbol>* word) const {
    Symbol* const symbols = word->data();
    size_t count = word->size();
    MergedPair next[kShortWordSymbols];  // next[i]: what symbols i and i + 1 become
    for (size_t i = 0; i + 1 < count; ++i) next[i] = Lookup(symbols[i], symbols[i + 1]);
    while (count > 1) {
      size_t best = 0;
      for (size_t i = 1; i + 1 < count; ++i) {
        if (next[i].rank < next[best].rank) best = i;
      }
      if (next[best].rank == kNoRank) break;
      symbols[best].id = next[best].id;
      symbols[best].bytes += symbols[best + 1].bytes;
      std::copy(symbols + best + 2, symbols + count, symbols + best + 1);
      if (best + 2 < count) std::copy(next + best + 2, next + count - 1, next + best + 1);
      --count;
      if (best > 0) next[best - 1] = Lookup(symbols[best - 1], symbols[best]);
      if (best + 1 < count) next[best] = Lookup(symbols[best], symbols[best + 1]);
    }
    word->resize(count);
  }

  void RunLong(std::vector<Symbol>* word) {
    std::vector<Symbol>& symbols = *word;
    const auto count = static_cast<uint32_t>(symbols.size());
    before_.resize(count);
    after_.resize(count);
    candidates_.clear();
    for (uint32_t i = 0; i < count; ++i) {
      before_[i] = i - 1;  // of the first: never read
      after_[i] = i + 1;
      if (i + 1 < count) AddCandidate(symbols, i, i + 1);
    }
    std::make_heap(candidates_.begin(), candidates_.end(), Later);
    while (!candidates_.empty()) {
      std::pop_heap(candidates_.begin(), candidates_.end(), Later);
      const Candidate top = candidates_.back();
      candidates_.pop_back();
      const uint32_t left = top.left;
      const uint32_t right = after_[left];
      if (symbols[left].bytes == 0 || right == count) continue;
      if (symbols[left].bytes + symbols[right].bytes != top.bytes) continue;
      symbols[left].id = top.id;
      symbols[left].bytes = top.bytes;
      symbols[right].bytes = 0;
      after_[left] = after_[right];
      if (after_[left] < count) {
        before_[after_[left]] = left;
        PushCandidate(symbols, left, after_[left]);
      }
      if (left > 0) PushCandidate(symbols, before_[left], left);
    }
    symbols.erase(std::remove_if(symbols.begin(), symbols.end(),
                                 [](const Symbol& s) { return s.bytes == 0; }),
                  symbols.end());
  }

  static bool Later(const Candidate& a, const Candidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.left > b.left;
  }

  bool AddCandidate(const std::vector<Symbol>& symbols, uint32_t left, uint32_t right) {
    const MergedPair pair = Lookup(symbols[left], symbols[right]);
    if (pair.rank == kNoRank) return false;
    candidates_.push_back({pair.rank, left, pair.id, symbols[left].bytes + symbols[right].bytes});
    return true;
  }

  void PushCandidate(const std::vector<Symbol>& symbols, uint32_t left, uint32_t right) {
    if (AddCandidate(symbols, left, right)) {
      std::push_heap(candidates_.begin(), candidates_.end(), Later);
    }
  }

  const Pairs& pairs_;
  std::vector<uint32_t> before_;
  std::vector<uint32_t> after_;
  std::vector<Candidate> candidates_;
};

}  // namespace quire::tokenizer

#endif  // QUIRE_RUNTIME_TOKENIZER_MERGER_H_
