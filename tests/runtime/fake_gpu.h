// A GPU of host memory: a table of libcuda's functions for tests on machines without one.
//
// What is enqueued runs as late as it may, when someone waits for it, so that memory that is read
// or reused too early shows. Kernels do what `on_launch` does with them; a library is its bytes as
// text. Every object is counted: whatever is left is a leak.
// Threads: the functions may be called from several. One FakeGpu at a time.
#ifndef QUIRE_TESTS_RUNTIME_FAKE_GPU_H_
#define QUIRE_TESTS_RUNTIME_FAKE_GPU_H_

#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "runtime/cuda/driver.h"

namespace quire::testing {

struct FakeFunction {
  std::string source, entry;
  int shared_bytes = 0;
  int arguments = 0;  // that launches pass
};

struct FakeLaunch {
  const FakeFunction* function = nullptr;
  unsigned grid = 0, threads = 0, shared_bytes = 0;
  bool dependent = false;
  std::vector<uint64_t> arguments;
};

class FakeGpu {
 public:
  FakeGpu() {
    current_ = this;
    FillTable();
  }
  ~FakeGpu() { current_ = nullptr; }
  FakeGpu(const FakeGpu&) = delete;

  const CudaDriver& driver() const { return driver_; }

  size_t total_bytes = size_t{1} << 30;
  // A function that fails with an error at its n-th call from now (0: the next).
  std::map<std::string, std::pair<int, CuResult>> failures;
  // How many arguments kernels take, by the text of their library; the driver knows it from the
  // binary.
  std::function<int(const std::string& source)> arguments_of = [](const std::string&) { return 0; };
  std::function<void(const FakeLaunch&)> on_launch = [](const FakeLaunch&) {};

  std::vector<FakeLaunch> launches;  // that have run
  int graph_launches = 0, graphs_made = 0, copies_to_device = 0, copies_to_host = 0;
  int events_recorded = 0;

  // Objects and memory that exist, "memory 2, stream 1", "" for none.
  std::string Living() const {
    std::string text;
    for (const auto& [what, count] : living_) {
      if (count == 0) continue;
      text += (text.empty() ? "" : ", ") + what + " " + std::to_string(count);
    }
    return text;
  }
  size_t used_bytes() const { return used_bytes_; }
  bool IsPinned(const void* at) const { return host_memory_.contains(const_cast<void*>(at)); }
  // Whether [at, at + bytes) lies in one allocation.
  bool IsMemory(CuDevicePtr at, size_t bytes) const {
    auto found = memory_.upper_bound(at);
    if (found == memory_.begin()) return false;
    --found;
    return at + bytes <= found->first + found->second.size();
  }

 private:
  static constexpr CuResult kInvalid = 1, kOutOfMemory = 2, kIllegalAddress = 700;
  struct Operation {
    std::function<void()> run;
    CuEvent event = nullptr;
  };
  struct Graph {
    std::vector<FakeLaunch> launches;
  };

  CuResult Failure(const char* name) {
    const auto found = failures.find(name);
    if (found == failures.end() || found->second.first-- > 0) return 0;
    const CuResult result = found->second.second;
    failures.erase(found);
    return result;
  }
  void RunAll() {
    while (!queue_.empty()) RunOne();
  }
  void RunOne() {
    const Operation operation = std::move(queue_.front());
    queue_.pop_front();
    if (operation.run) operation.run();
  }
  bool IsPending(CuEvent event) const {
    for (const Operation& operation : queue_) {
      if (operation.event == event) return true;
    }
    return false;
  }
  template <typename Handle>
  Handle New(const char* what) {
    ++living_[what];
    return reinterpret_cast<Handle>(++last_handle_ * 16);
  }
  void Run(const FakeLaunch& launch) {
    launches.push_back(launch);
    on_launch(launch);
  }
  CuResult Enqueue(std::function<void()> run) {
    if (is_capturing_) return kInvalid;
    queue_.push_back({std::move(run), nullptr});
    return 0;
  }

  void FillTable();

  static inline FakeGpu* current_ = nullptr;
  CudaDriver driver_;
  mutable std::mutex mutex_;
  std::map<CuDevicePtr, std::vector<uint8_t>> memory_;
  std::map<void*, std::unique_ptr<uint8_t[]>> host_memory_;
  std::map<CuLibrary, std::string> sources_;
  std::map<CuLibrary, std::vector<std::unique_ptr<FakeFunction>>> functions_;
  std::map<CuGraph, Graph> graphs_;
  std::map<CuGraphExec, Graph> execs_;
  std::map<std::string, int> living_;
  size_t used_bytes_ = 0;
  uintptr_t last_handle_ = 0;
  std::deque<Operation> queue_;
  bool is_capturing_ = false;
  std::vector<FakeLaunch> captured_;
};

inline void FakeGpu::FillTable() {
// A function of the table: `gpu` is the machine, a planned failure comes first.
#define QUIRE_FAKE(member, parameters, ...)                          \
  driver_.member = [] parameters -> CuResult {                       \
    FakeGpu& gpu = *current_;                                        \
    const std::lock_guard<std::mutex> lock(gpu.mutex_);              \
    if (const CuResult failed = gpu.Failure(#member)) return failed; \
    __VA_ARGS__;                                                     \
    return 0;                                                        \
  };
  driver_.GetErrorName = [](CuResult error, const char** name) -> CuResult {
    *name = error == kOutOfMemory ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_FAKE";
    return 0;
  };
  driver_.GetErrorString = [](CuResult, const char** text) -> CuResult {
    *text = "as the test wants";
    return 0;
  };
  QUIRE_FAKE(Init, (unsigned), )
  QUIRE_FAKE(DriverGetVersion, (int* version), *version = 13000)
  QUIRE_FAKE(DeviceGetCount, (int* count), *count = 1)
  QUIRE_FAKE(DeviceGet, (CuDevice * device, int ordinal), *device = ordinal)
  QUIRE_FAKE(DeviceGetName, (char* name, int bytes, CuDevice),
             std::strncpy(name, "Fake H200", static_cast<size_t>(bytes)))
  QUIRE_FAKE(
      DeviceGetAttribute, (int* value, CuDeviceAttribute attribute, CuDevice), switch (attribute) {
        case kCuMultiprocessors:
          *value = 132;
          break;
        case kCuComputeMajor:
          *value = 9;
          break;
        case kCuComputeMinor:
          *value = 0;
          break;
        case kCuSharedBytesPerBlockOptin:
          *value = 227 * 1024;
          break;
        default:
          return kInvalid;
      })
  QUIRE_FAKE(DevicePrimaryCtxRetain, (CuContext * context, CuDevice),
             *context = gpu.New<CuContext>("context"))
  QUIRE_FAKE(DevicePrimaryCtxRelease, (CuDevice), --gpu.living_["context"])
  QUIRE_FAKE(CtxSetCurrent, (CuContext), )
  QUIRE_FAKE(MemGetInfo, (size_t* free_bytes, size_t* total), *total = gpu.total_bytes;
             *free_bytes = gpu.total_bytes - gpu.used_bytes_)
  QUIRE_FAKE(MemAlloc, (CuDevicePtr * at, size_t bytes),
             if (gpu.used_bytes_ + bytes > gpu.total_bytes) return kOutOfMemory;
             std::vector<uint8_t> memory(bytes, 0xff);
             *at = reinterpret_cast<CuDevicePtr>(memory.data()); gpu.used_bytes_ += bytes;
             ++gpu.living_["memory"]; gpu.memory_[*at] = std::move(memory))
  QUIRE_FAKE(MemFree, (CuDevicePtr at), gpu.RunAll(); const auto found = gpu.memory_.find(at);
             if (found == gpu.memory_.end()) return kInvalid;
             gpu.used_bytes_ -= found->second.size(); --gpu.living_["memory"];
             gpu.memory_.erase(found))
  QUIRE_FAKE(MemHostAlloc, (void** at, size_t bytes, unsigned),
             auto memory = std::make_unique<uint8_t[]>(bytes);
             *at = memory.get(); ++gpu.living_["pinned memory"];
             gpu.host_memory_[*at] = std::move(memory))
  QUIRE_FAKE(MemFreeHost, (void* at), gpu.RunAll();
             if (gpu.host_memory_.erase(at) == 0) return kInvalid; --gpu.living_["pinned memory"])
  QUIRE_FAKE(MemcpyHtoDAsync, (CuDevicePtr to, const void* from, size_t bytes, CuStream),
             if (!gpu.IsMemory(to, bytes)) return kIllegalAddress;
             ++gpu.copies_to_device; return gpu.Enqueue(
                 [to, from, bytes] { std::memcpy(reinterpret_cast<void*>(to), from, bytes); }))
  QUIRE_FAKE(MemcpyDtoHAsync, (void* to, CuDevicePtr from, size_t bytes, CuStream),
             if (!gpu.IsMemory(from, bytes)) return kIllegalAddress;
             ++gpu.copies_to_host; return gpu.Enqueue([to, from, bytes] {
               std::memcpy(to, reinterpret_cast<const void*>(from), bytes);
             }))
  QUIRE_FAKE(MemcpyDtoDAsync, (CuDevicePtr to, CuDevicePtr from, size_t bytes, CuStream),
             if (!gpu.IsMemory(to, bytes) || !gpu.IsMemory(from, bytes)) return kIllegalAddress;
             return gpu.Enqueue([to, from, bytes] {
               std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
             }))
  QUIRE_FAKE(MemsetD8Async, (CuDevicePtr to, unsigned char value, size_t bytes, CuStream),
             if (!gpu.IsMemory(to, bytes)) return kIllegalAddress;
             return gpu.Enqueue(
                 [to, value, bytes] { std::memset(reinterpret_cast<void*>(to), value, bytes); }))
  QUIRE_FAKE(StreamCreate, (CuStream * stream, unsigned), *stream = gpu.New<CuStream>("stream"))
  QUIRE_FAKE(StreamDestroy, (CuStream), --gpu.living_["stream"])
  QUIRE_FAKE(StreamSynchronize, (CuStream), gpu.RunAll())
  QUIRE_FAKE(StreamBeginCapture, (CuStream, int), if (gpu.is_capturing_) return kInvalid;
             gpu.is_capturing_ = true; gpu.captured_.clear())
  QUIRE_FAKE(StreamEndCapture, (CuStream, CuGraph * graph), if (!gpu.is_capturing_) return kInvalid;
             gpu.is_capturing_ = false; *graph = gpu.New<CuGraph>("graph");
             gpu.graphs_[*graph] = {std::move(gpu.captured_)})
  QUIRE_FAKE(EventCreate, (CuEvent * event, unsigned), *event = gpu.New<CuEvent>("event"))
  QUIRE_FAKE(EventDestroy, (CuEvent), --gpu.living_["event"])
  QUIRE_FAKE(EventRecord, (CuEvent event, CuStream), ++gpu.events_recorded;
             gpu.queue_.push_back({nullptr, event}))
  QUIRE_FAKE(EventSynchronize, (CuEvent event), while (gpu.IsPending(event)) gpu.RunOne())
  QUIRE_FAKE(
      LibraryLoadData,
      (CuLibrary * library, const void* code, int*, void**, unsigned, int*, void**, unsigned),
      *library = gpu.New<CuLibrary>("library");
      gpu.sources_[*library] = static_cast<const char*>(code))
  QUIRE_FAKE(LibraryUnload, (CuLibrary library),
             if (gpu.sources_.erase(library) == 0) return kInvalid;
             gpu.functions_.erase(library); --gpu.living_["library"])
  QUIRE_FAKE(LibraryGetKernel, (CuKernel * kernel, CuLibrary library, const char* name),
             auto function = std::make_unique<FakeFunction>();
             function->source = gpu.sources_.at(library); function->entry = name;
             function->arguments = gpu.arguments_of(function->source);
             *kernel = reinterpret_cast<CuKernel>(function.get());
             gpu.functions_[library].push_back(std::move(function)))
  QUIRE_FAKE(KernelGetFunction, (CuFunction * function, CuKernel kernel),
             *function = reinterpret_cast<CuFunction>(kernel))
  QUIRE_FAKE(FuncGetAttribute, (int* value, int, CuFunction), *value = 32)
  QUIRE_FAKE(FuncSetAttribute, (CuFunction function, int attribute, int value),
             if (gpu.is_capturing_ || attribute != kCuFuncMaxDynamicShared) return kInvalid;
             reinterpret_cast<FakeFunction*>(function)->shared_bytes = value)
  QUIRE_FAKE(
      LaunchKernelEx, (const CuLaunchConfig* config, CuFunction handle, void** parameters, void**),
      const auto* function = reinterpret_cast<const FakeFunction*>(handle);
      if (static_cast<int>(config->shared_bytes) > function->shared_bytes || config->grid_x == 0 ||
          config->block_x == 0) return kInvalid;
      FakeLaunch launch{function,
                        config->grid_x,
                        config->block_x,
                        config->shared_bytes,
                        config->attribute_count == 1,
                        {}};
      for (int i = 0; i < function->arguments; ++i) {
        launch.arguments.push_back(*static_cast<const uint64_t*>(parameters[i]));
      } if (gpu.is_capturing_) {
        gpu.captured_.push_back(std::move(launch));
        return 0;
      } return gpu.Enqueue([&gpu, launch] { gpu.Run(launch); }))
  // A map begins with its address.
  QUIRE_FAKE(TensorMapEncodeTiled,
             (void* map, int, unsigned, void* base, const uint64_t*, const uint64_t*,
              const uint32_t*, const uint32_t*, int, int, int, int),
             std::memcpy(map, &base, sizeof base))
  QUIRE_FAKE(GraphInstantiate, (CuGraphExec * exec, CuGraph graph, unsigned long long),
             *exec = gpu.New<CuGraphExec>("graph exec");
             ++gpu.graphs_made; gpu.execs_[*exec] = gpu.graphs_.at(graph))
  QUIRE_FAKE(GraphLaunch, (CuGraphExec exec, CuStream), ++gpu.graph_launches;
             return gpu.Enqueue([&gpu, launches = gpu.execs_.at(exec).launches] {
               for (const FakeLaunch& launch : launches) gpu.Run(launch);
             }))
  QUIRE_FAKE(GraphDestroy, (CuGraph graph), if (gpu.graphs_.erase(graph) == 0) return kInvalid;
             --gpu.living_["graph"])
  QUIRE_FAKE(GraphExecDestroy, (CuGraphExec exec), if (gpu.execs_.erase(exec) == 0) return kInvalid;
             --gpu.living_["graph exec"])
#undef QUIRE_FAKE
}

}  // namespace quire::testing

#endif  // QUIRE_TESTS_RUNTIME_FAKE_GPU_H_
