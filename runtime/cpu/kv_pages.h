// KV pages of the CPU.
//
// Bytes of a page: the layers of its class one after another, each from a multiple of 64; a layer
// is K [Hkv, D, page_tokens], then V [Hkv, page_tokens, Dv] (codegen/cpu/abi.h). Of the class that
// lasts for one run of an encoder, all layers have the same place: launches run in order, and a
// layer is read before the next is written.
#ifndef QUIRE_RUNTIME_CPU_KV_PAGES_H_
#define QUIRE_RUNTIME_CPU_KV_PAGES_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "ir/plan_generated.h"
#include "runtime/cpu/host_memory.h"
#include "runtime/device.h"

namespace quire {

struct KvLayout {
  struct Layer {
    int64_t offset = 0;    // of K in a page
    int64_t v_offset = 0;  // of V in a page
  };
  std::vector<Layer> layers;  // as Target.kv_layers; those of other classes have no place
  int64_t page_tokens = 1;
  int64_t page_bytes = 0;  // 0: no layer is of this class

  static absl::StatusOr<KvLayout> Create(const plan::TargetT& target, plan::KvCache cache);
};

class CpuPagePool : public PagePool {
 public:
  static absl::StatusOr<std::unique_ptr<CpuPagePool>> Create(int32_t pages, int64_t page_bytes);

  int32_t page_count() const override { return pages_; }
  int64_t page_bytes() const override { return page_bytes_; }
  absl::Status CopyPage(int32_t from, int32_t to) override;

  uint8_t* data() const { return memory_.data(); }

 private:
  CpuPagePool(int32_t pages, int64_t page_bytes, HostMemory memory)
      : pages_(pages), page_bytes_(page_bytes), memory_(std::move(memory)) {}

  const int32_t pages_;
  const int64_t page_bytes_;
  const HostMemory memory_;
};

}  // namespace quire

#endif  // QUIRE_RUNTIME_CPU_KV_PAGES_H_
