// A device: memory for KV pages, and programs loaded from a plan and bound to it.
//
// One step is one ragged batch: T rows (tokens), grouped by sequence, any mix of prompt chunks and
// single generated tokens, and R of these rows whose logits are wanted. The bits of a row's logits
// depend on its own sequence alone.
//
// A model with an encoder has two programs. `encode` runs over whole encoder inputs, each a
// sequence of its step, and fills pages of the pool that it creates; it has no logits. `step` reads
// these pages beside those of its own pool.
//
// Errors:  UNAVAILABLE when the device does not exist here; RESOURCE_EXHAUSTED when memory does not
// suffice;
//          INVALID_ARGUMENT when a step disagrees with itself or with the plan.
// Threads: a program runs one step at a time; the caller serialises.
// Owner:   the caller owns every object it creates; a program and its page pool must not outlive
// the device.
#ifndef QUIRE_RUNTIME_DEVICE_H_
#define QUIRE_RUNTIME_DEVICE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "codegen/kernel_cache.h"
#include "ir/plan_generated.h"
#include "runtime/greatest_logit.h"

namespace quire {

class WeightSource;  // runtime/weights.h

// One sequence's part of a step.
struct SequenceRows {
  int32_t first_row = 0;  // its rows are [first_row, first_row + rows) of the step
  int32_t rows = 0;
  int32_t context_tokens =
      0;  // tokens in its cache after this step; its last row stands at context_tokens - 1
  absl::Span<const int32_t> pages;  // its block table: page of token i is pages[i / page_tokens]
  // What `encode` left for it, likewise; 0 and empty without an encoder, and for a sequence
  // without an input where the encoder reads states.
  int32_t encoder_tokens = 0;
  absl::Span<const int32_t> encoder_pages = {};
};

class PagePool;

struct Step {
  absl::Span<const int32_t> ids;         // [T]
  absl::Span<const int32_t> positions;   // [T]
  absl::Span<const int32_t> logit_rows;  // [R], each in [0, T)
  absl::Span<const SequenceRows> sequences;
  PagePool* encoder_pool = nullptr;  // of encoder_pages
  // Of an encoder that reads states instead of ids (which are then there for their number alone):
  // for each sequence its rows x width.
  absl::Span<const absl::Span<const float>> states = {};
};

// Device memory for pages; page p of layer l holds page_tokens tokens of K and of V.
class PagePool {
 public:
  virtual ~PagePool() = default;
  virtual int32_t page_count() const = 0;
  virtual int64_t page_bytes() const = 0;  // over all layers
  virtual absl::Status CopyPage(int32_t from, int32_t to) = 0;
};

// The most that steps will have. A step of more than was reserved makes room for itself.
struct StepRoom {
  int64_t rows = 1, logit_rows = 1, sequences = 1;
  int64_t pages = 0;  // entries of all block tables
};

// A part of a device's memory: "weights".
struct MemoryUse {
  std::string what;
  int64_t bytes = 0;
};

// Where a program's kernels came from, and what it took to have them.
struct KernelUse {
  int in_plan = 0, in_cache = 0, compiled = 0;
  double ms = 0;
  int by_library = 0;  // of linears, those whose many rows a library multiplies
};

// What a program's memory holds between two launches of a step: for comparisons of each launch with
// its definition.
class LaunchMemory {
 public:
  virtual ~LaunchMemory() = default;
  // The elements of a buffer of the program, those of the step's rows, in the buffer's type.
  virtual absl::StatusOr<std::vector<uint8_t>> ReadBuffer(uint32_t buffer) const = 0;
  // K or V of one layer (by its index in Target.kv_layers) and one sequence of the step:
  // [context tokens, heads, dim] in the layer's type.
  virtual absl::StatusOr<std::vector<uint8_t>> ReadLayer(uint32_t layer, bool is_v,
                                                         size_t sequence) const = 0;
};
// Called after launch `launch` of the plan's program, before the next one runs.
using LaunchWatcher = absl::FunctionRef<absl::Status(size_t launch, const LaunchMemory& memory)>;

class Program {
 public:
  virtual ~Program() = default;
  // Runs one step. `logits` is [R, V], row r for logit_rows[r]. FAILED_PRECONDITION when a sequence
  // has no encoder output and the program reads one.
  virtual absl::Status Run(const Step& step, PagePool& pool, absl::Span<float> logits) = 0;
  // Whether it reads what another program left in encoder_pages.
  virtual bool reads_encoder() const { return false; }
  // Host memory for so many logits, which the device copies to by itself; empty where the caller's
  // own serves as well, or there is none left. Valid until the next call.
  virtual absl::Span<float> LogitsMemory(size_t floats);
  // As Run, but tells of each row of logits only what a greedy choice needs, which is less to bring
  // from a device. Where finds_greatest() says that it can; otherwise UNIMPLEMENTED, here and
  // below.
  virtual absl::Status RunGreedy(const Step& step, PagePool& pool,
                                 absl::Span<GreatestLogit> greatest);
  // Row `row` of the logits of the last step, which RunGreedy left on the device: [V].
  virtual absl::Status ReadLogits(size_t row, absl::Span<float> logits);
  virtual bool finds_greatest() const { return false; }
  // As Run, launch by launch: slow, for tools. UNIMPLEMENTED on a device that cannot.
  virtual absl::Status RunWatched(const Step& step, PagePool& pool, absl::Span<float> logits,
                                  LaunchWatcher watcher);
  // Ids from the vocabulary on that may be read, and are never chosen: an image's token.
  virtual int64_t more_ids() const { return 0; }
  // Width of the states that it reads instead of ids; 0: none.
  virtual int64_t states_width() const { return 0; }
  // Bytes of one page over all layers, before any pool exists.
  virtual int64_t page_bytes() const = 0;
  virtual absl::StatusOr<std::unique_ptr<PagePool>> CreatePool(int32_t pages) = 0;
  // Takes the memory that such steps need, so that a pool may have what is left.
  // RESOURCE_EXHAUSTED with the largest steps that fit.
  virtual absl::Status Reserve(const StepRoom& room);
  // Bytes that a pool takes when nobody says how many: a GiB, or what the device has left.
  virtual absl::StatusOr<int64_t> SpareBytes() const;
  // Of its load, for people; nothing where a device does not say.
  virtual KernelUse Kernels() const { return {}; }
  // What the program holds of the device's memory, for people.
  virtual std::vector<MemoryUse> Memory() const { return {}; }
};

struct DeviceOptions {
  int threads = 0;               // 0: the number of cores this process may use
  std::string kernel_cache_dir;  // "": $QUIRE_CACHE, else $XDG_CACHE_HOME/quire, else
                                 // ~/.cache/quire; "none": no cache
  JitPolicy jit = JitPolicy::kAuto;
  bool eager = false;     // cuda: launch kernels one by one, never as a graph; for debugging
  bool portable = false;  // cuda: kernels of devices before sm_90; for debugging
};

class Device {
 public:
  virtual ~Device() = default;
  virtual std::string Description() const = 0;  // "cpu: AMD EPYC, avx512-vnni, 2 threads"
  // Loads program `name` of `target`: builds or fetches its kernels, lays out its weights.
  virtual absl::StatusOr<std::unique_ptr<Program>> Load(const plan::TargetT& target,
                                                        absl::string_view name,
                                                        const WeightSource& weights) = 0;
};

// `name`: "cpu" or "cuda". UNAVAILABLE for a device that this build or this machine does not have,
// with what to do.
absl::StatusOr<std::unique_ptr<Device>> CreateDevice(absl::string_view name,
                                                     const DeviceOptions& options = {});

// `name`, or for "auto" what is best for this plan here: "cuda" where a GPU is found and the plan
// is lowered for it, else "cpu".
std::string ChooseDevice(absl::string_view name, const plan::PlanT& plan);
// `refused`, what is wrong with the plan on the device `chosen` for `name`, with why it was chosen
// if that is no matter of the plan.
absl::Status ExplainChoice(absl::string_view name, absl::string_view chosen,
                           const absl::Status& refused);

}  // namespace quire

#endif  // QUIRE_RUNTIME_DEVICE_H_
