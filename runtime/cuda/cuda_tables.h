// Tables of f32 in device memory that kernels read and that are computed from weights when these
// are loaded: relative biases, unrolled by distance; scales of keys and values, one for each head.
#ifndef QUIRE_RUNTIME_CUDA_CUDA_TABLES_H_
#define QUIRE_RUNTIME_CUDA_CUDA_TABLES_H_

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "codegen/spec.h"
#include "ir/plan_generated.h"
#include "runtime/cuda/context.h"
#include "runtime/weights.h"

namespace quire {

class CudaTables {
 public:
  // Of the plan's target: weight and kernel. Two kernels may make different tables of one weight.
  using Key = std::pair<uint32_t, uint32_t>;

  // Before Upload. INVALID_ARGUMENT when the weight of `slot` is not what the kernel reads.
  absl::Status AddBiases(const plan::WeightSlotT& slot, Key key, const AttentionSpec& spec,
                         const WeightSource& source);
  absl::Status AddKvScales(const plan::WeightSlotT& slot, Key key, int64_t heads,
                           const WeightSource& source);
  absl::Status Upload(const CudaContext& context);

  bool Has(Key key) const { return places_.contains(key); }
  // REQUIRES: it was added, and uploaded.
  CuDevicePtr Find(Key key) const { return memory_.at() + places_.at(key) * sizeof(float); }
  int64_t bytes() const { return memory_.bytes(); }

 private:
  void Add(Key key, absl::Span<const float> table);

  std::map<Key, uint64_t> places_;  // in values_
  std::vector<float> values_;       // empty when uploaded
  CudaMemory memory_;
};

}  // namespace quire

#endif  // QUIRE_RUNTIME_CUDA_CUDA_TABLES_H_
