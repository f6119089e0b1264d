// A program of a plan, bound to a GPU.
//
// Load builds kernels and brings weights to the device. A step is padded to a bucket of rows (T)
// and of rows with logits (R). What a bucket launches is resolved once: kernels, grids and
// arguments depend on the bucket, on the pool and on where the program's memory lies, and on
// nothing else. Of small buckets it is captured as a graph; large ones are launched one by one,
// which the device does not notice. A step is one copy to the device, those of these launches that
// have work in it, and one copy of the logits back, unless greedy choices are all that is wanted;
// what has no logits, as `encode`, is not waited for.
//
// Memory, each in one piece that grows when a step needs more (then everything is resolved again):
//   arena      activations, by the plan's closed form at the greatest bucket
//   workspace  shared by launches; its first bytes are zero between them
//   kernels'   what their Prepare() asks for
//   block      the step (runtime/cuda/step_block.h)
//   states     of `encode`, where it reads states: as kernels read them
//   run        of `encode`: pages that last for a run. Layers have the same place: a layer is read
//              before the next is written
//   logits     host memory that the device copies to without a detour; none before it is asked for
//   greatest   what a greedy choice needs of each row of logits: host memory, which kernels write
//              and nobody needs to copy
#ifndef QUIRE_RUNTIME_CUDA_CUDA_PROGRAM_H_
#define QUIRE_RUNTIME_CUDA_CUDA_PROGRAM_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "codegen/cuda/target_kernels.h"
#include "codegen/row_operands.h"
#include "codegen/spec.h"
#include "runtime/cuda/cuda_device.h"
#include "runtime/cuda/cuda_pages.h"
#include "runtime/cuda/cuda_tables.h"
#include "runtime/cuda/cuda_weights.h"
#include "runtime/cuda/step_block.h"
#include "runtime/cuda/tensor_map.h"
#include "runtime/device.h"
#include "runtime/program_forms.h"
#include "runtime/step_check.h"

namespace quire {

class CudaProgram : public Program {
 public:
  static absl::StatusOr<std::unique_ptr<CudaProgram>> Load(CudaDevice& device,
                                                           const plan::TargetT& target,
                                                           absl::string_view name,
                                                           const WeightSource& weights);
  ~CudaProgram() override;

  absl::Status Run(const Step& step, PagePool& pool, absl::Span<float> logits) override;
  absl::Span<float> LogitsMemory(size_t floats) override;
  absl::Status RunGreedy(const Step& step, PagePool& pool,
                         absl::Span<GreatestLogit> greatest) override;
  absl::Status ReadLogits(size_t row, absl::Span<float> logits) override;
  bool reads_encoder() const override { return limits_.reads_encoder; }
  int64_t more_ids() const override { return limits_.more_ids(); }
  int64_t states_width() const override { return limits_.states_width; }
  bool finds_greatest() const override { return finds_greatest_; }
  absl::Status RunWatched(const Step& step, PagePool& pool, absl::Span<float> logits,
                          LaunchWatcher watcher) override;
  int64_t page_bytes() const override { return own_pages_.page_bytes; }
  absl::StatusOr<std::unique_ptr<PagePool>> CreatePool(int32_t pages) override;
  absl::Status Reserve(const StepRoom& room) override;
  absl::StatusOr<int64_t> SpareBytes() const override;
  KernelUse Kernels() const override { return kernel_use_; }
  std::vector<MemoryUse> Memory() const override;

 private:
  // Where an operand is: fixed memory, or to be found for each bucket.
  struct Operand {
    enum class Place { kWeight, kArgument, kBuffer, kLayer, kGreatest };
    Place place = Place::kWeight;
    CuDevicePtr weight = 0;
    StepArgument argument = StepArgument::kIds;
    uint32_t index = 0;                         // of a buffer or layer
    plan::KvCache cache = plan::KvCache::Self;  // of a layer
  };
  // A kernel with the pages of one cache: what is done for all of their launches once a step.
  struct Use {
    uint32_t kernel = 0;  // index into Target.kernels
    plan::KvCache cache = plan::KvCache::Self;
    CudaKernel::Preparation preparation = {};  // for the room that there is
    int64_t plan_offset = 0;                   // of its memory
  };
  struct Launch {
    size_t use = 0;  // index into uses_
    bool rows_are_t = true;
    std::vector<Operand> operands;  // inputs, then outputs
  };
  struct Kernel {
    KernelSpec spec;
    RowOperands rows;  // of a row kernel
    std::vector<CuFunction> functions;
    bool is_used = false;
  };
  static constexpr size_t kNoLaunch = ~size_t{0};
  // Which sequences a call has work for, of their own cache's tokens or of the other's.
  struct Work {
    CudaWork of;
    bool is_own = true;
    friend bool operator==(const Work& a, const Work& b) = default;
  };
  // A launch as the driver takes it.
  struct Call {
    size_t launch = kNoLaunch;      // index into launches_, but for what prepares kernels
    Work work;                      // of some sequence: otherwise it is left out
    CuFunction function = nullptr;  // null: `product`
    unsigned grid = 1, threads = 1, shared_bytes = 0;
    std::vector<uint64_t> words;
    std::vector<EncodedTensorMap> maps;
    std::vector<void*> arguments;        // each in `words` or `maps`, which never grow
    std::optional<CudaProduct> product;  // of a library; `words`: x, weight, sums
  };
  // A bucket, resolved.
  struct Bucket {
    std::vector<Call> calls;
    std::vector<Work> works;                 // those of the calls, each once
    std::map<uint64_t, CuGraphExec> graphs;  // by the works that steps have
    uint64_t last_step = 0;
  };
  using Key = std::pair<int64_t, int64_t>;  // T, R
  // A step that is checked and resolved, its block in staged_block_.
  struct Prepared {
    Key key;
    Bucket* bucket = nullptr;
    uint64_t work = 0;  // bit i: some sequence has work as bucket->works[i] says
    int64_t block_bytes = 0;
  };
  class StepMemory;  // of a step that is watched (cuda_program_watch.cc)
  // Buckets and lists that memory suffices for.
  struct Room {
    int64_t T = 0, R = 0, sequences = 0, pages = 0;
    friend bool operator==(const Room& a, const Room& b) = default;
  };
  struct RoomBytes {
    int64_t arena = 0, workspace = 0, plans = 0, block = 0, states = 0, run = 0;
    int64_t all() const { return arena + workspace + plans + block + states + run; }
  };
  // What a bucket's launches point to.
  struct Frame {
    int64_t T, R;
    StepLayout layout;
    const CudaPagePool& pool;
    const CudaPagePool* encoder_pool;  // null where none is read
  };

  explicit CudaProgram(CudaDevice& device) : device_(device), context_(device.context()) {}

  // Loading (cuda_program_load.cc).
  absl::Status LoadKernels(const plan::TargetT& target, const plan::ProgramT& program,
                           const PlanFile& file);
  absl::Status LoadCaches(const plan::TargetT& target);
  absl::Status LoadFunctions(const CudaKernel& source, absl::Span<const BuiltEntry> built,
                             Kernel* kernel);
  absl::Status LoadWeights(const plan::TargetT& target, const plan::ProgramT& program,
                           const WeightSource& source);
  absl::Status BindLaunch(const plan::ProgramT& program, const plan::LaunchT& launch,
                          const plan::TargetT& target);
  absl::StatusOr<Operand> Bind(const plan::Operand& operand, size_t index,
                               const plan::LaunchT& launch, const plan::ProgramT& program,
                               const plan::TargetT& target) const;
  size_t UseOf(uint32_t kernel, plan::KvCache cache);

  // Memory and resolving (cuda_program_bind.cc).
  absl::Status MakeRoom(const Room& wanted);
  // Has kernels use a library where it has their bits.
  absl::Status AskLibrary();
  RoomBytes BytesOf(const Room& room) const;
  absl::Status Allocate(const Room& room);
  absl::Status TooLarge(const Room& room, int64_t free_bytes) const;
  absl::StatusOr<Bucket*> FindBucket(int64_t T, int64_t R, const CudaPagePool& pool,
                                     const CudaPagePool* encoder_pool);
  absl::Status Resolve(const Frame& frame, Bucket* bucket) const;
  Call CallOf(size_t kernel, const CudaLaunch& launch) const;
  absl::StatusOr<Call> ResolveCall(const CudaLaunch& launch, const Use& use, const Launch& bound,
                                   const Frame& frame) const;
  absl::StatusOr<uint64_t> ResolveArgument(const CudaArgument& argument, const Use& use,
                                           const Launch& bound, const Frame& frame) const;
  CuDevicePtr Find(StepArgument argument, const StepLayout& layout) const;
  CuDevicePtr Find(const Operand& operand, const Frame& frame) const;
  void Forget(std::map<Key, Bucket>::iterator bucket);
  void ForgetAll();

  // Running (cuda_program.cc).
  absl::StatusOr<Prepared> Prepare(const Step& step, PagePool& pool, size_t logit_floats);
  // The block and the states of a step, from staged memory.
  absl::Status Send(const Step& step, const Prepared& prepared);
  absl::StatusOr<CudaPagePool*> PoolOf(PagePool* pool, const CudaPageLayout& layout) const;
  // Enqueues a step; returns its buckets.
  absl::StatusOr<Key> Start(const Step& step, PagePool& pool, size_t logit_floats);
  absl::Status SendStates(const Step& step);
  absl::Status Bring(void* to, CuDevicePtr from, size_t bytes);
  absl::Status Wait();
  // Until staged memory is free again.
  absl::Status WaitForStaged();
  // From row `first_row` on, of a step of these buckets.
  absl::Status BringLogits(const Key& key, size_t first_row, absl::Span<float> logits);
  static bool HasWork(const Prepared& prepared, const Call& call);
  absl::Status Enqueue(const Prepared& prepared);
  absl::Status Enqueue(const Call& call);
  absl::StatusOr<CuGraphExec> Capture(const Prepared& prepared);

  CudaDevice& device_;
  const CudaContext& context_;
  plan::KvCache own_ = plan::KvCache::Self;  // the class of the pool that it is run with
  CudaPageLayout own_pages_, encoder_pages_, run_layout_;
  StepCaches caches_ = StepCaches::kNone;
  CudaKernels sources_;          // by index into Target.kernels; last the one that finds greatest
  std::vector<Kernel> kernels_;  // likewise
  bool finds_greatest_ = false;
  KernelUse kernel_use_;
  std::vector<CuLibrary> libraries_;
  CudaWeights weights_;
  CudaTables tables_;
  std::vector<Use> uses_;
  std::vector<Launch> launches_;
  size_t plan_launches_ = 0;  // those of the plan, the first ones of launches_
  ProgramForms forms_;
  StepLimits limits_;
  DType states_type_ = DType::kF32;  // in which kernels read states

  Room room_;
  CudaMemory arena_, workspace_, plans_, block_, states_, run_pages_;
  PinnedMemory staged_block_, staged_states_, greatest_, logits_;
  bool is_under_way_ = false;  // a step that was not waited for
  Key left_ = {0, 0};          // buckets of the step whose logits are still there
  size_t left_rows_ = 0;       // of them
  CuEvent sent_ = nullptr;     // its block, where there is nothing to wait for
  bool has_asked_library_ = false;
  std::map<Key, Bucket> resolved_;
  std::pair<uint64_t, uint64_t> pool_numbers_;  // that resolved_ is for
  uint64_t steps_ = 0;
};

}  // namespace quire

#endif  // QUIRE_RUNTIME_CUDA_CUDA_PROGRAM_H_
