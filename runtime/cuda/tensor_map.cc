#include "runtime/cuda/tensor_map.h"

#include "ir/status.h"

namespace quire {

absl::StatusOr<EncodedTensorMap> EncodeTensorMap(const CudaDriver& driver, const CudaTensorMap& map,
                                                 CuDevicePtr base) {
  // Enumerators of cuda.h: CU_TENSOR_MAP_DATA_TYPE_UINT16, ..._SWIZZLE_128B, ..._L2_128B. Promotion
  // to 256 bytes was 2 to 6% slower.
  constexpr int kUint16 = 1, kNoInterleave = 0, kSwizzle128 = 3, kPromotion128 = 2, kZeros = 0;
  const uint64_t extents[] = {static_cast<uint64_t>(map.columns), static_cast<uint64_t>(map.rows)};
  const uint64_t row_bytes[] = {static_cast<uint64_t>(map.columns) * 2};
  const uint32_t box[] = {64, static_cast<uint32_t>(map.box_rows)};
  const uint32_t every[] = {1, 1};
  EncodedTensorMap encoded;
  QUIRE_RETURN_IF_ERROR(
      driver.Check(driver.TensorMapEncodeTiled(&encoded, kUint16, 2, reinterpret_cast<void*>(base),
                                               extents, row_bytes, box, every, kNoInterleave,
                                               kSwizzle128, kPromotion128, kZeros),
                   "cuTensorMapEncodeTiled"));
  return encoded;
}

}  // namespace quire
