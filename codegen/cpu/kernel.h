// Executable kernels: a spec's IR compiled, or its object code fetched from the cache, and loaded.
//
// Threads: Build may be called from several threads; a spec that two of them ask for is built once.
#ifndef QUIRE_CODEGEN_CPU_KERNEL_H_
#define QUIRE_CODEGEN_CPU_KERNEL_H_

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "codegen/cpu/emit.h"
#include "codegen/cpu/jit.h"
#include "codegen/kernel_cache.h"
#include "codegen/spec.h"

namespace quire {

// Entry points by family, as abi.h declares them; null where the family has none.
struct CpuKernel {
  KernelSpec spec;
  void* main = nullptr;
  void* quantize = nullptr;   // linear with block-quantised weights
  void* merge = nullptr;      // attention
  int64_t scratch_bytes = 0;  // of one call
  RowOperands rows;           // row
};

// What object code of a kernel is found by in the cache: the IR stands for the spec and for this
// version of the emitters.
std::string CacheKey(const EmittedKernel& kernel, const Isa& isa);

class KernelBuilder {
 public:
  static absl::StatusOr<std::unique_ptr<KernelBuilder>> Create(const Isa& isa, KernelCache cache,
                                                               JitPolicy jit = JitPolicy::kAuto);

  // By spec text. The kernel lives as long as the builder. FAILED_PRECONDITION when it would have
  // to be compiled and must not be.
  absl::StatusOr<const CpuKernel*> Build(absl::string_view spec);

  const Isa& isa() const { return isa_; }
  // Kernels that had to be compiled: the cache had none.
  int compiled() const { return compiled_; }

 private:
  KernelBuilder(const Isa& isa, KernelCache cache, JitPolicy jit,
                std::unique_ptr<CodeLoader> loader)
      : isa_(isa), cache_(std::move(cache)), jit_(jit), loader_(std::move(loader)) {}
  absl::StatusOr<std::unique_ptr<CpuKernel>> Load(absl::string_view text);

  struct Slot {
    std::mutex mutex;
    std::unique_ptr<CpuKernel> kernel;
  };
  const Isa isa_;
  const KernelCache cache_;
  const JitPolicy jit_;
  const std::unique_ptr<CodeLoader> loader_;
  std::mutex mutex_;  // guards slots_, not what they hold
  absl::flat_hash_map<std::string, std::unique_ptr<Slot>> slots_;
  std::atomic<int> compiled_{0};
};

}  // namespace quire

#endif  // QUIRE_CODEGEN_CPU_KERNEL_H_
