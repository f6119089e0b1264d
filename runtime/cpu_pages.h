// KV pages in the process's memory.
#ifndef QUIRE_RUNTIME_CPU_PAGES_H_
#define QUIRE_RUNTIME_CPU_PAGES_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ir/plan_generated.h"
#include "runtime/device.h"

namespace quire {

// Where the layers lie in a page, in bytes.
struct PageLayout {
  struct Layer {
    int64_t k = 0, v = 0;  // from the start of the page
  };
  std::vector<Layer> layers;  // as in the target's kv_layers
  int64_t page_bytes = 0;
};
PageLayout LayoutOfPage(const plan::TargetT& target);

class CpuPages : public PagePool {
 public:
  // RESOURCE_EXHAUSTED when the process gets no such memory. Memory is taken page by page as it is
  // first written.
  static absl::StatusOr<std::unique_ptr<CpuPages>> Create(const PageLayout& layout, int32_t pages);
  ~CpuPages() override;

  int32_t page_count() const override { return pages_; }
  int64_t page_bytes() const override { return page_bytes_; }
  absl::Status CopyPage(int32_t from, int32_t to) override;
  uint8_t* data() { return data_; }

 private:
  CpuPages(uint8_t* data, int64_t page_bytes, int32_t pages)
      : data_(data), page_bytes_(page_bytes), pages_(pages) {}

  uint8_t* data_;
  int64_t page_bytes_;
  int32_t pages_;
};

}  // namespace quire

#endif  // QUIRE_RUNTIME_CPU_PAGES_H_
