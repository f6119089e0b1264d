// A program of a plan, bound to the CPU.
//
// Load builds kernels and packs weights, both on several threads. Weights that the plan has packed
// are read where its file is mapped; after the first step a thread copies them into huge pages,
// which later steps read a quarter faster. Run resolves the launches'
// operands for the step's T and R and walks them as one TaskLine: a linear with block-quantised
// weights is two tasks (quantise rows, multiply), attention is two (sums of splits, merge). Chunks
// are cut by rows and strips, and for attention by queries and splits; no result depends on the
// cut.
//
// Caches: a program appends to pages of the pool that it is run with (self for step, cross for
// encode); step reads cross pages of the step's encoder pool, encode reads and writes pages of its
// own memory that last for the run.
#ifndef QUIRE_RUNTIME_CPU_CPU_PROGRAM_H_
#define QUIRE_RUNTIME_CPU_CPU_PROGRAM_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "codegen/cpu/abi.h"
#include "codegen/cpu/kernel.h"
#include "runtime/cpu/attention_work.h"
#include "runtime/cpu/background_copy.h"
#include "runtime/cpu/cpu_device.h"
#include "runtime/cpu/cpu_weights.h"
#include "runtime/cpu/host_memory.h"
#include "runtime/cpu/kv_pages.h"
#include "runtime/cpu/thread_pool.h"
#include "runtime/device.h"
#include "runtime/program_forms.h"
#include "runtime/step_check.h"

namespace quire {

class CpuProgram : public Program {
 public:
  static absl::StatusOr<std::unique_ptr<CpuProgram>> Load(CpuDevice& device,
                                                          const plan::TargetT& target,
                                                          absl::string_view name,
                                                          const WeightSource& weights);
  ~CpuProgram() override;

  absl::Status Run(const Step& step, PagePool& pool, absl::Span<float> logits) override;
  absl::Status RunWatched(const Step& step, PagePool& pool, absl::Span<float> logits,
                          LaunchWatcher watcher) override;
  bool reads_encoder() const override { return limits_.reads_encoder; }
  int64_t more_ids() const override { return limits_.more_ids(); }
  int64_t states_width() const override { return limits_.states_width; }
  int64_t page_bytes() const override { return LayoutOf(own_).page_bytes; }
  absl::StatusOr<std::unique_ptr<PagePool>> CreatePool(int32_t pages) override;

 private:
  // Where an operand is: fixed memory, or to be found for each step.
  struct Operand {
    enum class Place { kFixed, kArgument, kBuffer, kLayer };
    Place place = Place::kFixed;
    const void* fixed = nullptr;
    StepArgument argument = StepArgument::kIds;
    uint32_t buffer = 0;
    plan::KvCache cache = plan::KvCache::Self;
    int64_t layer_offset = 0;  // in page 0 of the cache's pages
  };
  class StepMemory;  // of a step that is watched (cpu_program_watch.cc)
  // The pages of one class, in the step at hand.
  struct Pages {
    uint8_t* data = nullptr;
    int64_t page_bytes = 0;
    std::vector<SequenceRows> sequences;  // with the block tables of this class
    // Of each row, for appends.
    std::vector<int64_t> page_offsets, slots;
    RowStep row_step{};
  };
  struct Launch {
    const CpuKernel* kernel = nullptr;
    bool rows_are_t = true;
    std::vector<Operand> operands;      // as the kernel takes them; inputs, then outputs
    AttentionWork* work = nullptr;      // attention
    AttentionTables tables;             // attention
    const RowStep* row_step = nullptr;  // row: of the class that it appends to
    // Of the step at hand.
    std::vector<void*> pointers;
    int64_t rows = 0;
    int64_t row_chunks = 1, chunk_rows = 0, strip_chunks = 1;
    bool quantizes_alone = false;  // every thread quantises all rows for itself
  };
  enum class Part { kQuantize, kMain, kMerge };
  struct Task {
    size_t launch;
    Part part;
  };
  // A linear of at most this many elements of x has them quantised by every thread for itself: less
  // work than to wait for each other.
  static constexpr int64_t kAloneElements = 32768;
  // What a thread remembers between chunks of a task.
  struct alignas(64) Thread {
    HostMemory scratch;
    ActivationBlock* quantized = nullptr;  // room for kAloneElements
    uint64_t quantized_for = 0;            // number of the launch and step whose rows it holds
  };

  explicit CpuProgram(CpuDevice& device) : device_(device) {}

  // Loading (cpu_program_load.cc).
  absl::Status LoadKernels(const plan::TargetT& target, const plan::ProgramT& program);
  absl::Status LoadWeights(const plan::TargetT& target, const plan::ProgramT& program,
                           const WeightSource& source);
  void CopyWeights(const plan::TargetT& target, const plan::ProgramT& program);
  absl::Status BindLaunch(const plan::ProgramT& program, const plan::LaunchT& launch);
  absl::StatusOr<Operand> Bind(const plan::Operand& operand, const plan::ProgramT& program) const;
  absl::Status BindRows(const plan::LaunchT& launch, size_t inputs, Launch& bound);
  absl::Status Finish();

  // Running (cpu_program.cc).
  absl::Status Check(const Step& step, PagePool& pool, absl::Span<float> logits) const;
  absl::Status Prepare(const Step& step, CpuPagePool& pool, absl::Span<float> logits);
  void UseCopies();
  absl::Status PreparePages(const Step& step, CpuPagePool& pool);
  absl::Status JoinStates(const Step& step);
  void PlaceRows(Pages& pages, int64_t rows) const;
  void* Find(StepArgument argument, const Step& step) const;
  void* Find(const Operand& operand, const Step& step, absl::Span<float> logits) const;
  void CutLinear(Launch& launch);
  int32_t ChunksOf(const Task& task) const;
  void RunChunk(int task, int chunk, int chunks, int thread);
  void RunLinear(const Launch& launch, uint64_t number, int chunk, Thread& thread);
  void RunQuantize(const Launch& launch, int chunk, int chunks);

  CpuDevice& device_;
  static constexpr size_t kCaches = 3;  // plan::KvCache
  Pages& PagesOf(plan::KvCache cache) { return pages_[static_cast<size_t>(cache)]; }
  const KvLayout& LayoutOf(plan::KvCache cache) const {
    return layouts_[static_cast<size_t>(cache)];
  }

  plan::KvCache own_ = plan::KvCache::Self;  // the class of the pool that it is run with
  KvLayout layouts_[kCaches];
  Pages pages_[kCaches];
  HostMemory run_pages_;                          // of the class that lasts for one run
  std::vector<int32_t> run_table_;                // 0, 1, 2, ...
  std::map<uint32_t, const CpuKernel*> kernels_;  // by index into Target.kernels
  std::map<uint32_t, CpuWeight> weights_;         // by index into Target.weights
  HostMemory packed_;                             // what weights_ had to be packed into
  // Of what the plan has packed: begun after the first step, used from the step on that finds them.
  std::unique_ptr<BackgroundCopy> copies_;
  bool are_copies_used_ = false;
  std::map<uint32_t, std::vector<float>> biases_;
  std::map<std::pair<uint32_t, const CpuKernel*>, std::vector<float>> relative_;  // unrolled
  std::map<std::pair<uint32_t, int64_t>, std::vector<float>> kv_scales_;          // and by heads
  std::vector<Launch> launches_;
  std::vector<Task> tasks_;
  std::map<std::pair<const CpuKernel*, plan::KvCache>, std::unique_ptr<AttentionWork>> attention_;
  ProgramForms forms_;
  StepLimits limits_;

  HostMemory arena_, quantized_;  // quantized_: rows of one linear, by all threads
  HostMemory states_;             // of several sequences, joined
  std::vector<Thread> threads_;
  uint64_t steps_ = 0;
  std::unique_ptr<TaskLine> line_;
};

}  // namespace quire

#endif  // QUIRE_RUNTIME_CPU_CPU_PROGRAM_H_
