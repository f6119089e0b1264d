#include "tools/check_cuda.h"

#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "codegen/cuda/architecture.h"
#include "codegen/cuda/target_kernels.h"
#include "ir/status.h"
#include "runtime/cuda/driver.h"
#include "tools/summary.h"

namespace quire {
namespace {

struct Gpu {
  std::string text;
  CudaLimits limits;
};

absl::StatusOr<Gpu> FirstGpu(const CudaDriver& cuda) {
  CuDevice device = 0;
  char name[256] = "";
  QUIRE_RETURN_IF_ERROR(cuda.Check(cuda.DeviceGet(&device, 0), "cuDeviceGet"));
  QUIRE_RETURN_IF_ERROR(
      cuda.Check(cuda.DeviceGetName(name, sizeof(name), device), "cuDeviceGetName"));
  Gpu gpu;
  for (const auto& [value, attribute] :
       {std::pair(&gpu.limits.major, kCuComputeMajor),
        std::pair(&gpu.limits.minor, kCuComputeMinor),
        std::pair(&gpu.limits.shared_bytes, kCuSharedBytesPerBlockOptin),
        std::pair(&gpu.limits.multiprocessors, kCuMultiprocessors)}) {
    QUIRE_RETURN_IF_ERROR(
        cuda.Check(cuda.DeviceGetAttribute(value, attribute, device), "cuDeviceGetAttribute"));
  }
  gpu.text = absl::StrCat(name, ", ", ArchitectureOf(gpu.limits.major, gpu.limits.minor));
  if (gpu.limits.major >= 8) return gpu;
  return WithLine(absl::UnavailableError(absl::StrCat("cuda: ", gpu.text, " is too old")), "fix",
                  "a GPU of compute capability 8.0 or later, or --device=cpu");
}

// "80 for sm_80, 80 for sm_90a"
std::string BinariesText(const plan::TargetT& target) {
  absl::btree_map<std::string, int> counts;
  for (const auto& kernel : target.kernels) {
    for (const auto& binary : kernel->binaries) ++counts[binary->architecture];
  }
  if (counts.empty()) return "no binaries in the plan";
  return absl::StrCat("binaries in the plan: ",
                      absl::StrJoin(counts, ", ", [](std::string* out, const auto& entry) {
                        absl::StrAppend(out, entry.second, " for ", entry.first);
                      }));
}

// Where each text of a kernel comes from on this GPU, nothing being compiled.
struct FoundKernels {
  int in_plan = 0, in_cache = 0, missing = 0;
  std::string first_missing;
  std::vector<std::string> lines;
};

absl::StatusOr<FoundKernels> FindKernels(const PlanFile& file, const plan::TargetT& target,
                                         const CudaLimits& limits, const std::string& cache_dir) {
  QUIRE_ASSIGN_OR_RETURN(const CudaKernels kernels, MakeCudaKernels(target, limits));
  CudaKernelBuilder::Options options;
  options.architecture = ArchitectureOf(limits.major, limits.minor);
  options.jit = JitPolicy::kNever;
  CudaKernelBuilder builder(options, KernelCache(cache_dir));
  QUIRE_RETURN_IF_ERROR(AddPlanBinaries(target, options.architecture, file, &builder));
  using Origin = CudaKernelBuilder::Origin;
  FoundKernels found;
  absl::flat_hash_set<absl::string_view> known;  // several kernels may have a text
  for (size_t i = 0; i < kernels.size(); ++i) {
    for (const CudaEntry& entry : kernels[i]->entries()) {
      if (!known.insert(entry.source).second) continue;
      const Origin origin = builder.OriginOf(entry);
      const std::string kernel =
          absl::StrCat("kernel ", i, ", ", SpecTitle(target.kernels[i]->spec), ": ", entry.entry);
      if (origin == Origin::kCompiler && found.missing == 0) found.first_missing = kernel;
      ++(origin == Origin::kPlan    ? found.in_plan
         : origin == Origin::kCache ? found.in_cache
                                    : found.missing);
      found.lines.push_back(absl::StrCat(origin == Origin::kPlan    ? "in the plan: "
                                         : origin == Origin::kCache ? "in the cache: "
                                                                    : "to compile: ",
                                         kernel));
    }
  }
  return found;
}

}  // namespace

void CheckCuda(const PlanFile& file, const plan::TargetT* target, const SessionOptions& options,
               Checklist* list) {
  absl::StatusOr<Gpu> gpu = absl::UnavailableError("");
  const absl::StatusOr<const CudaDriver*> driver = CudaDriver::Get();
  int version = 0;
  if (driver.ok()) (*driver)->DriverGetVersion(&version);
  if (list->Ask("driver", driver.status(),
                absl::StrCat("for CUDA ", version / 1000, ".", version % 1000 / 10))) {
    gpu = FirstGpu(**driver);
    list->Ask("gpu", gpu.status(), gpu.ok() ? gpu->text : "");
  }
  const absl::StatusOr<const Nvrtc*> nvrtc = Nvrtc::Get();
  const std::string nvrtc_text = nvrtc.ok() ? absl::StrCat("NVRTC ", (*nvrtc)->version()) : "";
  if (target == nullptr || !gpu.ok()) {
    // Whether it is needed depends on the GPU.
    if (nvrtc.ok()) {
      list->Note("compiler", absl::StrCat("ok: ", nvrtc_text));
    } else {
      list->Ask("compiler", nvrtc.status(), "");
    }
    if (target != nullptr) list->Note("kernels", BinariesText(*target));
    return;
  }
  const absl::StatusOr<FoundKernels> found =
      FindKernels(file, *target, gpu->limits, options.model.kernel_cache_dir);
  if (!found.ok()) {
    list->Ask("kernels", found.status(), "");
    return;
  }
  const std::string kernels = absl::StrCat(found->in_plan, " in the plan, ", found->in_cache,
                                           " in the cache, ", found->missing, " to compile");
  if (found->missing == 0 && !nvrtc.ok()) {
    list->Note("compiler", "none, and none is needed");
  } else {
    list->Ask("compiler", nvrtc.status(), nvrtc_text);
  }
  const bool may_compile = found->missing == 0 || !options.model.never_compile;
  list->Ask("kernels",
            may_compile
                ? absl::OkStatus()
                : WithLine(absl::FailedPreconditionError(absl::StrCat(
                               "cuda: --jit=never, and ", kernels, ": ", found->first_missing)),
                           "fix", "--jit=auto"),
            kernels);
  for (const std::string& line : found->lines) list->Note("", line);
}

}  // namespace quire
