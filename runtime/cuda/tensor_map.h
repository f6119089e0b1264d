// What the driver makes of a CudaTensorMap (codegen/cuda/kernel.h): a kernel's parameter.
#ifndef QUIRE_RUNTIME_CUDA_TENSOR_MAP_H_
#define QUIRE_RUNTIME_CUDA_TENSOR_MAP_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "codegen/cuda/kernel.h"
#include "runtime/cuda/driver.h"

namespace quire {

struct alignas(64) EncodedTensorMap {
  uint64_t words[16];
};

// `base`: where map.base is in device memory, a multiple of 16 bytes.
absl::StatusOr<EncodedTensorMap> EncodeTensorMap(const CudaDriver& driver, const CudaTensorMap& map,
                                                 CuDevicePtr base);

}  // namespace quire

#endif  // QUIRE_RUNTIME_CUDA_TENSOR_MAP_H_
