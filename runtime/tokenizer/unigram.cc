#include "runtime/tokenizer/unigram.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "runtime/tokenizer/byte_trie.h"
#include "runtime/tokenizer/unicode.h"

namespace quire::tokenizer {
namespace {

constexpr double kUnknownPenalty = 10.0;

class Unigram : public Model {
 public:
  Unigram(const plan::TokenizerT& spec, const Vocabulary& vocabulary)
      : vocabulary_(vocabulary),
        scores_(spec.scores),
        unk_id_(spec.unk_id),
        byte_fallback_(spec.byte_fallback) {
    std::vector<std::pair<absl::string_view, int32_t>> entries;
    double lowest = HUGE_VAL;
    for (int32_t id = 0; id < vocabulary.size(); ++id) {
      const absl::string_view text = vocabulary.Text(id);
      if (text.empty()) continue;
      lowest = std::min(lowest, scores_[id]);
      if (vocabulary.Find(text) == id) entries.emplace_back(text, id);
    }
    unknown_score_ = lowest - kUnknownPenalty;
    trie_ = ByteTrie(entries);
  }

  void Encode(absl::string_view word, std::vector<int32_t>* ids) const override {
    // best[i]: the best segmentation of the first i bytes, by its last token.
    std::vector<Step> best(word.size() + 1);
    for (size_t begin = 0; begin < word.size(); begin += CharBytes(word[begin])) {
      Relax(word, begin, &best);
    }
    std::vector<std::pair<size_t, size_t>> tokens;  // byte ranges, last token first
    bool last_is_unknown = false;
    for (size_t end = word.size(); end > 0; end = best[end].begin) {
      const bool is_unknown = best[end].id == unk_id_;
      if (is_unknown && last_is_unknown) {
        tokens.back().first = best[end].begin;
      } else {
        tokens.emplace_back(best[end].begin, end);
      }
      last_is_unknown = is_unknown;
    }
    for (auto it = tokens.rbegin(); it != tokens.rend(); ++it) {
      Append(word.substr(it->first, it->second - it->first), ids);
    }
  }

 private:
  struct Step {
    double score = 0;
    size_t begin =
        SIZE_MAX;  // where the last token begins; SIZE_MAX while no segmentation is known
    int32_t id = kNoToken;
  };

  static void Offer(Step candidate, Step* step) {
    if (step->begin == SIZE_MAX || candidate.score > step->score) *step = candidate;
  }

  // Extends the best segmentation up to `begin` by every token that starts there.
  void Relax(absl::string_view word, size_t begin, std::vector<Step>* best) const {
    const double score = (*best)[begin].score;
    const size_t char_bytes = CharBytes(word[begin]);
    bool has_single_char = false;
    int32_t node = ByteTrie::Root();
    for (size_t end = begin; end < word.size();) {
      node = trie_.Child(node, static_cast<uint8_t>(word[end++]));
      if (node == ByteTrie::kNone) break;
      const int32_t id = trie_.Value(node);
      if (id == ByteTrie::kNone) continue;
      Offer({score + scores_[id], begin, id}, &(*best)[end]);
      has_single_char = has_single_char || end - begin == char_bytes;
    }
    if (!has_single_char)
      Offer({score + unknown_score_, begin, unk_id_}, &(*best)[begin + char_bytes]);
  }

  void Append(absl::string_view text, std::vector<int32_t>* ids) const {
    if (const int32_t id = vocabulary_.Find(text); id != kNoToken) {
      ids->push_back(id);
      return;
    }
    if (byte_fallback_ && std::all_of(text.begin(), text.end(), [&](char byte) {
          return vocabulary_.ByteToken(static_cast<uint8_t>(byte)) != kNoToken;
        })) {
      for (const char byte : text)
        ids->push_back(vocabulary_.ByteToken(static_cast<uint8_t>(byte)));
      return;
    }
    ids->push_back(unk_id_);
  }

  const Vocabulary& vocabulary_;
  std::vector<double> scores_;
  int32_t unk_id_;
  bool byte_fallback_;
  double unknown_score_;
  ByteTrie trie_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeUnigram(const plan::TokenizerT& spec,
                                                   const Vocabulary& vocabulary) {
  if (spec.scores.size() != static_cast<size_t>(vocabulary.size())) {
    return absl::InvalidArgumentError("unigram: scores do not cover the vocabulary");
  }
  for (const double score : spec.scores) {
    if (!std::isfinite(score)) return absl::InvalidArgumentError("unigram: a score is not finite");
  }
  if (spec.unk_id == kNoToken) {
    return absl::UnimplementedError(
        "unigram: a vocabulary without an unknown token is not supported");
  }
  return std::make_unique<Unigram>(spec, vocabulary);
}

}  // namespace quire::tokenizer
