// Kernels' binaries: what a plan brings, else what the cache on disk has, else what NVRTC compiles.
//
// A binary is named by its key: all that determines it but the version of the compiler, that is the
// architecture, the compiler's options, the entry's source behind the comment that it begins with,
// and the kernel headers it includes.
//   - A plan's binary is taken by its key, whatever NVRTC made it: that is what it is in the plan
//     for.
//   - The cache holds an entry for each key and version. With an NVRTC here, its own version's are
//     taken and others built again, so that an update takes effect. Where nothing can be compiled
//     (no NVRTC, or JitPolicy::kNever) any version's will do, the one that compiled last before
//     others; one small entry of the cache lists the versions that wrote to it. NVRTC is not even
//     opened then for kNever: the outcome depends on plan and cache alone.
//
// All entries are built before the first request. After Seal() a compilation is an error, and is
// counted.
//
// Errors:  UNAVAILABLE when something must be compiled and there is no NVRTC; FAILED_PRECONDITION
//          when the policy forbids it; INTERNAL when a text does not compile, or after Seal(). They
//          say how many kernels it is, the spec of the first, and what to do. A cache that cannot
//          be written is no error.
// Threads: Build uses several; calls of it may overlap.
#ifndef QUIRE_CODEGEN_CUDA_KERNEL_BUILDER_H_
#define QUIRE_CODEGEN_CUDA_KERNEL_BUILDER_H_

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "codegen/cuda/kernel.h"
#include "codegen/cuda/nvrtc.h"
#include "codegen/kernel_cache.h"

namespace quire {

// A key as text: long, for the cache, which compares it whole; and as 32 hexadecimal digits, by
// which a plan names a binary.
std::string CudaBinaryKey(const CudaEntry& entry, absl::string_view architecture);
std::string CudaBinaryName(absl::string_view key);

struct BuiltEntry {
  std::string cubin;
  std::string log;  // NVRTC's: registers, spills (ParseResources); empty for a plan's binary
};

class CudaKernelBuilder {
 public:
  struct Options {
    std::string architecture;  // "sm_90a"
    JitPolicy jit = JitPolicy::kAuto;
    int threads = 0;  // 0: one for each core that this process may use
  };
  // Of all Build() calls.
  struct Counters {
    int in_plan = 0, in_cache = 0, compiled = 0;
    int missing = 0;  // would have been compiled, but could or must not be
    int late = 0;     // asked to compile after Seal()
    double ms = 0;    // inside Build
  };

  CudaKernelBuilder(Options options, KernelCache cache)
      : options_(std::move(options)), cache_(std::move(cache)) {}

  // A binary of the plan. `cubin` must outlive the builder. Before Build.
  void AddPlanBinary(absl::string_view name, absl::Span<const uint8_t> cubin);

  // The binaries of `entries`, in their order; equal texts are built once.
  absl::StatusOr<std::vector<BuiltEntry>> Build(absl::Span<const CudaEntry* const> entries);

  // Where a binary comes from. kCompiler: it is neither in the plan nor in the cache.
  enum class Origin : uint8_t { kPlan, kCache, kCompiler };
  // Nothing is compiled.
  Origin OriginOf(const CudaEntry& entry) const {
    return Find(CudaBinaryKey(entry, options_.architecture)).origin;
  }
  // Whether there is a binary, or a compiler that may be asked for one.
  bool CanBuild(const CudaEntry& entry) const {
    return OriginOf(entry) != Origin::kCompiler || Compiler().ok();
  }

  void Seal() { sealed_ = true; }
  Counters counters() const;
  const Options& options() const { return options_; }

 private:
  struct Job;
  void Run(Job& job);
  struct Found {
    Origin origin = Origin::kCompiler;
    BuiltEntry built;
  };
  Found Find(const std::string& key) const;
  // FAILED_PRECONDITION where the policy is to compile nothing.
  absl::StatusOr<const Nvrtc*> Compiler() const;
  std::optional<BuiltEntry> FindInCache(absl::string_view key, absl::string_view version) const;
  // Whatever version made it.
  std::optional<BuiltEntry> FindAny(absl::string_view key) const;
  std::vector<std::string> CachedVersions() const;
  void RememberVersion(const std::string& version, bool has_compiled) const;
  absl::Status FirstError(absl::Span<const Job> jobs) const;

  const Options options_;
  const KernelCache cache_;
  absl::flat_hash_map<std::string, absl::Span<const uint8_t>> plan_;
  std::atomic<bool> sealed_{false};
  mutable std::mutex mutex_;  // guards counters_
  Counters counters_;
};

}  // namespace quire

#endif  // QUIRE_CODEGEN_CUDA_KERNEL_BUILDER_H_
