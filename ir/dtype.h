// Element types of values, weights and KV pages; the table is ir/dtype.def.
#ifndef QUIRE_IR_DTYPE_H_
#define QUIRE_IR_DTYPE_H_

#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace quire {

enum class DType : uint8_t {
#define DTYPE(name, text, elements, bytes) k##name,
#include "ir/dtype.def"
};

struct DTypeInfo {
  DType dtype;
  const char* text;
  int block_elements;  // elements of the last axis that are stored together
  int block_bytes;     // bytes of one such block
};

const DTypeInfo& InfoOf(DType dtype);
absl::Span<const DTypeInfo> AllDTypes();
absl::string_view DTypeText(DType dtype);
std::optional<DType> ParseDType(absl::string_view text);

inline bool IsBlockType(DType dtype) { return InfoOf(dtype).block_elements > 1; }
// Blocks of integers, which the CPU multiplies with integers.
inline bool IsIntegerBlockType(DType dtype) {
  return IsBlockType(dtype) && dtype != DType::kF8E4M3_128;
}
// A float that stands for itself, and so may be that of an activation; an f8e4m3 needs a scale
// beside it.
inline bool IsFloat(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
}
// What a KV cache may be of.
inline bool IsKvType(DType dtype) { return IsFloat(dtype) || dtype == DType::kF8E4M3; }

// Bytes of `elements` consecutive elements of one row. REQUIRES: elements is a multiple of
// block_elements.
int64_t RowBytes(DType dtype, int64_t elements);

// Scalar conversions: round to nearest, ties to even; NaN stays NaN, that of f8e4m3 is 0x7f. What
// is past the largest becomes infinite in f16 and bf16, and the largest, 448, in f8e4m3.
float F16ToF32(uint16_t bits);
uint16_t F32ToF16(float value);
float BF16ToF32(uint16_t bits);
uint16_t F32ToBF16(float value);
float F8E4M3ToF32(uint8_t bits);
uint8_t F32ToF8E4M3(float value);

}  // namespace quire

#endif  // QUIRE_IR_DTYPE_H_
