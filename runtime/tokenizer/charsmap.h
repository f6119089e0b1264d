// The precompiled character map of SentencePiece models: a double-array trie from UTF-8 sequences
// to replacements.
//
// Layout: u32 trie bytes, the trie's u32 units, then replacements, each ended by a zero byte. All
// little-endian. Source: the unit's bit fields are those of the darts-clone double array.
#ifndef QUIRE_RUNTIME_TOKENIZER_CHARSMAP_H_
#define QUIRE_RUNTIME_TOKENIZER_CHARSMAP_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/tokenizer/normalizer.h"

namespace quire::tokenizer {

// A normalizer that maps grapheme clusters of fewer than six bytes, or else their characters one by
// one.
absl::StatusOr<std::unique_ptr<Normalizer>> MakeCharsmap(const std::vector<uint8_t>& charsmap);

}  // namespace quire::tokenizer

#endif  // QUIRE_RUNTIME_TOKENIZER_CHARSMAP_H_
