// The meaning of every element type: stored bytes to numbers, in double precision.
//
// This is the definition that kernels are compared with. It is exact: an f16 scale times small
// integers fits a double, so the only rounding left is that of a double sum in the types that have
// a minimum.
//
// Errors:  INVALID_ARGUMENT when the bytes are not exactly those of the elements.
// Source:  layouts are those of ggml's block structures (ggml-common.h of
// github.com/ggml-org/ggml).
#ifndef QUIRE_IR_REFERENCE_DEQUANTIZE_H_
#define QUIRE_IR_REFERENCE_DEQUANTIZE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "ir/dtype.h"

namespace quire {

// Writes the out.size() elements that `bytes` stores, little-endian; out.size() is a multiple of
// the type's block_elements and bytes.size() == RowBytes(dtype, out.size()).
absl::Status Dequantize(DType dtype, absl::Span<const uint8_t> bytes, absl::Span<double> out);

}  // namespace quire

#endif  // QUIRE_IR_REFERENCE_DEQUANTIZE_H_
