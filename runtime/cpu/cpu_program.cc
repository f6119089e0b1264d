#include "runtime/cpu/cpu_program.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "ir/plan_check.h"
#include "ir/status.h"

namespace quire {
namespace {

// Activations of the rows of one chunk stay in the second-level cache.
constexpr int64_t kChunkBytes = 384 * 1024;
constexpr int64_t kFloatChunkRows = 192;
// Chunks that each thread should find, for the threads to end together.
constexpr int64_t kChunksPerThread = 4;

int64_t PiecesOf(int64_t count, int64_t piece) { return (count + piece - 1) / piece; }

int64_t StripsOf(const LinearSpec& spec) {
  return PiecesOf(spec.n, IsBlockType(spec.weight) ? 16 : 64);
}

int64_t BlocksOf(const LinearSpec& spec) { return spec.k / 32; }

}  // namespace

CpuProgram::~CpuProgram() { device_.threads().Quiesce(); }

absl::StatusOr<std::unique_ptr<PagePool>> CpuProgram::CreatePool(int32_t pages) {
  return CpuPagePool::Create(pages, std::max<int64_t>(64, kv_.page_bytes));
}

absl::Status CpuProgram::Run(const Step& step, PagePool& pool, absl::Span<float> logits) {
  auto* pages = dynamic_cast<CpuPagePool*>(&pool);
  if (pages == nullptr || pages->page_bytes() < kv_.page_bytes) {
    return absl::InvalidArgumentError("step: pages are not of this program");
  }
  QUIRE_RETURN_IF_ERROR(CheckStep(step, limits_, pages->page_count(), logits.size()));
  QUIRE_RETURN_IF_ERROR(Prepare(step, *pages, logits));
  device_.threads().Run(*line_);
  return absl::OkStatus();
}

absl::Status CpuProgram::Prepare(const Step& step, CpuPagePool& pool, absl::Span<float> logits) {
  ++steps_;
  const int64_t rows = static_cast<int64_t>(step.ids.size());
  const int64_t wanted = static_cast<int64_t>(step.logit_rows.size());
  QUIRE_RETURN_IF_ERROR(arena_.Reserve(Evaluate(arena_form_, rows, wanted)));
  page_offsets_.resize(static_cast<size_t>(rows));
  slots_.resize(static_cast<size_t>(rows));
  for (const SequenceRows& sequence : step.sequences) {
    for (int32_t i = 0; i < sequence.rows && !kv_.layers.empty(); ++i) {
      const int64_t token = sequence.context_tokens - sequence.rows + i;
      const size_t row = static_cast<size_t>(sequence.first_row + i);
      page_offsets_[row] =
          sequence.pages[static_cast<size_t>(token / kv_.page_tokens)] * pool.page_bytes();
      slots_[row] = token % kv_.page_tokens;
    }
  }
  row_step_ = {page_offsets_.data(), slots_.data(), kv_.page_tokens};
  for (const auto& [kernel, work] : attention_) {
    QUIRE_RETURN_IF_ERROR(
        work->Prepare(step.sequences, pool.page_bytes(), device_.threads().threads()));
  }
  int64_t quantized_bytes = 0;
  for (Launch& launch : launches_) {
    launch.rows = launch.rows_are_t ? rows : wanted;
    for (size_t i = 0; i < launch.operands.size(); ++i) {
      launch.pointers[i] = Find(launch.operands[i], step, pool, logits);
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

void* CpuProgram::Find(const Operand& operand, const Step& step, CpuPagePool& pool,
                       absl::Span<float> logits) const {
  switch (operand.place) {
    case Operand::Place::kFixed:
      return const_cast<void*>(operand.fixed);
    case Operand::Place::kIds:
      return const_cast<int32_t*>(step.ids.data());
    case Operand::Place::kPositions:
      return const_cast<int32_t*>(step.positions.data());
    case Operand::Place::kLogitRows:
      return const_cast<int32_t*>(step.logit_rows.data());
    case Operand::Place::kBuffer:
      if (operand.buffer == result_) return logits.data();
      return arena_.data() + Evaluate(buffers_[operand.buffer],
                                      static_cast<int64_t>(step.ids.size()),
                                      static_cast<int64_t>(step.logit_rows.size()));
    case Operand::Place::kLayer:
      return pool.data() + operand.layer_offset;
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
  const int64_t wanted =
      threads == 1 ? 1
                   : PiecesOf(threads * kChunksPerThread, std::max<int64_t>(1, launch.row_chunks));
  launch.strip_chunks = std::min(StripsOf(spec), wanted);
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
    float* y = static_cast<float*>(operands[2]);
    if (now.part == Part::kMain) {
      const AttentionItem& item = launch.work->items()[static_cast<size_t>(chunk)];
      reinterpret_cast<AttentionEntry>(kernel.main)(static_cast<const float*>(operands[0]),
                                                    operands[1], y, &item, state.scratch.data());
    } else {
      const AttentionItem& item = launch.work->merges()[static_cast<size_t>(chunk)];
      reinterpret_cast<MergeEntry>(kernel.merge)(y, &item, state.scratch.data());
    }
  } else if (std::holds_alternative<RowSpec>(kernel.spec)) {
    reinterpret_cast<RowEntry>(kernel.main)(operands.data(), &row_step_, state.scratch.data(),
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
