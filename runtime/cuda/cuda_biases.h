// Tables of relative biases in device memory, unrolled by distance as attention kernels read them.
#ifndef QUIRE_RUNTIME_CUDA_CUDA_BIASES_H_
#define QUIRE_RUNTIME_CUDA_CUDA_BIASES_H_

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "codegen/spec.h"
#include "ir/plan_generated.h"
#include "runtime/cuda/context.h"
#include "runtime/weights.h"

namespace quire {

class CudaBiases {
 public:
  // Of the plan's target: weight and kernel. Two kernels may unroll one table differently.
  using Key = std::pair<uint32_t, uint32_t>;

  // Reads and unrolls the table of `slot`; before Upload. INVALID_ARGUMENT when it is not what the
  // kernel looks up in.
  absl::Status Add(const plan::WeightSlotT& slot, Key key, const AttentionSpec& spec,
                   const WeightSource& source);
  absl::Status Upload(const CudaContext& context);

  // REQUIRES: it was added, and uploaded.
  CuDevicePtr Find(Key key) const { return memory_.at() + places_.at(key) * sizeof(float); }
  int64_t bytes() const { return memory_.bytes(); }

 private:
  std::map<Key, uint64_t> places_;  // in biases_
  std::vector<float> biases_;       // empty when uploaded
  CudaMemory memory_;
};

}  // namespace quire

#endif  // QUIRE_RUNTIME_CUDA_CUDA_BIASES_H_
