#include "runtime/encoder_cache.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace quire {
namespace {

std::vector<int32_t> KeyOf(absl::Span<const int32_t> ids) { return {ids.begin(), ids.end()}; }

}  // namespace

EncoderCache::EncoderCache(PagePool* pool, int32_t page_tokens)
    : pool_(pool), page_tokens_(page_tokens) {
  // Taken from the back: page 0 first.
  for (int32_t page = pool->page_count() - 1; page >= 0; --page) free_.push_back(page);
}

int32_t EncoderCache::PagesToAcquire(absl::Span<const int32_t> ids) const {
  return by_ids_.contains(KeyOf(ids)) ? 0 : PagesFor(static_cast<int64_t>(ids.size()));
}

absl::StatusOr<EncoderCache::EntryId> EncoderCache::Acquire(absl::Span<const int32_t> ids) {
  std::vector<int32_t> key = KeyOf(ids);
  if (const auto found = by_ids_.find(key); found != by_ids_.end()) {
    Hold(found->second);
    return found->second;
  }
  const int32_t pages = PagesFor(static_cast<int64_t>(ids.size()));
  if (pages > available_pages()) {
    return absl::ResourceExhaustedError(absl::StrCat("encoder cache: ", pages,
                                                     " pages are needed, ", available_pages(),
                                                     " of ", total_pages(), " are free"));
  }
  Entry entry;
  entry.ids = key;
  entry.refs = 1;
  for (int32_t i = 0; i < pages; ++i) {
    entry.pages.push_back(free_.back());
    free_.pop_back();
  }
  by_ids_.emplace(std::move(key), next_);
  entries_.emplace(next_, std::move(entry));
  return next_++;
}

void EncoderCache::Release(EntryId entry) {
  const auto found = entries_.find(entry);
  if (--found->second.refs > 0) return;
  free_.insert(free_.end(), found->second.pages.rbegin(), found->second.pages.rend());
  by_ids_.erase(found->second.ids);
  entries_.erase(found);
}

absl::Status EncoderCache::Verify() const {
  const auto broken = [](int invariant, auto value) {
    return absl::InternalError(
        absl::StrCat("encoder cache: invariant (", invariant, ") does not hold for ", value));
  };
  std::vector<int32_t> owners(static_cast<size_t>(total_pages()), 0);
  for (const int32_t page : free_) ++owners[static_cast<size_t>(page)];
  for (const auto& [id, entry] : entries_) {
    const bool is_sized = static_cast<int32_t>(entry.pages.size()) ==
                          PagesFor(static_cast<int64_t>(entry.ids.size()));
    if (!is_sized || entry.refs < 1) return broken(2, id);
    for (const int32_t page : entry.pages) ++owners[static_cast<size_t>(page)];
  }
  for (size_t page = 0; page < owners.size(); ++page) {
    if (owners[page] != 1) return broken(1, page);
  }
  return absl::OkStatus();
}

}  // namespace quire
