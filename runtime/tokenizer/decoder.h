// Decoders: stages that turn token texts into text, one token at a time.
//
// Stages form a chain; each passes on what later tokens cannot change and holds back the rest. A
// token may pass between stages in several chunks, the last of which is marked, so that a stage
// that joins tokens (kFuse, kByteLevel) need not hold the whole output back.
#ifndef QUIRE_RUNTIME_TOKENIZER_DECODER_H_
#define QUIRE_RUNTIME_TOKENIZER_DECODER_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "ir/plan_generated.h"

namespace quire::tokenizer {

class DecodeStage {
 public:
  virtual ~DecodeStage() = default;

  // The next chunk of a token; `ends_token` if it is the token's last. Chunks are whole characters.
  virtual void Push(absl::string_view text, bool ends_token) = 0;

  // No token follows.
  virtual void Finish() = 0;
};

// A chain of the stages of `specs` that appends to `*out`.
class DecodeChain {
 public:
  // REQUIRES: CheckDecoders(specs) is OK.
  DecodeChain(const std::vector<std::unique_ptr<plan::TokenDecoderT>>& specs, std::string* out);

  void Push(absl::string_view token) { stages_.back()->Push(token, /*ends_token=*/true); }
  void Finish() { stages_.back()->Finish(); }

 private:
  std::vector<std::unique_ptr<DecodeStage>> stages_;  // last first
};

// Errors: INVALID_ARGUMENT and UNIMPLEMENTED as for normalizers.
absl::Status CheckDecoders(const std::vector<std::unique_ptr<plan::TokenDecoderT>>& specs);

}  // namespace quire::tokenizer

#endif  // QUIRE_RUNTIME_TOKENIZER_DECODER_H_
