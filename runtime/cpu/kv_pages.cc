#include "runtime/cpu/kv_pages.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "ir/dtype.h"
#include "ir/status.h"
#include "ir/type.h"

namespace quire {

absl::StatusOr<KvLayout> KvLayout::Create(const plan::TargetT& target, plan::KvCache cache) {
  KvLayout layout;
  layout.page_tokens = target.page_tokens;
  const bool share_place = cache == plan::KvCache::Encoder;
  for (const auto& layer : target.kv_layers) {
    if (layer->cache != cache) {
      layout.layers.emplace_back();
      continue;
    }
    const int64_t bytes = InfoOf(*ParseDType(layer->dtype)).block_bytes;
    const int64_t k_extents[] = {bytes, layout.page_tokens, layer->heads, layer->k_dim};
    const int64_t v_extents[] = {bytes, layout.page_tokens, layer->heads, layer->v_dim};
    QUIRE_ASSIGN_OR_RETURN(const int64_t k, Product(absl::MakeConstSpan(k_extents)));
    QUIRE_ASSIGN_OR_RETURN(const int64_t v, Product(absl::MakeConstSpan(v_extents)));
    const int64_t begin = share_place ? 0 : layout.page_bytes;
    int64_t end;
    if (__builtin_add_overflow(begin + 63, k, &end) || __builtin_add_overflow(end, v, &end)) {
      return absl::InvalidArgumentError("a page of the KV cache is too large");
    }
    layout.layers.push_back({begin, begin + k});
    layout.page_bytes = std::max(layout.page_bytes, end / 64 * 64);
  }
  return layout;
}

absl::StatusOr<std::unique_ptr<CpuPagePool>> CpuPagePool::Create(int32_t pages,
                                                                 int64_t page_bytes) {
  if (pages <= 0) {
    return absl::InvalidArgumentError(absl::StrCat("pages=", pages, "\n  allowed: 1 or more"));
  }
  int64_t bytes;
  if (__builtin_mul_overflow(int64_t{pages}, page_bytes, &bytes)) {
    return absl::ResourceExhaustedError(absl::StrCat("cpu: no memory for ", pages, " pages"));
  }
  QUIRE_ASSIGN_OR_RETURN(HostMemory memory, HostMemory::Allocate(bytes));
  return std::unique_ptr<CpuPagePool>(new CpuPagePool(pages, page_bytes, std::move(memory)));
}

absl::Status CpuPagePool::CopyPage(int32_t from, int32_t to) {
  for (int32_t page : {from, to}) {
    if (page < 0 || page >= pages_) {
      return absl::InvalidArgumentError(absl::StrCat("page ", page, " of a pool of ", pages_));
    }
  }
  if (from != to) {
    std::memcpy(memory_.data() + to * page_bytes_, memory_.data() + from * page_bytes_,
                static_cast<size_t>(page_bytes_));
  }
  return absl::OkStatus();
}

}  // namespace quire
