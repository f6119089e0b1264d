#include "models/import/tokenizer_vocab.h"

#include <limits>

#include "absl/strings/str_cat.h"

namespace quire {

absl::Status StoreVocabulary(const std::vector<absl::string_view>& texts, plan::TokenizerT* out) {
  out->token_bytes.clear();
  out->token_ends.clear();
  out->token_ends.reserve(texts.size());
  for (const absl::string_view text : texts) {
    if (text.size() > std::numeric_limits<uint32_t>::max() - out->token_bytes.size()) {
      return absl::InvalidArgumentError("vocabulary: more than 2^32 bytes of text");
    }
    out->token_bytes.insert(out->token_bytes.end(), text.begin(), text.end());
    out->token_ends.push_back(static_cast<uint32_t>(out->token_bytes.size()));
  }
  return absl::OkStatus();
}

MergeBuilder::MergeBuilder(const std::vector<absl::string_view>& texts) {
  ids_.reserve(texts.size());
  for (size_t id = 0; id < texts.size(); ++id) {
    if (!texts[id].empty()) ids_[texts[id]] = static_cast<uint32_t>(id);
  }
}

int64_t MergeBuilder::Find(absl::string_view text) const {
  const auto it = ids_.find(text);
  return it == ids_.end() ? -1 : int64_t{it->second};
}

absl::Status MergeBuilder::Add(absl::string_view left_space_right, plan::TokenizerT* out) const {
  const size_t space = left_space_right.find(' ');
  if (space == absl::string_view::npos ||
      left_space_right.find(' ', space + 1) != absl::string_view::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", left_space_right, "\" is not two tokens and one space"));
  }
  return Add(left_space_right.substr(0, space), left_space_right.substr(space + 1), out);
}

absl::Status MergeBuilder::Add(absl::string_view left, absl::string_view right,
                               plan::TokenizerT* out) const {
  const std::string merged = absl::StrCat(left, right);
  for (const absl::string_view text : {left, right, absl::string_view(merged)}) {
    const int64_t id = Find(text);
    if (id < 0)
      return absl::InvalidArgumentError(absl::StrCat("\"", text, "\" is not in the vocabulary"));
    out->merges.push_back(static_cast<uint32_t>(id));
  }
  return absl::OkStatus();
}

}  // namespace quire
