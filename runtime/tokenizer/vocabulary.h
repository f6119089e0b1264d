// The model's vocabulary: texts of ids, ids of texts. Added tokens that the model does not have are
// not in it.
#ifndef QUIRE_RUNTIME_TOKENIZER_VOCABULARY_H_
#define QUIRE_RUNTIME_TOKENIZER_VOCABULARY_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ir/plan_generated.h"

namespace quire::tokenizer {

inline constexpr int32_t kNoToken = -1;

class Vocabulary {
 public:
  // Errors: INVALID_ARGUMENT when texts are not in order, not UTF-8, or too many.
  static absl::StatusOr<Vocabulary> Create(const plan::TokenizerT& spec);

  Vocabulary(Vocabulary&&) noexcept = default;
  Vocabulary& operator=(Vocabulary&&) noexcept = default;
  Vocabulary(const Vocabulary&) = delete;  // ids_ points into bytes_
  Vocabulary& operator=(const Vocabulary&) = delete;

  int32_t size() const { return static_cast<int32_t>(ends_.size()); }

  // Empty for an id that the model does not have. REQUIRES: 0 <= id < size().
  absl::string_view Text(int32_t id) const {
    const uint32_t begin = id == 0 ? 0 : ends_[id - 1];
    return absl::string_view(bytes_.data() + begin, ends_[id] - begin);
  }

  // The id of `text`, or kNoToken. Of two ids with one text the last counts.
  int32_t Find(absl::string_view text) const {
    const auto it = ids_.find(text);
    return it == ids_.end() ? kNoToken : it->second;
  }

  // The id of the token <0xXX> that stands for `byte`, or kNoToken.
  int32_t ByteToken(uint8_t byte) const { return byte_tokens_[byte]; }

 private:
  Vocabulary() = default;

  std::vector<char> bytes_;  // a vector, since moving it keeps addresses
  std::vector<uint32_t> ends_;
  absl::flat_hash_map<absl::string_view, int32_t> ids_;
  std::array<int32_t, 256> byte_tokens_;
};

}  // namespace quire::tokenizer

#endif  // QUIRE_RUNTIME_TOKENIZER_VOCABULARY_H_
