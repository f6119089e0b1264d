// KV pages of a GPU.
//
// Layer after layer, each from a multiple of 256 bytes, so that layers of one geometry which follow
// each other are at one distance; in a layer page after page: K [Hkv, page_tokens, D], then V [Hkv,
// page_tokens, Dv]. Zero at first: what no token was written to is
// multiplied by zero.
#ifndef QUIRE_RUNTIME_CUDA_CUDA_PAGES_H_
#define QUIRE_RUNTIME_CUDA_CUDA_PAGES_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ir/plan_generated.h"
#include "runtime/cuda/context.h"
#include "runtime/device.h"

namespace quire {

// Of the layers of one cache.
struct CudaPageLayout {
  std::vector<int64_t> layer_bytes;  // of one page; as Target.kv_layers, 0 of another cache
  int64_t page_tokens = 1;
  int64_t page_bytes = 0;  // over all layers
  int64_t greatest_layer_bytes = 0;

  // INVALID_ARGUMENT on layers that kernels cannot address.
  static absl::StatusOr<CudaPageLayout> Create(const plan::TargetT& target, plan::KvCache cache);
};

class CudaPagePool : public PagePool {
 public:
  // RESOURCE_EXHAUSTED with the number of pages that fit.
  static absl::StatusOr<std::unique_ptr<CudaPagePool>> Create(const CudaContext& context,
                                                              const CudaPageLayout& layout,
                                                              int32_t pages);

  ~CudaPagePool() override;

  int32_t page_count() const override { return pages_; }
  int64_t page_bytes() const override { return page_bytes_; }
  // In the order of steps: what ran before sees the page as it was.
  absl::Status CopyPage(int32_t from, int32_t to) override;

  // Whether its pages are of this layout.
  bool Has(const CudaPageLayout& layout) const;
  // Tells this pool from every other one of the process.
  uint64_t number() const { return number_; }
  // K of page 0 of a layer.
  CuDevicePtr layer(size_t index) const { return memory_.at() + layers_[index].offset; }
  int64_t bytes() const { return memory_.bytes(); }

 private:
  struct Layer {
    uint64_t offset;
    int64_t page_bytes;
  };
  CudaPagePool(const CudaContext& context, int32_t pages, int64_t page_bytes);

  const CudaContext& context_;
  const int32_t pages_;
  const int64_t page_bytes_;
  const uint64_t number_;
  std::vector<Layer> layers_;
  CudaMemory memory_;
};

}  // namespace quire

#endif  // QUIRE_RUNTIME_CUDA_CUDA_PAGES_H_
