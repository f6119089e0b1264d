#include "runtime/cuda/tensor_map.h"

#include "ir/status.h"

namespace quire {

absl::StatusOr<EncodedTensorMap> EncodeTensorMap(const CudaDriver& driver, const CudaTensorMap& map,
                                                 CuDevicePtr base) {
  // Enumerators of cuda.h: CU_TENSOR_MAP_DATA_TYPE_UINT16, ..._SWIZZLE_128B, ..._L2_128B. Promotion
  // to 256 bytes was 2 to 6% slower.
  constexpr int kUint16 = 1, kNoInterleave = 0, kSwizzle128 = 3, kPromotion128 = 2, kZeros = 0;
  const auto columns = static_cast<uint64_t>(map.columns), rows = static_cast<uint64_t>(map.rows);
  const auto box_rows = static_cast<uint32_t>(map.box_rows);
  uint64_t extents[] = {columns, rows, 0, 0};
  uint64_t strides[] = {columns * 2, 0, 0};  // bytes, of the second extent and those behind it
  uint32_t box[] = {64, box_rows, 0, 0};
  const uint32_t every[] = {1, 1, 1, 1};
  int rank = 2;
  if (map.grouped) {
    rank = 4;
    extents[0] = 64, extents[1] = 8, extents[2] = columns / 64, extents[3] = rows / 8;
    strides[1] = 128, strides[2] = columns * 16;
    box[1] = 8, box[2] = static_cast<uint32_t>(columns / 64), box[3] = box_rows / 8;
  } else if (map.block_rows > 0) {
    const auto block_rows = static_cast<uint64_t>(map.block_rows);
    const auto box_block_rows = static_cast<uint32_t>(map.box_block_rows);
    rank = 3;
    extents[1] = block_rows, extents[2] = rows / block_rows;
    strides[1] = columns * block_rows * 2;
    box[1] = box_block_rows, box[2] = box_rows / box_block_rows;
  } else if (map.paired) {
    rank = 4;
    extents[1] = 8, extents[2] = 2, extents[3] = rows / 16;
    strides[1] = rows / 2 * columns * 2, strides[2] = columns * 16;
    box[1] = 8, box[2] = 2, box[3] = box_rows / 16;
  }
  EncodedTensorMap encoded;
  QUIRE_RETURN_IF_ERROR(driver.Check(
      driver.TensorMapEncodeTiled(&encoded, kUint16, static_cast<uint32_t>(rank),
                                  reinterpret_cast<void*>(base), extents, strides, box, every,
                                  kNoInterleave, kSwizzle128, kPromotion128, kZeros),
      "cuTensorMapEncodeTiled"));
  return encoded;
}

}  // namespace quire
