#include "runtime/cpu_pages.h"

#include <sys/mman.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "ir/dtype.h"
#include "ir/status.h"

namespace quire {

PageLayout LayoutOfPage(const plan::TargetT& target) {
  constexpr int64_t kAlign = 64;
  PageLayout layout;
  for (const auto& layer : target.kv_layers) {
    const DType dtype = *ParseDType(layer->dtype);
    const int64_t rows = int64_t{layer->heads} * target.page_tokens;
    const int64_t k = layout.page_bytes;
    const int64_t v = k + RowBytes(dtype, rows * layer->k_dim);
    layout.layers.push_back({k, v});
    const int64_t end = v + RowBytes(dtype, rows * layer->v_dim);
    layout.page_bytes = (end + kAlign - 1) / kAlign * kAlign;
  }
  return layout;
}

absl::StatusOr<std::unique_ptr<CpuPages>> CpuPages::Create(const PageLayout& layout,
                                                           int32_t pages) {
  if (pages < 1) return absl::InvalidArgumentError(absl::StrCat("a pool of ", pages, " pages"));
  int64_t bytes;
  void* data = MAP_FAILED;
  if (!__builtin_mul_overflow(layout.page_bytes, int64_t{pages}, &bytes)) {
    data = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  }
  if (data == MAP_FAILED) {
    return WithLine(absl::ResourceExhaustedError(absl::StrCat(
                        "no memory for ", pages, " KV pages of ", layout.page_bytes, " bytes")),
                    "fix", "a smaller budget for the cache");
  }
  return std::unique_ptr<CpuPages>(
      new CpuPages(static_cast<uint8_t*>(data), layout.page_bytes, pages));
}

CpuPages::~CpuPages() { munmap(data_, static_cast<size_t>(page_bytes_ * pages_)); }

absl::Status CpuPages::CopyPage(int32_t from, int32_t to) {
  if (from < 0 || from >= pages_ || to < 0 || to >= pages_) {
    return absl::InvalidArgumentError(
        absl::StrCat("copying page ", from, " to ", to, " of a pool of ", pages_));
  }
  std::memcpy(data_ + to * page_bytes_, data_ + from * page_bytes_,
              static_cast<size_t>(page_bytes_));
  return absl::OkStatus();
}

}  // namespace quire
