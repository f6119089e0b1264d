// Normalizers: steps that rewrite text before it is cut into words.
#ifndef QUIRE_RUNTIME_TOKENIZER_NORMALIZER_H_
#define QUIRE_RUNTIME_TOKENIZER_NORMALIZER_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ir/plan_generated.h"

namespace quire::tokenizer {

class Normalizer {
 public:
  virtual ~Normalizer() = default;

  // Rewrites `text`, valid UTF-8, in place. Clears `*at_start` if the first character is dropped
  // and nothing takes its place: what follows did not start the input. (A charsmap never does, as
  // in the reference.)
  virtual absl::Status Apply(std::string* text, bool* at_start) const = 0;
};

// Errors: those of Regex::Compile; INVALID_ARGUMENT on a kind out of range, or a malformed
// charsmap.
absl::StatusOr<std::unique_ptr<Normalizer>> MakeNormalizer(const plan::NormalizerT& spec);

}  // namespace quire::tokenizer

#endif  // QUIRE_RUNTIME_TOKENIZER_NORMALIZER_H_
