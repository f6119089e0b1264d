// Floats of a checkpoint's types as f32.
#ifndef QUIRE_IR_FLOATS_H_
#define QUIRE_IR_FLOATS_H_

#include <cstdint>

#include "absl/types/span.h"
#include "ir/dtype.h"

namespace quire {

// Reads as many as `values` has; `bytes` need not be aligned. REQUIRES: IsFloat(dtype).
void ReadFloats(DType dtype, const uint8_t* bytes, absl::Span<float> values);

}  // namespace quire

#endif  // QUIRE_IR_FLOATS_H_
