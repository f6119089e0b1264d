#include "runtime/cpu/cpu_program.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "ir/plan_check.h"
#include "ir/status.h"

namespace quire {
namespace {

// Activations of the rows of one chunk stay in the second-level cache.
constexpr int64_t kChunkBytes = 384 * 1024;
constexpr int64_t kFloatChunkRows = 300;
constexpr int64_t kFloatTileRows = 6;
// Chunks that each thread should find, for the threads to end together.
constexpr int64_t kChunksPerThread = 4;
// Of products of many rows: these take long, and the last chunks are waited for.
constexpr int64_t kProductChunksPerThread = 32;

int64_t PiecesOf(int64_t count, int64_t piece) { return (count + piece - 1) / piece; }

int64_t StripsOf(const LinearSpec& spec) {
  return PiecesOf(spec.n, IsIntegerBlockType(spec.weight) ? 16 : 64);
}

int64_t BlocksOf(const LinearSpec& spec) { return spec.k / 32; }

}  // namespace

CpuProgram::~CpuProgram() { device_.threads().Quiesce(); }

absl::StatusOr<std::unique_ptr<PagePool>> CpuProgram::CreatePool(int32_t pages) {
  return CpuPagePool::Create(pages, page_bytes());
}

absl::Status CpuProgram::Check(const Step& step, PagePool& pool, absl::Span<float> logits) const {
  const auto* pages = dynamic_cast<const CpuPagePool*>(&pool);
  if (pages == nullptr || pages->page_bytes() < page_bytes()) {
    return absl::InvalidArgumentError("step: pages are not of this program");
  }
  return CheckStep(step, limits_, pages->page_count(), logits.size());
}

absl::Status CpuProgram::Run(const Step& step, PagePool& pool, absl::Span<float> logits) {
  QUIRE_RETURN_IF_ERROR(Check(step, pool, logits));
  QUIRE_RETURN_IF_ERROR(Prepare(step, dynamic_cast<CpuPagePool&>(pool), logits));
  device_.threads().Run(*line_);
  copies_->Start();
  return absl::OkStatus();
}

absl::Status CpuProgram::Prepare(const Step& step, CpuPagePool& pool, absl::Span<float> logits) {
  ++steps_;
  UseCopies();
  const int64_t rows = static_cast<int64_t>(step.ids.size());
  const int64_t wanted = static_cast<int64_t>(step.logit_rows.size());
  QUIRE_RETURN_IF_ERROR(arena_.Reserve(Evaluate(forms_.arena, rows, wanted)));
  QUIRE_RETURN_IF_ERROR(PreparePages(step, pool));
  QUIRE_RETURN_IF_ERROR(JoinStates(step));
  for (const auto& [key, work] : attention_) {
    const Pages& pages = PagesOf(key.second);
    QUIRE_RETURN_IF_ERROR(
        work->Prepare(pages.sequences, pages.page_bytes, device_.threads().threads()));
  }
  int64_t quantized_bytes = 0;
  for (Launch& launch : launches_) {
    launch.rows = launch.rows_are_t ? rows : wanted;
    for (size_t i = 0; i < launch.operands.size(); ++i) {
      launch.pointers[i] = Find(launch.operands[i], step, logits);
    }
    const auto* linear = std::get_if<LinearSpec>(&launch.kernel->spec);
    if (linear == nullptr) continue;
    CutLinear(launch);
    if (launch.kernel->quantize != nullptr && !launch.quantizes_alone) {
      const int64_t bytes = launch.rows * BlocksOf(*linear) * int64_t{sizeof(ActivationBlock)};
      quantized_bytes = std::max(quantized_bytes, bytes);
    }
  }
  QUIRE_RETURN_IF_ERROR(quantized_.Reserve(quantized_bytes));
  for (size_t task = 0; task < tasks_.size(); ++task) {
    line_->chunks()[task] = ChunksOf(tasks_[task]);
  }
  return absl::OkStatus();
}

void CpuProgram::UseCopies() {
  if (are_copies_used_ || !copies_->IsDone()) return;
  are_copies_used_ = true;
  for (Launch& launch : launches_) {
    for (Operand& operand : launch.operands) operand.fixed = copies_->Find(operand.fixed);
  }
}

// Where each class of pages is, and where each row of the step goes in those that are appended to.
absl::Status CpuProgram::PreparePages(const Step& step, CpuPagePool& pool) {
  const auto rows = static_cast<int64_t>(step.ids.size());
  Pages& own = PagesOf(own_);
  own.data = pool.data();
  own.page_bytes = pool.page_bytes();
  own.sequences.assign(step.sequences.begin(), step.sequences.end());
  PlaceRows(own, rows);
  if (limits_.reads_encoder) {
    auto* encoded = dynamic_cast<CpuPagePool*>(step.encoder_pool);
    Pages& cross = PagesOf(plan::KvCache::Cross);
    if (encoded == nullptr || encoded->page_bytes() < LayoutOf(plan::KvCache::Cross).page_bytes) {
      return absl::InvalidArgumentError("step: encoder pages are not of this plan");
    }
    cross.data = encoded->data();
    cross.page_bytes = encoded->page_bytes();
    cross.sequences.assign(step.sequences.begin(), step.sequences.end());
    for (SequenceRows& sequence : cross.sequences) {
      sequence.context_tokens = sequence.encoder_tokens;
      sequence.pages = sequence.encoder_pages;
    }
  }
  const KvLayout& layout = LayoutOf(plan::KvCache::Encoder);
  if (!limits_.is_encode || layout.page_bytes == 0) return absl::OkStatus();
  Pages& run = PagesOf(plan::KvCache::Encoder);
  run.page_bytes = layout.page_bytes;
  run.sequences.assign(step.sequences.begin(), step.sequences.end());
  const auto pages_of = [&](const SequenceRows& sequence) {
    return static_cast<size_t>((sequence.context_tokens + layout.page_tokens - 1) /
                               layout.page_tokens);
  };
  size_t count = 0;
  for (const SequenceRows& sequence : run.sequences) count += pages_of(sequence);
  while (run_table_.size() < count) run_table_.push_back(static_cast<int32_t>(run_table_.size()));
  size_t first = 0;
  for (SequenceRows& sequence : run.sequences) {
    sequence.pages = absl::MakeConstSpan(run_table_).subspan(first, pages_of(sequence));
    first += pages_of(sequence);
  }
  QUIRE_RETURN_IF_ERROR(run_pages_.Reserve(static_cast<int64_t>(count) * layout.page_bytes));
  run.data = run_pages_.data();
  PlaceRows(run, rows);
  return absl::OkStatus();
}

absl::Status CpuProgram::JoinStates(const Step& step) {
  if (step.states.size() < 2) return absl::OkStatus();
  const auto floats = static_cast<int64_t>(step.ids.size()) * limits_.states_width;
  QUIRE_RETURN_IF_ERROR(states_.Reserve(floats * int64_t{sizeof(float)}));
  auto* to = reinterpret_cast<float*>(states_.data());
  for (const absl::Span<const float> states : step.states) {
    to = std::copy(states.begin(), states.end(), to);
  }
  return absl::OkStatus();
}

void CpuProgram::PlaceRows(Pages& pages, int64_t rows) const {
  pages.page_offsets.resize(static_cast<size_t>(rows));
  pages.slots.resize(static_cast<size_t>(rows));
  const int64_t page_tokens = LayoutOf(own_).page_tokens;
  for (const SequenceRows& sequence : pages.sequences) {
    for (int32_t i = 0; i < sequence.rows && limits_.reads_pages; ++i) {
      const int64_t token = sequence.context_tokens - sequence.rows + i;
      const size_t row = static_cast<size_t>(sequence.first_row + i);
      pages.page_offsets[row] =
          sequence.pages[static_cast<size_t>(token / page_tokens)] * pages.page_bytes;
      pages.slots[row] = token % page_tokens;
    }
  }
  pages.row_step = {pages.page_offsets.data(), pages.slots.data(), page_tokens};
}

void* CpuProgram::Find(StepArgument argument, const Step& step) const {
  switch (argument) {
    case StepArgument::kIds:
      return const_cast<int32_t*>(step.ids.data());
    case StepArgument::kPositions:
      return const_cast<int32_t*>(step.positions.data());
    case StepArgument::kLogitRows:
      return const_cast<int32_t*>(step.logit_rows.data());
    case StepArgument::kStates:
      return step.states.size() == 1 ? const_cast<float*>(step.states[0].data())
                                     : static_cast<void*>(states_.data());
  }
  return nullptr;
}

void* CpuProgram::Find(const Operand& operand, const Step& step, absl::Span<float> logits) const {
  switch (operand.place) {
    case Operand::Place::kFixed:
      return const_cast<void*>(operand.fixed);
    case Operand::Place::kArgument:
      return Find(operand.argument, step);
    case Operand::Place::kBuffer:
      if (operand.buffer == forms_.result) return logits.data();
      return arena_.data() + Evaluate(forms_.buffers[operand.buffer],
                                      static_cast<int64_t>(step.ids.size()),
                                      static_cast<int64_t>(step.logit_rows.size()));
    case Operand::Place::kLayer:
      return pages_[static_cast<size_t>(operand.cache)].data + operand.layer_offset;
  }
  return nullptr;
}

void CpuProgram::CutLinear(Launch& launch) {
  const auto& spec = std::get<LinearSpec>(launch.kernel->spec);
  const int64_t threads = device_.threads().threads();
  const bool quantizes = launch.kernel->quantize != nullptr;
  launch.quantizes_alone = quantizes && threads > 1 && launch.rows * spec.k <= kAloneElements;
  const int64_t row_bytes = BlocksOf(spec) * int64_t{sizeof(ActivationBlock)};
  launch.chunk_rows =
      quantizes ? std::max<int64_t>(16, kChunkBytes / row_bytes / 8 * 8) : kFloatChunkRows;
  launch.row_chunks = PiecesOf(launch.rows, launch.chunk_rows);
  int64_t wanted = threads == 1 ? 1 : threads * kChunksPerThread;
  if (!quantizes && launch.row_chunks > 1) {
    // All of one height: a short last one would read the weights again for few rows.
    launch.chunk_rows =
        PiecesOf(PiecesOf(launch.rows, launch.row_chunks), kFloatTileRows) * kFloatTileRows;
    launch.row_chunks = PiecesOf(launch.rows, launch.chunk_rows);
    if (threads > 1) wanted = threads * kProductChunksPerThread;
  }
  launch.strip_chunks =
      std::min(StripsOf(spec), PiecesOf(wanted, std::max<int64_t>(1, launch.row_chunks)));
}

int32_t CpuProgram::ChunksOf(const Task& task) const {
  const Launch& launch = launches_[task.launch];
  const int64_t threads = device_.threads().threads();
  const int64_t by_rows = std::min(launch.rows, threads == 1 ? 1 : threads * kChunksPerThread);
  if (std::holds_alternative<LinearSpec>(launch.kernel->spec)) {
    if (task.part == Part::kQuantize) {
      return launch.quantizes_alone ? 0 : static_cast<int32_t>(by_rows);
    }
    return static_cast<int32_t>(launch.row_chunks * launch.strip_chunks);
  }
  if (launch.work != nullptr) {
    return static_cast<int32_t>(task.part == Part::kMain ? launch.work->items().size()
                                                         : launch.work->merges().size());
  }
  return static_cast<int32_t>(by_rows);
}

void CpuProgram::RunChunk(int task, int chunk, int chunks, int thread) {
  const Task& now = tasks_[static_cast<size_t>(task)];
  const Launch& launch = launches_[now.launch];
  const CpuKernel& kernel = *launch.kernel;
  Thread& state = threads_[static_cast<size_t>(thread)];
  const auto& operands = launch.pointers;
  if (launch.work != nullptr) {
    float* y = static_cast<float*>(operands.back());
    if (now.part == Part::kMain) {
      const AttentionItem& item = launch.work->items()[static_cast<size_t>(chunk)];
      reinterpret_cast<AttentionEntry>(kernel.main)(static_cast<const float*>(operands[0]),
                                                    operands[1], y, &item, state.scratch.data(),
                                                    &launch.tables);
    } else {
      const AttentionItem& item = launch.work->merges()[static_cast<size_t>(chunk)];
      reinterpret_cast<MergeEntry>(kernel.merge)(y, &item, state.scratch.data(), &launch.tables);
    }
  } else if (std::holds_alternative<RowSpec>(kernel.spec)) {
    reinterpret_cast<RowEntry>(kernel.main)(operands.data(), launch.row_step, state.scratch.data(),
                                            launch.rows * chunk / chunks,
                                            launch.rows * (chunk + 1) / chunks);
  } else if (now.part == Part::kQuantize) {
    RunQuantize(launch, chunk, chunks);
  } else {
    RunLinear(launch, steps_ * tasks_.size() + static_cast<uint64_t>(task), chunk, state);
  }
}

void CpuProgram::RunQuantize(const Launch& launch, int chunk, int chunks) {
  reinterpret_cast<QuantizeEntry>(launch.kernel->quantize)(
      static_cast<const float*>(launch.pointers[0]),
      reinterpret_cast<ActivationBlock*>(quantized_.data()), launch.rows * chunk / chunks,
      launch.rows * (chunk + 1) / chunks);
}

// `number`: of this launch in this step.
void CpuProgram::RunLinear(const Launch& launch, uint64_t number, int chunk, Thread& thread) {
  const auto& spec = std::get<LinearSpec>(launch.kernel->spec);
  const auto& operands = launch.pointers;
  const void* x = operands[0];
  if (launch.quantizes_alone) {
    if (thread.quantized_for != number) {
      reinterpret_cast<QuantizeEntry>(launch.kernel->quantize)(static_cast<const float*>(x),
                                                               thread.quantized, 0, launch.rows);
      thread.quantized_for = number;
    }
    x = thread.quantized;
  } else if (launch.kernel->quantize != nullptr) {
    x = quantized_.data();
  }
  size_t next = 2;
  const float* bias = spec.bias ? static_cast<const float*>(operands[next++]) : nullptr;
  const float* residual = spec.residual ? static_cast<const float*>(operands[next++]) : nullptr;
  float* y = static_cast<float*>(operands[next]);
  const int64_t row = chunk / launch.strip_chunks * launch.chunk_rows;
  const int64_t strip = chunk % launch.strip_chunks, strips = StripsOf(spec);
  reinterpret_cast<LinearEntry>(launch.kernel->main)(
      x, operands[1], bias, residual, y, row, std::min(launch.rows, row + launch.chunk_rows),
      strips * strip / launch.strip_chunks, strips * (strip + 1) / launch.strip_chunks);
}

}  // namespace quire
