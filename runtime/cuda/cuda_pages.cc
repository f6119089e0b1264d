#include "runtime/cuda/cuda_pages.h"

#include <algorithm>
#include <atomic>
#include <limits>

#include "absl/strings/str_cat.h"
#include "ir/dtype.h"
#include "ir/status.h"
#include "ir/type.h"

namespace quire {
namespace {

constexpr int64_t kLayerAlignment = 256;

uint64_t NextNumber() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

}  // namespace

absl::StatusOr<CudaPageLayout> CudaPageLayout::Create(const plan::TargetT& target,
                                                      plan::KvCache cache) {
  CudaPageLayout layout;
  layout.page_tokens = target.page_tokens;
  for (const auto& layer : target.kv_layers) {
    const int64_t extents[] = {InfoOf(*ParseDType(layer->dtype)).block_bytes, layout.page_tokens,
                               layer->heads, int64_t{layer->k_dim} + layer->v_dim};
    QUIRE_ASSIGN_OR_RETURN(const int64_t bytes, Product(absl::MakeConstSpan(extents)));
    layout.layer_bytes.push_back(layer->cache == cache ? bytes : 0);
    if (layer->cache != cache) continue;
    layout.greatest_layer_bytes = std::max(layout.greatest_layer_bytes, bytes);
    if (__builtin_add_overflow(layout.page_bytes, bytes, &layout.page_bytes)) {
      return absl::InvalidArgumentError("a page of the KV cache is too large");
    }
  }
  return layout;
}

CudaPagePool::CudaPagePool(const CudaContext& context, int32_t pages, int64_t page_bytes)
    : context_(context), pages_(pages), page_bytes_(page_bytes), number_(NextNumber()) {}

absl::StatusOr<std::unique_ptr<CudaPagePool>> CudaPagePool::Create(const CudaContext& context,
                                                                   const CudaPageLayout& layout,
                                                                   int32_t pages) {
  // Rows are told their place as an i32, page * page_tokens + token.
  const int64_t most = std::numeric_limits<int32_t>::max() / layout.page_tokens;
  if (pages <= 0 || pages > most) {
    return absl::InvalidArgumentError(absl::StrCat("pages=", pages, "\n  allowed: 1 .. ", most));
  }
  std::unique_ptr<CudaPagePool> pool(new CudaPagePool(context, pages, layout.page_bytes));
  int64_t end = 0;
  for (const int64_t page_bytes : layout.layer_bytes) {
    pool->layers_.push_back({static_cast<uint64_t>(end), page_bytes});
    int64_t bytes;
    if (__builtin_mul_overflow(pages, page_bytes, &bytes) ||
        __builtin_add_overflow(end + kLayerAlignment - 1, bytes, &end)) {
      return absl::ResourceExhaustedError(absl::StrCat("cuda: no memory for ", pages, " pages"));
    }
    end = end / kLayerAlignment * kLayerAlignment;
  }
  absl::StatusOr<CudaMemory> memory =
      CudaMemory::Allocate(context, end, absl::StrCat(pages, " pages of keys and values"));
  if (absl::IsResourceExhausted(memory.status())) {
    QUIRE_ASSIGN_OR_RETURN(const int64_t free_bytes, context.FreeBytes());
    return WithLine(memory.status(), "allowed",
                    absl::StrCat("up to ", free_bytes / layout.page_bytes, " pages, ",
                                 free_bytes / layout.page_bytes * layout.page_tokens, " tokens, ",
                                 free_bytes / layout.page_bytes * layout.page_bytes, " bytes"));
  }
  if (!memory.ok()) return memory.status();
  pool->memory_ = std::move(memory).value();
  QUIRE_RETURN_IF_ERROR(context.Synchronize());
  return pool;
}

CudaPagePool::~CudaPagePool() {
  // What fills them may still run.
  if (context_.MakeCurrent().ok()) context_.Synchronize().IgnoreError();
}

bool CudaPagePool::Has(const CudaPageLayout& layout) const {
  return std::equal(layers_.begin(), layers_.end(), layout.layer_bytes.begin(),
                    layout.layer_bytes.end(),
                    [](const Layer& layer, int64_t bytes) { return layer.page_bytes == bytes; });
}

absl::Status CudaPagePool::CopyPage(int32_t from, int32_t to) {
  for (const int32_t page : {from, to}) {
    if (page < 0 || page >= pages_) {
      return absl::InvalidArgumentError(absl::StrCat("page ", page, " of a pool of ", pages_));
    }
  }
  if (from == to) return absl::OkStatus();
  QUIRE_RETURN_IF_ERROR(context_.MakeCurrent());
  for (const Layer& layer : layers_) {
    const CuDevicePtr base = memory_.at() + layer.offset;
    const auto bytes = static_cast<uint64_t>(layer.page_bytes);
    QUIRE_RETURN_IF_ERROR(
        context_.Check(context_.driver().MemcpyDtoDAsync(base + static_cast<uint64_t>(to) * bytes,
                                                         base + static_cast<uint64_t>(from) * bytes,
                                                         bytes, context_.stream()),
                       "copying a page"));
  }
  return absl::OkStatus();
}

}  // namespace quire
