#include "tools/add_binaries.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "codegen/cuda/architecture.h"
#include "codegen/cuda/greatest.h"
#include "codegen/cuda/target_kernels.h"
#include "ir/status.h"

namespace quire {

absl::Status AddCudaBinaries(const std::string& architecture, int64_t vocabulary,
                             plan::TargetT* target, PlanWriter* writer) {
  QUIRE_ASSIGN_OR_RETURN(const std::vector<CudaLimits> devices,
                         DevicesOfArchitecture(architecture));
  // The entries of all devices, which are nearly the same.
  struct Entry {
    size_t kernel;
    const CudaEntry* entry;
    std::string name;
  };
  if (target->kernels.empty()) return absl::OkStatus();
  std::vector<CudaKernels> owned;
  std::vector<Entry> entries;
  std::vector<const CudaEntry*> texts;
  absl::flat_hash_set<std::string> names;
  for (const CudaLimits& limits : devices) {
    QUIRE_ASSIGN_OR_RETURN(CudaKernels kernels, MakeCudaKernels(*target, limits));
    kernels.push_back(MakeCudaGreatest(vocabulary));
    for (size_t i = 0; i < kernels.size(); ++i) {
      for (const CudaEntry& entry : kernels[i]->entries()) {
        std::string name = CudaBinaryName(CudaBinaryKey(entry, architecture));
        if (!names.insert(name).second) continue;
        entries.push_back({std::min(i, target->kernels.size() - 1), &entry, std::move(name)});
        texts.push_back(&entry);
      }
    }
    owned.push_back(std::move(kernels));
  }
  CudaKernelBuilder::Options options;
  options.architecture = architecture;
  CudaKernelBuilder builder(options, KernelCache(""));
  const absl::StatusOr<std::vector<BuiltEntry>> built = builder.Build(texts);
  if (absl::IsUnavailable(built.status())) {
    return WithLine(built.status(), "or",
                    "--target=cuda leaves the binaries out: kernels are built where the plan is "
                    "loaded");
  }
  if (!built.ok()) return built.status();
  for (size_t i = 0; i < entries.size(); ++i) {
    const std::string& cubin = (*built)[i].cubin;
    auto binary = std::make_unique<plan::KernelBinaryT>();
    binary->architecture = architecture;
    binary->entry = entries[i].entry->entry;
    binary->key = entries[i].name;
    QUIRE_RETURN_IF_ERROR(writer->AddBinary(
        {reinterpret_cast<const uint8_t*>(cubin.data()), cubin.size()}, binary.get()));
    target->kernels[entries[i].kernel]->binaries.push_back(std::move(binary));
  }
  return absl::OkStatus();
}

}  // namespace quire
