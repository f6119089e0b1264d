// Weights in device memory, as kernels read them.
//
// A slot may be wanted in several types (a table that is embedded from and multiplied with); each
// is a copy of its own. Floats are converted on the way, by the host; blocks are copied as they
// are.
#ifndef QUIRE_RUNTIME_CUDA_CUDA_WEIGHTS_H_
#define QUIRE_RUNTIME_CUDA_CUDA_WEIGHTS_H_

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "ir/dtype.h"
#include "ir/plan_generated.h"
#include "runtime/cuda/context.h"
#include "runtime/weights.h"

namespace quire {

class CudaWeights {
 public:
  CudaWeights() = default;
  CudaWeights(CudaWeights&&) = default;
  CudaWeights& operator=(CudaWeights&&) = default;

  // Notes that kernels read slot `index` of the target as `dtype`; before Upload. INVALID_ARGUMENT
  // when the slot cannot be converted to that.
  absl::Status Want(const plan::TargetT& target, uint32_t index, DType dtype);
  // Allocates and fills, with up to `threads` threads that read.
  absl::Status Upload(const CudaContext& context, const plan::TargetT& target,
                      const WeightSource& source, int threads);

  // REQUIRES: it was wanted, and uploaded.
  CuDevicePtr Find(uint32_t index, DType dtype) const {
    return memory_.at() + static_cast<uint64_t>(places_.at({index, dtype}).offset);
  }
  int64_t bytes() const { return end_; }

 private:
  struct Place {
    DType stored;
    int64_t elements = 0;
    int64_t offset = 0;
    int64_t bytes = 0;
  };
  std::map<std::pair<uint32_t, DType>, Place> places_;
  int64_t end_ = 0;
  CudaMemory memory_;
};

// `count` floats from one type to another. REQUIRES: both are f32, f16 or bf16.
void ConvertFloats(DType from, const uint8_t* source, DType to, uint8_t* target, int64_t count);

}  // namespace quire

#endif  // QUIRE_RUNTIME_CUDA_CUDA_WEIGHTS_H_
