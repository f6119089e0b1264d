#include "runtime/tokenizer/vocabulary.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/tokenizer/unicode.h"

namespace quire::tokenizer {

absl::StatusOr<Vocabulary> Vocabulary::Create(const plan::TokenizerT& spec) {
  if (spec.token_ends.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    return absl::InvalidArgumentError("vocabulary: too many tokens");
  }
  Vocabulary vocabulary;
  vocabulary.bytes_.assign(spec.token_bytes.begin(), spec.token_bytes.end());
  vocabulary.ends_ = spec.token_ends;
  vocabulary.ids_.reserve(spec.token_ends.size());
  uint32_t begin = 0;
  for (size_t id = 0; id < spec.token_ends.size(); ++id) {
    const uint32_t end = spec.token_ends[id];
    if (end < begin || end > spec.token_bytes.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("vocabulary: the text of token ", id, " ends at ", end));
    }
    const absl::string_view text(vocabulary.bytes_.data() + begin, end - begin);
    if (ValidUtf8Prefix(text) != text.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("vocabulary: the text of token ", id, " is not UTF-8"));
    }
    if (!text.empty()) vocabulary.ids_[text] = static_cast<int32_t>(id);
    begin = end;
  }
  for (int byte = 0; byte < 256; ++byte) {
    vocabulary.byte_tokens_[byte] = vocabulary.Find(absl::StrFormat("<0x%02X>", byte));
  }
  return vocabulary;
}

}  // namespace quire::tokenizer
