// Tells weight files apart without reading them: a hash of a file's size and of its first and last
// 64 KiB, which hold the headers of every checkpoint format and some weights.
#ifndef QUIRE_IR_FINGERPRINT_H_
#define QUIRE_IR_FINGERPRINT_H_

#include <cstdint>

#include "absl/types/span.h"

namespace quire {

uint64_t Fingerprint(absl::Span<const uint8_t> file);

}  // namespace quire

#endif  // QUIRE_IR_FINGERPRINT_H_
