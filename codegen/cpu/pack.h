// Lays weights out for the CPU's kernels; packed_format.h has the byte layouts.
#ifndef QUIRE_CODEGEN_CPU_PACK_H_
#define QUIRE_CODEGEN_CPU_PACK_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "codegen/spec.h"
#include "ir/dtype.h"

namespace quire {

// Bytes of a packed weight [n,k]. REQUIRES: n and k positive, k a multiple of the dtype's block.
int64_t PackedBytes(WeightLayout layout, DType dtype, int64_t n, int64_t k);

// Packs a weight whose rows, each RowBytes(dtype, k) long, stand anywhere. Rows are read in order,
// `packed` is written in order. INVALID_ARGUMENT when k is no multiple of the dtype's block, or
// when `packed` is not PackedBytes long.
absl::Status Pack(WeightLayout layout, DType dtype, int64_t k,
                  absl::Span<const uint8_t* const> rows, absl::Span<uint8_t> packed);

}  // namespace quire

#endif  // QUIRE_CODEGEN_CPU_PACK_H_
