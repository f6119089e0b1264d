// Text to token ids and back, for one model.
//
// Encoding follows the Hugging Face tokenizers package: for tokenizer.json data the ids are the
// same. Text need not be valid UTF-8: each maximal invalid part of a character counts as one
// U+FFFD, as Python's errors="replace" does.
//
// Decoding returns valid UTF-8: bytes that are not become U+FFFD. Ids without a token are skipped.
//
// Threads: a Tokenizer is immutable, and may be used by several at once. A StreamDecoder belongs to
// one. Errors:  Create: INVALID_ARGUMENT when the data contradicts itself, UNIMPLEMENTED when it
// asks for what is not
//          supported; the message starts with the field, such as pre_tokenizers[1].
//          Encode: RESOURCE_EXHAUSTED when the text has 2^31 bytes, or a split pattern backtracks
//          beyond bounds.
#ifndef QUIRE_RUNTIME_TOKENIZER_TOKENIZER_H_
#define QUIRE_RUNTIME_TOKENIZER_TOKENIZER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "ir/plan_generated.h"

namespace quire {

struct EncodeOptions {
  bool add_special = true;    // put bos, eos and the like around the text, as the model wants
  bool parse_special = true;  // text that spells a special token becomes that token
};

class Tokenizer {
 public:
  static absl::StatusOr<Tokenizer> Create(const plan::TokenizerT& data);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  absl::StatusOr<std::vector<int32_t>> Encode(absl::string_view text,
                                              EncodeOptions options = {}) const;

  std::string Decode(absl::Span<const int32_t> ids, bool skip_special = true) const;

  // One more than the greatest id.
  int32_t vocab_size() const;

  // The text of `id` as the vocabulary spells it ("Ġthe", "<0x0A>"); empty if there is no such
  // token.
  absl::string_view TokenText(int32_t id) const;

  // The id of a token spelt so, or -1.
  int32_t TokenId(absl::string_view text) const;

  // By its text: of two ids that are spelt alike, both are special or neither.
  bool IsSpecial(int32_t id) const;

  // -1 where the model has none.
  int32_t bos_id() const;
  int32_t eos_id() const;
  int32_t pad_id() const;

  // A Jinja template, or empty.
  absl::string_view chat_template() const;

 private:
  friend class StreamDecoder;
  struct Impl;
  explicit Tokenizer(std::unique_ptr<const Impl> impl);

  std::unique_ptr<const Impl> impl_;
};

// Decodes ids as they come. The texts returned by Push and Finish, concatenated, are what
// Tokenizer::Decode returns for all ids; none ends inside a character. What a later id may still
// change is held back.
class StreamDecoder {
 public:
  // `tokenizer` must outlive the decoder.
  explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special = true);
  StreamDecoder(StreamDecoder&&) noexcept;
  StreamDecoder& operator=(StreamDecoder&&) noexcept;
  ~StreamDecoder();

  std::string Push(int32_t id);
  std::string Finish();  // no Push may follow

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace quire

#endif  // QUIRE_RUNTIME_TOKENIZER_TOKENIZER_H_
