#include "runtime/tokenizer/added_tokens.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ir/status.h"
#include "runtime/tokenizer/unicode.h"
#include "runtime/tokenizer/vocabulary.h"

namespace quire::tokenizer {
namespace {

bool StandsAlone(absl::string_view text, size_t begin, size_t end) {
  if (begin > 0 && IsWord(LastChar(text.substr(0, begin)))) return false;
  const char* after = text.data() + end;
  return end == text.size() || !IsWord(NextChar(&after));
}

}  // namespace

absl::StatusOr<AddedTokens> AddedTokens::Create(
    const plan::TokenizerT& spec, const std::vector<std::unique_ptr<Normalizer>>& normalizers) {
  AddedTokens added;
  std::vector<std::pair<absl::string_view, int32_t>> raw, normalized;
  std::vector<std::string> contents(spec.added_tokens.size());  // normalized
  // Of tokens with one content the special ones come first, then those that are listed first.
  std::vector<const plan::AddedTokenT*> order;
  for (const bool special : {true, false}) {
    for (const auto& token : spec.added_tokens) {
      if (token == nullptr) return absl::InvalidArgumentError("added tokens: an entry is missing");
      if (token->special == special) order.push_back(token.get());
    }
  }
  for (size_t i = 0; i < order.size(); ++i) {
    const absl::string_view content = order[i]->content;
    if (content.empty() || ValidUtf8Prefix(content) != content.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("added token ", order[i]->id, ": the content is empty or not UTF-8"));
    }
    if (order[i]->id >= static_cast<uint32_t>(std::numeric_limits<int32_t>::max())) {
      return absl::InvalidArgumentError(
          absl::StrCat("added token ", content, ": id ", order[i]->id));
    }
    added.tokens_.push_back(std::make_unique<const plan::AddedTokenT>(*order[i]));
    const plan::AddedTokenT& token = *added.tokens_.back();
    const auto id = static_cast<int32_t>(token.id);
    added.by_id_.emplace(id, &token);
    added.by_content_.emplace(token.content, &token);
    added.max_id_ = std::max(added.max_id_, id);
    if (!token.normalized) {
      raw.emplace_back(token.content, static_cast<int32_t>(i));
      continue;
    }
    contents[i] = token.content;
    bool at_start = true;
    for (const auto& normalizer : normalizers) {
      QUIRE_RETURN_IF_ERROR(normalizer->Apply(&contents[i], &at_start));
    }
    normalized.emplace_back(contents[i], static_cast<int32_t>(i));
  }
  const auto is_empty = [](const auto& entry) { return entry.first.empty(); };
  normalized.erase(std::remove_if(normalized.begin(), normalized.end(), is_empty),
                   normalized.end());
  added.raw_ = ByteTrie(raw);
  added.normalized_ = ByteTrie(normalized);
  return added;
}

void AddedTokens::SplitRaw(const Piece& piece, bool parse_special, std::vector<Piece>* out) const {
  Split(raw_, piece, parse_special, out);
}

void AddedTokens::SplitNormalized(const Piece& piece, bool parse_special,
                                  std::vector<Piece>* out) const {
  Split(normalized_, piece, parse_special, out);
}

void AddedTokens::Split(const ByteTrie& trie, const Piece& piece, bool parse_special,
                        std::vector<Piece>* out) const {
  const absl::string_view text = piece.text;
  size_t covered = 0;  // what precedes is in `out`
  const auto append_text = [&](size_t end) {
    if (covered >= end) return;
    out->push_back({text.substr(covered, end - covered), kNoToken, piece.at_start && covered == 0});
  };
  for (size_t at = 0; !trie.empty() && at < text.size();) {
    int32_t index = ByteTrie::kNone;
    size_t match_end = at;
    int32_t node = trie.Child(ByteTrie::Root(), static_cast<uint8_t>(text[at]));
    for (size_t end = at + 1; node != ByteTrie::kNone; ++end) {
      if (trie.Value(node) != ByteTrie::kNone) {
        index = trie.Value(node);
        match_end = end;
      }
      if (end == text.size()) break;
      node = trie.Child(node, static_cast<uint8_t>(text[end]));
    }
    if (index == ByteTrie::kNone) {
      ++at;
      continue;
    }
    const plan::AddedTokenT& token = *tokens_[index];
    const size_t begin = at;
    at = match_end;
    if (token.special && !parse_special) continue;
    if (token.single_word && !StandsAlone(text, begin, match_end)) continue;
    append_text(token.lstrip ? TrailingSpaceBegin(text.substr(0, begin)) : begin);
    covered = match_end;
    if (token.rstrip) covered += LeadingSpaceBytes(text.substr(match_end));
    out->push_back({absl::string_view(), static_cast<int32_t>(token.id), false});
  }
  append_text(text.size());
}

absl::string_view AddedTokens::Content(int32_t id) const {
  const auto it = by_id_.find(id);
  return it == by_id_.end() ? absl::string_view() : absl::string_view(it->second->content);
}

bool AddedTokens::IsSpecial(absl::string_view content) const {
  const auto it = by_content_.find(content);
  return it != by_content_.end() && it->second->special;
}

int32_t AddedTokens::Find(absl::string_view content) const {
  const auto it = by_content_.find(content);
  return it == by_content_.end() ? kNoToken : static_cast<int32_t>(it->second->id);
}

}  // namespace quire::tokenizer
