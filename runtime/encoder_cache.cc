#include "runtime/encoder_cache.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "ir/status.h"

namespace quire {

EncoderCache::EncoderCache(PagePool* pool, int32_t page_tokens)
    : pool_(pool), page_tokens_(page_tokens) {
  // Taken from the back: page 0 first.
  for (int32_t page = pool->page_count() - 1; page >= 0; --page) free_.push_back(page);
}

int32_t EncoderCache::PagesFor(const EncoderInput& input) const {
  int32_t pages = 0;
  for (const int32_t tokens : input.Runs()) pages += PagesFor(tokens);
  return pages;
}

absl::Span<const int32_t> EncoderCache::pages(EntryId entry, size_t run) const {
  if (run == 0) return pages(entry);
  const std::vector<int32_t> runs = input(entry).Runs();
  size_t begin = 0;
  for (size_t i = 0; i < run; ++i) begin += static_cast<size_t>(PagesFor(runs[i]));
  return pages(entry).subspan(begin);
}

int32_t EncoderCache::PagesToAcquire(const EncoderInput& input) const {
  return by_input_.contains(input) ? 0 : PagesFor(input);
}

absl::StatusOr<EncoderCache::EntryId> EncoderCache::Acquire(const EncoderInput& input) {
  if (const auto found = by_input_.find(input); found != by_input_.end()) {
    Hold(found->second);
    return found->second;
  }
  const int32_t pages = PagesFor(input);
  if (pages > available_pages()) {
    return absl::ResourceExhaustedError(absl::StrCat("encoder cache: ", pages,
                                                     " pages are needed, ", available_pages(),
                                                     " of ", total_pages(), " are free"));
  }
  Entry entry;
  entry.input = input;
  entry.refs = 1;
  for (int32_t i = 0; i < pages; ++i) {
    entry.pages.push_back(free_.back());
    free_.pop_back();
  }
  const EntryId id = entries_.Add(std::move(entry));
  by_input_.emplace(input, id);
  return id;
}

void EncoderCache::Release(EntryId entry) {
  Entry& released = *entries_.Find(entry);
  if (--released.refs > 0) return;
  free_.insert(free_.end(), released.pages.rbegin(), released.pages.rend());
  by_input_.erase(released.input);
  entries_.Erase(entry);
}

absl::Status EncoderCache::Verify() const {
  const auto broken = [](int invariant, auto value) {
    return absl::InternalError(
        absl::StrCat("encoder cache: invariant (", invariant, ") does not hold for ", value));
  };
  std::vector<int32_t> owners(static_cast<size_t>(total_pages()), 0);
  for (const int32_t page : free_) ++owners[static_cast<size_t>(page)];
  absl::Status status;
  entries_.ForEach([&](EntryId id, const Entry& entry) {
    const bool is_sized = static_cast<int32_t>(entry.pages.size()) == PagesFor(entry.input);
    if (!is_sized || entry.refs < 1) status.Update(broken(2, id));
    for (const int32_t page : entry.pages) ++owners[static_cast<size_t>(page)];
  });
  QUIRE_RETURN_IF_ERROR(status);
  for (size_t page = 0; page < owners.size(); ++page) {
    if (owners[page] != 1) return broken(1, page);
  }
  return absl::OkStatus();
}

}  // namespace quire
