#include "ir/fingerprint.h"

#include <xxhash.h>

#include <algorithm>

namespace quire {

uint64_t Fingerprint(absl::Span<const uint8_t> file) {
  constexpr size_t kEndBytes = size_t{64} << 10;
  const size_t end_bytes = std::min(file.size(), kEndBytes);
  const uint64_t first = XXH3_64bits_withSeed(file.data(), end_bytes, file.size());
  return XXH3_64bits_withSeed(file.data() + (file.size() - end_bytes), end_bytes, first);
}

}  // namespace quire
