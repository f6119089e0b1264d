// A step launch by launch, on the caller's thread, and what it leaves in memory.
#include <cstring>

#include "absl/strings/str_cat.h"
#include "ir/dtype.h"
#include "ir/plan_check.h"
#include "ir/status.h"
#include "runtime/cpu/cpu_program.h"

namespace quire {

class CpuProgram::StepMemory : public LaunchMemory {
 public:
  StepMemory(const CpuProgram& program, const Step& step, absl::Span<float> logits)
      : program_(program), step_(step), logits_(logits) {}

  absl::StatusOr<std::vector<uint8_t>> ReadBuffer(uint32_t buffer) const override {
    if (buffer >= program_.forms_.buffers.size()) return Missing("buffer", buffer);
    Operand operand{Operand::Place::kBuffer};
    operand.buffer = buffer;
    const auto* bytes = static_cast<const uint8_t*>(program_.Find(operand, step_, logits_));
    const int64_t count =
        Evaluate(program_.forms_.buffer_bytes[buffer], static_cast<int64_t>(step_.ids.size()),
                 static_cast<int64_t>(step_.logit_rows.size()));
    return std::vector<uint8_t>(bytes, bytes + count);
  }

  absl::StatusOr<std::vector<uint8_t>> ReadLayer(uint32_t layer, bool is_v,
                                                 size_t sequence) const override {
    if (layer >= program_.forms_.layers.size()) return Missing("KV layer", layer);
    const KvLayerForm& form = program_.forms_.layers[layer];
    const Pages& pages = program_.pages_[static_cast<size_t>(form.cache)];
    if (pages.data == nullptr || sequence >= pages.sequences.size()) {
      return Missing("sequence", sequence);
    }
    const KvLayout& layout = program_.LayoutOf(form.cache);
    const KvLayout::Layer& place = layout.layers[layer];
    const int64_t page_tokens = layout.page_tokens, dim = is_v ? form.v_dim : form.k_dim;
    const SequenceRows& rows = pages.sequences[sequence];
    std::vector<uint8_t> read;
    for (int64_t token = 0; token < rows.context_tokens; ++token) {
      const uint8_t* page =
          pages.data + rows.pages[static_cast<size_t>(token / page_tokens)] * pages.page_bytes +
          (is_v ? place.v_offset : place.offset);
      const int64_t slot = token % page_tokens;
      for (int64_t i = 0; i < form.heads * dim; ++i) {
        // K [Hkv, D, page_tokens], V [Hkv, page_tokens, Dv].
        const int64_t at =
            is_v ? (i / dim * page_tokens + slot) * dim + i % dim : i * page_tokens + slot;
        read.insert(read.end(), page + at * form.element_bytes,
                    page + (at + 1) * form.element_bytes);
      }
    }
    return read;
  }

 private:
  static absl::Status Missing(absl::string_view what, size_t index) {
    return absl::InvalidArgumentError(absl::StrCat("the program has no ", what, " ", index));
  }

  const CpuProgram& program_;
  const Step& step_;
  const absl::Span<float> logits_;
};

absl::Status CpuProgram::RunWatched(const Step& step, PagePool& pool, absl::Span<float> logits,
                                    LaunchWatcher watcher) {
  QUIRE_RETURN_IF_ERROR(Check(step, pool, logits));
  QUIRE_RETURN_IF_ERROR(Prepare(step, dynamic_cast<CpuPagePool&>(pool), logits));
  const StepMemory memory(*this, step, logits);
  for (size_t task = 0; task < tasks_.size(); ++task) {
    const int32_t chunks = line_->chunks()[task];
    for (int32_t chunk = 0; chunk < chunks; ++chunk) {
      RunChunk(static_cast<int>(task), chunk, chunks, 0);
    }
    const bool is_last =
        task + 1 == tasks_.size() || tasks_[task + 1].launch != tasks_[task].launch;
    if (is_last) QUIRE_RETURN_IF_ERROR(watcher(tasks_[task].launch, memory));
  }
  return absl::OkStatus();
}

}  // namespace quire
