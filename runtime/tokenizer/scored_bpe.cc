#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "runtime/tokenizer/bpe.h"
#include "runtime/tokenizer/merger.h"
#include "runtime/tokenizer/unicode.h"

namespace quire::tokenizer {
namespace {

// Adjacent pieces merge if their text together is a token; a better score merges first.
class ScoredPairs {
 public:
  ScoredPairs(const Vocabulary& vocabulary, const std::vector<uint32_t>& ranks,
              absl::string_view word)
      : vocabulary_(vocabulary), ranks_(ranks), word_(word) {}

  bool Find(const Symbol& left, const Symbol& right, MergedPair* pair) const {
    pair->id = vocabulary_.Find(word_.substr(left.begin, left.bytes + right.bytes));
    if (pair->id == kNoToken) return false;
    pair->rank = ranks_[pair->id];
    return true;
  }

 private:
  const Vocabulary& vocabulary_;
  const std::vector<uint32_t>& ranks_;
  absl::string_view word_;
};

class ScoredBpe : public Model {
 public:
  ScoredBpe(const plan::TokenizerT& spec, const Vocabulary& vocabulary)
      : vocabulary_(vocabulary), unk_id_(spec.unk_id), byte_fallback_(spec.byte_fallback) {
    std::vector<int32_t> order(spec.scores.size());
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(),
              [&](int32_t a, int32_t b) { return spec.scores[a] > spec.scores[b]; });
    ranks_.resize(order.size());
    uint32_t rank = 0;
    for (size_t i = 0; i < order.size(); ++i) {
      if (i > 0 && spec.scores[order[i]] != spec.scores[order[i - 1]]) ++rank;
      ranks_[order[i]] = rank;
    }
  }

  void Encode(absl::string_view word, std::vector<int32_t>* ids) const override {
    std::vector<Symbol> symbols;
    symbols.reserve(word.size());
    for (uint32_t begin = 0; begin < word.size();) {
      const auto bytes = static_cast<uint32_t>(CharBytes(word[begin]));
      symbols.push_back({vocabulary_.Find(word.substr(begin, bytes)), begin, bytes});
      begin += bytes;
    }
    const ScoredPairs pairs(vocabulary_, ranks_, word);
    Merger<ScoredPairs>(pairs).Run(&symbols);
    for (const Symbol& symbol : symbols) {
      if (symbol.id != kNoToken) {
        ids->push_back(symbol.id);
      } else {
        AppendUnknown(word.substr(symbol.begin, symbol.bytes), ids);
      }
    }
  }

 private:
  void AppendUnknown(absl::string_view text, std::vector<int32_t>* ids) const {
    const size_t before = ids->size();
    bool has_bytes = byte_fallback_;
    for (const char byte : text) {
      const int32_t id = vocabulary_.ByteToken(static_cast<uint8_t>(byte));
      has_bytes = has_bytes && id != kNoToken;
      ids->push_back(id);
    }
    if (has_bytes) return;
    ids->resize(before);
    if (unk_id_ != kNoToken) ids->push_back(unk_id_);
  }

  const Vocabulary& vocabulary_;
  std::vector<uint32_t> ranks_;
  int32_t unk_id_;
  bool byte_fallback_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeScoredBpe(const plan::TokenizerT& spec,
                                                     const Vocabulary& vocabulary) {
  if (spec.scores.size() != static_cast<size_t>(vocabulary.size())) {
    return absl::InvalidArgumentError("scored bpe: scores do not cover the vocabulary");
  }
  for (const double score : spec.scores) {
    if (std::isnan(score)) return absl::InvalidArgumentError("scored bpe: a score is not a number");
  }
  return std::make_unique<ScoredBpe>(spec, vocabulary);
}

}  // namespace quire::tokenizer
