// A program without kernels: logits are a hash of the context as it lies in the pages.
//
// A row's logits depend on every (token, position) that the block table shows, as attention's do,
// and on nothing else; a page that belongs to another sequence, an order that is wrong or a token
// that was not written shows in them. What a step may not do is checked, and reported as INTERNAL.
#ifndef QUIRE_TESTS_RUNTIME_FAKE_PROGRAM_H_
#define QUIRE_TESTS_RUNTIME_FAKE_PROGRAM_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ir/status.h"
#include "runtime/device.h"

namespace quire::testing {

class FakePool : public PagePool {
 public:
  FakePool(int32_t pages, int32_t page_tokens)
      : entries(static_cast<size_t>(pages) * page_tokens, {-1, -1}), page_tokens_(page_tokens) {}
  int32_t page_count() const override {
    return static_cast<int32_t>(entries.size()) / page_tokens_;
  }
  int64_t page_bytes() const override { return 65536; }
  absl::Status CopyPage(int32_t from, int32_t to) override {
    std::copy_n(entries.begin() + from * page_tokens_, page_tokens_,
                entries.begin() + to * page_tokens_);
    return absl::OkStatus();
  }

  std::vector<std::pair<int32_t, int32_t>> entries;  // token and position, page after page

 private:
  int32_t page_tokens_;
};

class FakeProgram : public Program {
 public:
  FakeProgram(int32_t vocabulary, int32_t page_tokens)
      : vocabulary_(vocabulary), page_tokens_(page_tokens) {}

  int64_t page_bytes() const override { return 65536; }
  absl::StatusOr<std::unique_ptr<PagePool>> CreatePool(int32_t pages) override {
    return std::unique_ptr<PagePool>(new FakePool(pages, page_tokens_));
  }

  absl::Status Run(const Step& step, PagePool& pool, absl::Span<float> logits) override {
    if (fail_at_step == steps++) return absl::UnavailableError("the device went away");
    auto& entries = static_cast<FakePool&>(pool).entries;
    const auto bad = [](auto... text) { return absl::InternalError(absl::StrCat(text...)); };
    const size_t rows = step.ids.size();
    most_rows = std::max(most_rows, rows);
    most_sequences = std::max(most_sequences, step.sequences.size());
    if (step.positions.size() != rows) return bad("positions");
    if (step.logit_rows.empty()) return bad("no rows of logits");
    if (logits.size() != step.logit_rows.size() * vocabulary_) return bad("logits");
    if (is_device && logits.data() != left_.data() && logits.data() != memory_.data()) {
      return bad("logits in other memory");
    }
    std::vector<uint64_t> hashes(rows);
    size_t next_row = 0;
    // All rows are written before any is read, as on a device.
    for (const bool writes : {true, false}) {
      for (const SequenceRows& part : step.sequences) {
        if (writes && static_cast<size_t>(part.first_row) != next_row) return bad("first_row");
        next_row += writes ? part.rows : 0;
        for (int32_t i = 0; i < part.rows; ++i) {
          const int32_t row = part.first_row + i;
          const int32_t position = part.context_tokens - part.rows + i;
          if (step.positions[row] != position) return bad("position of row ", row);
          const auto place = [&](int32_t at) -> auto& {
            return entries[part.pages[at / page_tokens_] * page_tokens_ + at % page_tokens_];
          };
          if (static_cast<size_t>(position / page_tokens_) >= part.pages.size()) {
            return bad("block table of row ", row);
          }
          if (writes) {
            place(position) = {step.ids[row], position};
            continue;
          }
          uint64_t hash = 17;
          for (int32_t at = 0; at <= position; ++at) {
            if (place(at).second != at) return bad("row ", row, " reads a place not written");
            hash = Mix(hash, static_cast<uint64_t>(place(at).first));
          }
          hashes[row] = hash;
        }
      }
    }
    if (next_row != rows) return bad("rows");
    for (size_t r = 0; r < step.logit_rows.size(); ++r) {
      FillLogits(hashes[step.logit_rows[r]],
                 logits.subspan(r * vocabulary_, static_cast<size_t>(vocabulary_)));
    }
    return absl::OkStatus();
  }

  // As a device that keeps the logits, and has memory of its own for them, where `is_device`.
  absl::Span<float> LogitsMemory(size_t floats) override {
    if (!is_device) return {};
    memory_.assign(floats, -1);
    return absl::MakeSpan(memory_);
  }
  bool finds_greatest() const override { return is_device; }
  absl::Status RunGreedy(const Step& step, PagePool& pool,
                         absl::Span<GreatestLogit> greatest) override {
    left_.resize(greatest.size() * vocabulary_);
    QUIRE_RETURN_IF_ERROR(Run(step, pool, absl::MakeSpan(left_)));
    for (size_t row = 0; row < greatest.size(); ++row) greatest[row] = GreatestOf(Left(row));
    ++greedy_steps;
    return absl::OkStatus();
  }
  absl::Status ReadLogits(size_t row, absl::Span<float> logits) override {
    ++rows_read;
    if (fail_at_row == rows_read) return absl::UnavailableError("the device went away");
    std::copy_n(Left(row).begin(), logits.size(), logits.begin());
    return absl::OkStatus();
  }

  // The logits after `ids`, computed without pages.
  std::vector<float> LogitsAfter(const std::vector<int32_t>& ids) const {
    uint64_t hash = 17;
    for (const int32_t id : ids) hash = Mix(hash, static_cast<uint64_t>(id));
    std::vector<float> logits(static_cast<size_t>(vocabulary_));
    FillLogits(hash, absl::MakeSpan(logits));
    return logits;
  }

  int64_t fail_at_step = -1;
  int32_t broken_token = -1;  // its logit is NaN after every seventh context
  bool is_device = false;
  int64_t fail_at_row = -1;  // the n-th that is read
  int64_t steps = 0, greedy_steps = 0, rows_read = 0;
  size_t most_rows = 0, most_sequences = 0;

 private:
  static uint64_t Mix(uint64_t hash, uint64_t value) {
    hash = (hash ^ (value + 0x9e3779b97f4a7c15u)) * 0xbf58476d1ce4e5b9u;
    return hash ^ (hash >> 29);
  }
  void FillLogits(uint64_t hash, absl::Span<float> logits) const {
    for (size_t i = 0; i < logits.size(); ++i) {
      logits[i] = static_cast<float>(Mix(hash, i) % 1000003) / 200000.0f;
    }
    if (broken_token >= 0 && hash % 7 == 0) logits[broken_token] = std::nanf("");
  }

  absl::Span<const float> Left(size_t row) const {
    return absl::MakeConstSpan(left_).subspan(row * vocabulary_, vocabulary_);
  }

  int32_t vocabulary_, page_tokens_;
  std::vector<float> left_;    // of the last greedy step
  std::vector<float> memory_;  // for logits
};

}  // namespace quire::testing

#endif  // QUIRE_TESTS_RUNTIME_FAKE_PROGRAM_H_
