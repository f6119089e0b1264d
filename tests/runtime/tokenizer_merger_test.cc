#include <map>
#include <random>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/tokenizer/merger.h"

namespace quire::tokenizer {
namespace {

class PairMap {
 public:
  std::map<std::pair<int32_t, int32_t>, MergedPair> pairs;
  bool Find(const Symbol& left, const Symbol& right, MergedPair* pair) const {
    const auto it = pairs.find({left.id, right.id});
    if (it == pairs.end()) return false;
    *pair = it->second;
    return true;
  }
};

// The definition: merge the leftmost pair of the lowest rank, until there is none.
std::vector<int32_t> MergeByDefinition(const PairMap& map, std::vector<int32_t> ids) {
  while (true) {
    size_t best = ids.size();
    MergedPair merged{UINT32_MAX, -1};
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      const auto it = map.pairs.find({ids[i], ids[i + 1]});
      if (it != map.pairs.end() && it->second.rank < merged.rank) {
        merged = it->second;
        best = i;
      }
    }
    if (best == ids.size()) return ids;
    ids[best] = merged.id;
    ids.erase(ids.begin() + static_cast<ptrdiff_t>(best) + 1);
  }
}

// A random vocabulary over `letters` letters, in which every merge makes a token of its own.
PairMap RandomMerges(int letters, int merges, std::mt19937* random) {
  PairMap map;
  int32_t next = letters;
  for (uint32_t rank = 0; rank < static_cast<uint32_t>(merges); ++rank) {
    std::uniform_int_distribution<int32_t> id(0, next - 1);
    if (map.pairs.emplace(std::make_pair(id(*random), id(*random)), MergedPair{rank, next}).second)
      ++next;
  }
  return map;
}

TEST(TokenizerMergerTest, EqualsTheDefinition) {
  std::mt19937 random(5);
  for (int round = 0; round < 400; ++round) {
    const int letters = 2 + round % 4;
    const PairMap map = RandomMerges(letters, 3 + round % 40, &random);
    for (const size_t symbols : {0, 1, 2, 3, 7, 31, 32, 33, 34, 90, 300}) {
      std::uniform_int_distribution<int32_t> letter(0, letters - 1);
      std::vector<int32_t> ids(symbols);
      for (int32_t& id : ids) id = letter(random);
      std::vector<Symbol> word;
      for (size_t i = 0; i < symbols; ++i) word.push_back({ids[i], static_cast<uint32_t>(i), 1});
      Merger<PairMap>(map).Run(&word);
      std::vector<int32_t> merged;
      uint32_t covered = 0;
      for (const Symbol& symbol : word) {
        merged.push_back(symbol.id);
        ASSERT_EQ(symbol.begin, covered);
        covered += symbol.bytes;
      }
      ASSERT_EQ(covered, symbols);
      ASSERT_EQ(merged, MergeByDefinition(map, ids))
          << "round " << round << ", " << symbols << " symbols";
    }
  }
}

}  // namespace
}  // namespace quire::tokenizer
