// Building the vocabulary and merges of the plan's tokenizer from texts.
#ifndef QUIRE_MODELS_IMPORT_TOKENIZER_VOCAB_H_
#define QUIRE_MODELS_IMPORT_TOKENIZER_VOCAB_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "ir/plan_generated.h"

namespace quire {

// Stores texts[id] for every id; an empty text is an id that the model does not have.
absl::Status StoreVocabulary(const std::vector<absl::string_view>& texts, plan::TokenizerT* out);

// Resolves merges against a vocabulary and stores them.
class MergeBuilder {
 public:
  // `texts` must outlive the builder. Of two ids with one text the last counts.
  explicit MergeBuilder(const std::vector<absl::string_view>& texts);

  // The id of `text`, or -1.
  int64_t Find(absl::string_view text) const;

  // Adds "left right": INVALID_ARGUMENT unless it is two tokens that together are a token.
  absl::Status Add(absl::string_view left_space_right, plan::TokenizerT* out) const;
  absl::Status Add(absl::string_view left, absl::string_view right, plan::TokenizerT* out) const;

 private:
  absl::flat_hash_map<absl::string_view, uint32_t> ids_;
};

}  // namespace quire

#endif  // QUIRE_MODELS_IMPORT_TOKENIZER_VOCAB_H_
