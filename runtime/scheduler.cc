#include "runtime/scheduler.h"

#include <algorithm>
#include <utility>

#include "ir/status.h"

namespace quire {
namespace {

// Keys and values depend on the encoder input too.
PrefixIndex::Node RootOf(const Sequence& sequence) {
  return sequence.encoder.has_value() ? PrefixIndex::RootOf(*sequence.encoder) : PrefixIndex::kRoot;
}

}  // namespace

void Scheduler::Add(Sequence* sequence) { waiting_.push_back(sequence); }

absl::Status Scheduler::Fork(Sequence* sequence, Sequence* fork) {
  QUIRE_ASSIGN_OR_RETURN(fork->cache, cache_->Fork(*sequence->cache));
  if (sequence->encoder.has_value()) {
    encoder_->Hold(*sequence->encoder);
    fork->encoder = sequence->encoder;
  }
  const auto place = std::find(running_.begin(), running_.end(), sequence);
  running_.insert(place + 1, fork);
  return absl::OkStatus();
}

absl::Status Scheduler::Remove(Sequence* sequence) {
  if (sequence->encoder.has_value()) {
    encoder_->Release(*std::exchange(sequence->encoder, std::nullopt));
  }
  return TakeOff(sequence);
}

absl::Status Scheduler::TakeOff(Sequence* sequence) {
  const auto erase_from = [sequence](auto& queue) {
    const auto place = std::find(queue.begin(), queue.end(), sequence);
    if (place != queue.end()) queue.erase(place);
  };
  erase_from(waiting_);
  erase_from(running_);
  if (!sequence->cache.has_value()) return absl::OkStatus();
  return cache_->Release(*std::exchange(sequence->cache, std::nullopt));
}

absl::Status Scheduler::Preempt(Sequence* sequence) {
  QUIRE_RETURN_IF_ERROR(TakeOff(sequence));
  sequence->computed = 0;
  waiting_.push_front(sequence);
  step_.erase(std::remove_if(step_.begin(), step_.end(),
                             [&](const ScheduledRows& rows) { return rows.sequence == sequence; }),
              step_.end());
  ++preemptions_;
  return absl::OkStatus();
}

absl::StatusOr<bool> Scheduler::MakeRoom(Sequence* sequence, int32_t rows) {
  while (cache_->PagesToExtend(*sequence->cache, rows) > cache_->available_pages()) {
    Sequence* latest = running_.back();
    QUIRE_RETURN_IF_ERROR(Preempt(latest));
    if (latest == sequence) return false;
  }
  QUIRE_RETURN_IF_ERROR(cache_->Extend(*sequence->cache, rows));
  return true;
}

bool Scheduler::LacksInput(const Sequence& sequence) const {
  return encoder_ != nullptr && !sequence.encoder.has_value() && !sequence.input.empty();
}

void Scheduler::Due::Add(const KvCache& cache, const Sequence& sequence) {
  sequences += sequence.sequences_due();
  // Those that are in the step already have the pages of their rows.
  const int32_t tokens = static_cast<int32_t>(sequence.ids.size()) - cache.tokens(*sequence.cache);
  pages += cache.PagesToExtend(*sequence.cache, tokens) + sequence.sequences_due();
}

Scheduler::Due Scheduler::DueOfRunning() const {
  Due due;
  for (const Sequence* sequence : running_) due.Add(*cache_, *sequence);
  return due;
}

bool Scheduler::CanAdmit(const Sequence& sequence, const Due& due) const {
  if (running_.empty()) return true;
  if (due.sequences + sequence.sequences_due() > options_.max_sequences) return false;
  const bool lacks_input = LacksInput(sequence);
  if (lacks_input && encoder_->PagesToAcquire(sequence.input) > encoder_->available_pages()) {
    return false;
  }
  KvCache::Prefix prefix;
  // What decodes over an encoder input that nobody holds has no prefix.
  if (options_.reuse_prefixes && !lacks_input) {
    prefix = cache_->FindPrefix(sequence.ids, RootOf(sequence));
  }
  const int64_t pages = cache_->PagesFor(static_cast<int64_t>(sequence.ids.size())) -
                        cache_->PagesFor(prefix.tokens) + prefix.kept_pages;
  return due.pages + sequence.sequences_due() + pages <= cache_->available_pages();
}

absl::Status Scheduler::Admit() {
  Sequence* sequence = waiting_.front();
  waiting_.pop_front();
  if (LacksInput(*sequence)) {
    QUIRE_ASSIGN_OR_RETURN(sequence->encoder, encoder_->Acquire(sequence->input));
  }
  const PrefixIndex::Node root = RootOf(*sequence);
  sequence->cache = options_.reuse_prefixes ? cache_->CreateWithPrefix(sequence->ids, root)
                                            : cache_->Create(root);
  sequence->computed = cache_->tokens(*sequence->cache);
  running_.push_back(sequence);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<ScheduledRows>> Scheduler::Next() {
  step_.clear();
  step_.reserve(running_.size());
  int32_t budget = options_.step_tokens;
  const auto take = [&](Sequence* sequence) -> absl::Status {
    int32_t rows = std::min(sequence->tokens_due(), budget);
    if (options_.chunk_tokens > 0) rows = std::min(rows, options_.chunk_tokens);
    // Rows of a step see the same of an encoder's output.
    rows = std::min(rows, sequence->input.SightAt(sequence->computed).end - sequence->computed);
    QUIRE_ASSIGN_OR_RETURN(const bool has_room, MakeRoom(sequence, rows));
    if (!has_room) return absl::OkStatus();
    step_.push_back({sequence, rows});
    budget -= rows;
    return absl::OkStatus();
  };
  for (const bool decodes : {true, false}) {
    // Preemption shortens running_ from its end, never before the sequence at hand.
    for (size_t i = 0; i < running_.size() && budget > 0; ++i) {
      // A beam whose logits are there waits for the others.
      if (running_[i]->tokens_due() == 0) continue;
      if ((running_[i]->tokens_due() == 1) == decodes) QUIRE_RETURN_IF_ERROR(take(running_[i]));
    }
  }
  Due due = waiting_.empty() ? Due{} : DueOfRunning();
  while (budget > 0 && !waiting_.empty() && CanAdmit(*waiting_.front(), due)) {
    const int64_t preemptions = preemptions_;
    QUIRE_RETURN_IF_ERROR(Admit());
    QUIRE_RETURN_IF_ERROR(take(running_.back()));
    if (preemptions_ == preemptions) {
      due.Add(*cache_, *running_.back());
    } else {
      due = DueOfRunning();
    }
  }
  // All that runs waits for a beam that was preempted: it comes back, however little is left.
  if (step_.empty() && !waiting_.empty()) {
    QUIRE_RETURN_IF_ERROR(Admit());
    QUIRE_RETURN_IF_ERROR(take(running_.back()));
  }
  return std::move(step_);
}

}  // namespace quire
