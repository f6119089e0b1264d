// A GPU for benchmarks: memory, compiled kernels, launches alone or as a graph, through the driver.
// Any failure ends the program with its message: these are tools of developers.
#ifndef QUIRE_TOOLS_BENCH_CUDA_GPU_H_
#define QUIRE_TOOLS_BENCH_CUDA_GPU_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "codegen/cuda/linear.h"
#include "runtime/cuda/driver.h"
#include "runtime/cuda/tensor_map.h"

namespace quire::bench {

[[noreturn]] void Die(const absl::Status& status);

template <typename T>
T OrDie(absl::StatusOr<T> value) {
  if (!value.ok()) Die(value.status());
  return *std::move(value);
}

// Arguments are values, not pointers to them.
struct KernelArguments {
  template <typename T>
  void Add(const T& value) {
    static_assert(sizeof(T) <= sizeof(EncodedTensorMap));
    values.emplace_back();
    __builtin_memcpy(&values.back(), &value, sizeof value);
  }
  std::vector<EncodedTensorMap> values;  // each large enough for any argument
};

class Gpu {
 public:
  // `fills_scratch`: otherwise scratch memory is as the driver gives it, for a sanitizer that sees
  // what is read before it is written.
  explicit Gpu(bool fills_scratch = true);

  const std::string& name() const { return name_; }
  const std::string& architecture() const { return architecture_; }  // "sm_90a"
  int multiprocessors() const { return Attribute(kCuMultiprocessors); }
  CudaLimits limits() const {
    return {Attribute(kCuComputeMajor), Attribute(kCuComputeMinor),
            Attribute(kCuSharedBytesPerBlockOptin), multiprocessors()};
  }

  CuDevicePtr Allocate(size_t bytes) const;  // zeroed
  // Zeros and then what no kernel may count on.
  CuDevicePtr AllocateScratch(size_t bytes, size_t zero_bytes) const;
  void Free(CuDevicePtr memory) const;
  void Upload(CuDevicePtr to, const void* from, size_t bytes) const;
  void Download(void* to, CuDevicePtr from, size_t bytes) const;
  void Copy(CuDevicePtr to, CuDevicePtr from, size_t bytes) const;
  void Fill(CuDevicePtr to, uint8_t value, size_t bytes) const;

  CuFunction Load(const std::string& cubin, const std::string& entry, int shared_bytes) const;
  void Launch(CuFunction function, int grid, int threads, int shared_bytes, bool dependent,
              const KernelArguments& arguments) const;
  void Synchronize() const;
  EncodedTensorMap Encode(const CudaTensorMap& map, CuDevicePtr base) const {
    return OrDie(EncodeTensorMap(*driver_, map, base));
  }

  // What `enqueue` launches, as a graph that lives as long as the program.
  CuGraphExec Capture(const std::function<void()>& enqueue) const;
  void Replay(CuGraphExec graph) const;

  // Median microseconds of one replay of what `enqueue` launches, as a graph, after one warm-up:
  // each after a rest, or, if `sustained`, all after a while of nothing else.
  double TimeGraph(int replays, bool sustained, const std::function<void()>& enqueue) const;
  double TimeGraph(int replays, const std::function<void()>& enqueue) const {
    return TimeGraph(replays, false, enqueue);
  }

 private:
  int Attribute(CuDeviceAttribute attribute) const;
  void Check(CuResult result, const char* what) const;

  const bool fills_scratch_;
  const CudaDriver* driver_ = nullptr;
  CuDevice device_ = 0;
  CuStream stream_ = nullptr;
  CuEvent begin_ = nullptr, end_ = nullptr;
  std::string name_, architecture_;
};

// Compiles many sources at once, on all cores: (entry, text) to cubins in the same order.
std::vector<std::string> CompileAll(const std::vector<std::pair<std::string, std::string>>& sources,
                                    const std::string& architecture);

}  // namespace quire::bench

#endif  // QUIRE_TOOLS_BENCH_CUDA_GPU_H_
