// A step launch by launch, waiting for each, and what it leaves in memory.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "ir/dtype.h"
#include "ir/plan_check.h"
#include "ir/status.h"
#include "runtime/cuda/cuda_program.h"

namespace quire {

class CudaProgram::StepMemory : public LaunchMemory {
 public:
  StepMemory(CudaProgram& program, const Step& step, const CudaPagePool& pool, Key bucket)
      : program_(program), step_(step), pool_(pool), bucket_(bucket) {}

  // Of own pages and of those that last for the run: what this program appends to. A program of
  // both reads the run's pages after the launch that wrote them, before another layer's are there.

  absl::StatusOr<std::vector<uint8_t>> ReadBuffer(uint32_t buffer) const override {
    if (buffer >= program_.forms_.buffers.size()) {
      return absl::InvalidArgumentError(absl::StrCat("the program has no buffer ", buffer));
    }
    const int64_t bytes =
        Evaluate(program_.forms_.buffer_bytes[buffer], static_cast<int64_t>(step_.ids.size()),
                 static_cast<int64_t>(step_.logit_rows.size()));
    return Read(
        program_.arena_.at() + static_cast<uint64_t>(Evaluate(program_.forms_.buffers[buffer],
                                                              bucket_.first, bucket_.second)),
        bytes);
  }

  absl::StatusOr<std::vector<uint8_t>> ReadLayer(uint32_t layer, bool is_v,
                                                 size_t sequence) const override {
    if (layer >= program_.forms_.layers.size() || sequence >= step_.sequences.size()) {
      return absl::InvalidArgumentError(absl::StrCat("the step has no KV layer ", layer));
    }
    const KvLayerForm& form = program_.forms_.layers[layer];
    const bool is_run = form.cache == plan::KvCache::Encoder && program_.limits_.is_encode;
    if (form.cache != program_.own_ && !is_run) {
      return absl::InvalidArgumentError(
          absl::StrCat("the program does not append to KV layer ", layer));
    }
    const SequenceRows& rows = step_.sequences[sequence];
    const CudaPageLayout& layout = is_run ? program_.run_layout_ : program_.own_pages_;
    const CuDevicePtr pages = is_run ? program_.run_pages_.at() : pool_.layer(layer);
    const int64_t first_page = is_run ? FirstRunPage(sequence) : 0;
    const int64_t page_tokens = layout.page_tokens, page_bytes = layout.layer_bytes[layer];
    const int64_t dim = is_v ? form.v_dim : form.k_dim, row_bytes = dim * form.element_bytes;
    const int64_t first = is_v ? form.heads * page_tokens * form.k_dim * form.element_bytes : 0;
    std::vector<uint8_t> read;
    for (int64_t token = 0; token < rows.context_tokens;) {
      const int64_t index = token / page_tokens;
      const int64_t page = is_run ? first_page + index : rows.pages[static_cast<size_t>(index)];
      QUIRE_ASSIGN_OR_RETURN(const std::vector<uint8_t> whole,
                             Read(pages + static_cast<uint64_t>(page * page_bytes), page_bytes));
      const int64_t end = std::min<int64_t>(rows.context_tokens, token + page_tokens);
      for (int64_t slot = 0; token < end; ++token, ++slot) {
        for (int64_t head = 0; head < form.heads; ++head) {
          const auto at = whole.begin() + first + (head * page_tokens + slot) * row_bytes;
          read.insert(read.end(), at, at + row_bytes);
        }
      }
    }
    return read;
  }

 private:
  // Pages of a run are numbered through (runtime/cuda/step_block.h).
  int64_t FirstRunPage(size_t sequence) const {
    int64_t page = 0;
    const int64_t page_tokens = program_.run_layout_.page_tokens;
    for (const SequenceRows& before : step_.sequences.first(sequence)) {
      page += (before.context_tokens + page_tokens - 1) / page_tokens;
    }
    return page;
  }
  absl::StatusOr<std::vector<uint8_t>> Read(CuDevicePtr from, int64_t bytes) const {
    std::vector<uint8_t> read(static_cast<size_t>(bytes));
    QUIRE_RETURN_IF_ERROR(program_.Bring(read.data(), from, read.size()));
    return read;
  }

  CudaProgram& program_;
  const Step& step_;
  const CudaPagePool& pool_;
  const Key bucket_;
};

absl::Status CudaProgram::RunWatched(const Step& step, PagePool& pool, absl::Span<float> logits,
                                     LaunchWatcher watcher) {
  QUIRE_ASSIGN_OR_RETURN(const Prepared prepared, Prepare(step, pool, logits.size()));
  QUIRE_RETURN_IF_ERROR(Send(step, prepared));
  const StepMemory memory(*this, step, dynamic_cast<const CudaPagePool&>(pool), prepared.key);
  const std::vector<Call>& calls = prepared.bucket->calls;
  for (size_t i = 0; i < calls.size(); ++i) {
    if (HasWork(prepared, calls[i])) QUIRE_RETURN_IF_ERROR(Enqueue(calls[i]));
    const bool is_last = i + 1 == calls.size() || calls[i + 1].launch != calls[i].launch;
    // What prepares kernels, and what finds the greatest logits, are none of the plan's launches.
    if (!is_last || calls[i].launch >= plan_launches_) continue;
    QUIRE_RETURN_IF_ERROR(context_.Synchronize());
    QUIRE_RETURN_IF_ERROR(watcher(calls[i].launch, memory));
  }
  return BringLogits(prepared.key, 0, logits);
}

}  // namespace quire
