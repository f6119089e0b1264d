#include "runtime/kv_cache.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ir/status.h"

namespace quire {

KvCache::KvCache(PagePool* pool, int32_t page_tokens) : pool_(pool), page_tokens_(page_tokens) {
  refs_.resize(static_cast<size_t>(pool->page_count()), 0);
  // Taken from the back: page 0 first.
  for (int32_t page = pool->page_count() - 1; page >= 0; --page) free_.push_back(page);
}

absl::StatusOr<KvCache::Sequence*> KvCache::Find(SequenceId sequence) {
  if (Sequence* const found = sequences_.Find(sequence)) return found;
  return absl::InvalidArgumentError(absl::StrCat("kv cache: there is no sequence ", sequence));
}

int32_t KvCache::TakePage() {
  if (!free_.empty()) {
    const int32_t page = free_.back();
    free_.pop_back();
    return page;
  }
  const int32_t page = kept_.front();
  kept_.pop_front();
  kept_at_.erase(page);
  index_.Erase(page);
  return page;
}

void KvCache::Hold(int32_t page) {
  if (refs_[page]++ > 0) return;
  const auto kept = kept_at_.find(page);
  if (kept == kept_at_.end()) return;
  kept_.erase(kept->second);
  kept_at_.erase(kept);
}

void KvCache::Drop(int32_t page) {
  if (--refs_[page] > 0) return;
  if (index_.Has(page)) {
    kept_at_[page] = kept_.insert(kept_.end(), page);
  } else {
    free_.push_back(page);
  }
}

KvCache::SequenceId KvCache::Create(PrefixIndex::Node root) {
  Sequence sequence;
  sequence.node = root;
  return sequences_.Add(std::move(sequence));
}

std::vector<PrefixIndex::Entry> KvCache::Match(absl::Span<const int32_t> ids,
                                               PrefixIndex::Node root) const {
  std::vector<PrefixIndex::Entry> found;
  PrefixIndex::Node node = root;
  const auto page_tokens = static_cast<size_t>(page_tokens_);
  for (size_t begin = 0; begin + page_tokens < ids.size(); begin += page_tokens) {
    const auto entry = index_.Find(node, ids.subspan(begin, page_tokens));
    if (entry.page < 0) break;
    node = entry.node;
    found.push_back(entry);
  }
  return found;
}

KvCache::Prefix KvCache::FindPrefix(absl::Span<const int32_t> ids, PrefixIndex::Node root) const {
  Prefix prefix;
  for (const PrefixIndex::Entry& entry : Match(ids, root)) {
    prefix.tokens += page_tokens_;
    prefix.kept_pages += refs_[entry.page] == 0 ? 1 : 0;
  }
  return prefix;
}

KvCache::SequenceId KvCache::CreateWithPrefix(absl::Span<const int32_t> ids,
                                              PrefixIndex::Node root) {
  Sequence sequence;
  sequence.node = root;
  for (const PrefixIndex::Entry& entry : Match(ids, root)) {
    Hold(entry.page);
    sequence.pages.push_back(entry.page);
    sequence.node = entry.node;
    sequence.tokens += page_tokens_;
  }
  sequence.committed = sequence.tokens;
  reused_tokens_ += sequence.tokens;
  return sequences_.Add(std::move(sequence));
}

absl::StatusOr<KvCache::SequenceId> KvCache::Fork(SequenceId sequence) {
  QUIRE_ASSIGN_OR_RETURN(const Sequence* from, Find(sequence));
  Sequence copy = *from;
  for (const int32_t page : copy.pages) Hold(page);
  return sequences_.Add(std::move(copy));
}

absl::Status KvCache::Release(SequenceId sequence) {
  QUIRE_ASSIGN_OR_RETURN(Sequence * released, Find(sequence));
  // From the end: of kept pages, those deep in a prefix are reused before those that lead to them.
  for (auto page = released->pages.rbegin(); page != released->pages.rend(); ++page) Drop(*page);
  sequences_.Erase(sequence);
  return absl::OkStatus();
}

bool KvCache::CopiesLastPage(const Sequence& sequence, int32_t tokens) const {
  return tokens > 0 && sequence.tokens % page_tokens_ != 0 && refs_[sequence.pages.back()] > 1;
}

int32_t KvCache::PagesToExtend(SequenceId sequence, int32_t tokens) const {
  const Sequence* const grown = sequences_.Find(sequence);
  if (grown == nullptr) return PagesFor(tokens);
  return PagesFor(int64_t{grown->tokens} + tokens) - static_cast<int32_t>(grown->pages.size()) +
         (CopiesLastPage(*grown, tokens) ? 1 : 0);
}

absl::Status KvCache::Extend(SequenceId sequence, int32_t tokens) {
  QUIRE_ASSIGN_OR_RETURN(Sequence * grown, Find(sequence));
  const int32_t pages = PagesToExtend(sequence, tokens);
  if (pages > available_pages()) {
    return absl::ResourceExhaustedError(absl::StrCat("kv cache: ", pages, " pages are needed, ",
                                                     available_pages(), " of ", total_pages(),
                                                     " are free"));
  }
  if (CopiesLastPage(*grown, tokens)) {
    const int32_t page = TakePage();
    if (absl::Status copied = pool_->CopyPage(grown->pages.back(), page); !copied.ok()) {
      free_.push_back(page);
      return copied;
    }
    ++copied_pages_;
    Drop(std::exchange(grown->pages.back(), page));
    Hold(page);
  }
  grown->tokens += tokens;
  while (static_cast<int32_t>(grown->pages.size()) < PagesFor(grown->tokens)) {
    grown->pages.push_back(TakePage());
    Hold(grown->pages.back());
  }
  return absl::OkStatus();
}

absl::Status KvCache::Commit(SequenceId sequence, absl::Span<const int32_t> ids) {
  QUIRE_ASSIGN_OR_RETURN(Sequence * written, Find(sequence));
  if (static_cast<int64_t>(ids.size()) > written->tokens - written->committed) {
    return absl::InvalidArgumentError(absl::StrCat("kv cache: ", ids.size(), " tokens for room of ",
                                                   written->tokens - written->committed));
  }
  for (const int32_t id : ids) {
    written->tail.push_back(id);
    ++written->committed;
    if (written->committed % page_tokens_ != 0) continue;
    const int32_t page = written->pages[static_cast<size_t>(written->committed / page_tokens_ - 1)];
    // Another page may hold the same prefix already; then that one stays the one to find.
    const auto entry = index_.Find(written->node, written->tail);
    written->node =
        entry.page >= 0 ? entry.node : index_.Insert(written->node, written->tail, page);
    written->tail.clear();
  }
  return absl::OkStatus();
}

int32_t KvCache::tokens(SequenceId sequence) const {
  const Sequence* const found = sequences_.Find(sequence);
  return found == nullptr ? 0 : found->tokens;
}

absl::Span<const int32_t> KvCache::pages(SequenceId sequence) const {
  const Sequence* const found = sequences_.Find(sequence);
  if (found == nullptr) return {};
  return found->pages;
}

absl::Status KvCache::Verify() const {
  const auto broken = [](int invariant, auto value) {
    return absl::InternalError(
        absl::StrCat("kv cache: invariant (", invariant, ") does not hold for ", value));
  };
  std::vector<int32_t> held(refs_.size(), 0), idle(refs_.size(), 0);
  absl::Status status;
  sequences_.ForEach([&](SequenceId id, const Sequence& sequence) {
    for (const int32_t page : sequence.pages) ++held[page];
    if (static_cast<int32_t>(sequence.pages.size()) != PagesFor(sequence.tokens)) {
      status.Update(broken(3, id));
    }
  });
  QUIRE_RETURN_IF_ERROR(status);
  for (const int32_t page : free_) {
    ++idle[page];
    if (index_.Has(page)) return broken(1, page);
  }
  for (const int32_t page : kept_) {
    ++idle[page];
    if (!index_.Has(page)) return broken(6, page);
  }
  for (int32_t page = 0; page < total_pages(); ++page) {
    if (held[page] != refs_[page]) return broken(2, page);
    if (idle[page] + (held[page] > 0 ? 1 : 0) != 1) return broken(1, page);
  }
  sequences_.ForEach([&](SequenceId id, const Sequence& sequence) {
    if (sequence.tokens % page_tokens_ != 0 && sequence.committed % page_tokens_ != 0 &&
        index_.Has(sequence.pages.back())) {
      status.Update(broken(5, id));
    }
  });
  return status;
}

}  // namespace quire
