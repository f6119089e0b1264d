// Added tokens: strings that become one id before the model sees the text.
//
// At each place the longest token counts, places are tried left to right, and a match that is
// discarded (a special token that is not to be parsed, a token inside a word that must stand alone)
// hides the shorter ones inside it.
#ifndef QUIRE_RUNTIME_TOKENIZER_ADDED_TOKENS_H_
#define QUIRE_RUNTIME_TOKENIZER_ADDED_TOKENS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ir/plan_generated.h"
#include "runtime/tokenizer/byte_trie.h"
#include "runtime/tokenizer/normalizer.h"
#include "runtime/tokenizer/piece.h"

namespace quire::tokenizer {

class AddedTokens {
 public:
  // `normalizers` rewrite the content of tokens that match in normalized text.
  static absl::StatusOr<AddedTokens> Create(
      const plan::TokenizerT& spec, const std::vector<std::unique_ptr<Normalizer>>& normalizers);

  AddedTokens(AddedTokens&&) noexcept = default;
  AddedTokens& operator=(AddedTokens&&) noexcept = default;
  AddedTokens(const AddedTokens&) = delete;  // the maps point into tokens_
  AddedTokens& operator=(const AddedTokens&) = delete;

  // Appends the tokens found in `piece`, and the text between them.
  void SplitRaw(const Piece& piece, bool parse_special, std::vector<Piece>* out) const;
  void SplitNormalized(const Piece& piece, bool parse_special, std::vector<Piece>* out) const;

  bool has_normalized() const { return !normalized_.empty(); }

  // The content of `id`, or empty if it is not an added token.
  absl::string_view Content(int32_t id) const;
  bool IsSpecial(absl::string_view content) const;
  int32_t Find(absl::string_view content) const;  // kNoToken if there is none
  int32_t max_id() const { return max_id_; }      // -1 if there is none

 private:
  AddedTokens() = default;
  void Split(const ByteTrie& trie, const Piece& piece, bool parse_special,
             std::vector<Piece>* out) const;

  std::vector<std::unique_ptr<const plan::AddedTokenT>> tokens_;
  absl::flat_hash_map<int32_t, const plan::AddedTokenT*> by_id_;
  absl::flat_hash_map<absl::string_view, const plan::AddedTokenT*> by_content_;
  ByteTrie raw_;  // values are indices of tokens_
  ByteTrie normalized_;
  int32_t max_id_ = -1;
};

}  // namespace quire::tokenizer

#endif  // QUIRE_RUNTIME_TOKENIZER_ADDED_TOKENS_H_
