#include "tools/cuda_text.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "codegen/cuda/architecture.h"
#include "codegen/cuda/source.h"
#include "codegen/cuda/target_kernels.h"
#include "ir/status.h"
#include "tools/sass.h"

namespace quire {
namespace {

std::optional<KernelResources> ResourcesOf(absl::string_view entry, absl::string_view log) {
  for (KernelResources& resources : ParseResources(log)) {
    if (resources.name == entry) return std::move(resources);
  }
  return std::nullopt;
}

absl::StatusOr<std::string> Code(const CudaEntry& entry, const BuiltEntry* built,
                                 absl::string_view emit, const std::string& architecture) {
  if (emit == "cuda") return entry.source;
  if (emit == "sass") return Disassemble(built->cubin);
  QUIRE_ASSIGN_OR_RETURN(const Nvrtc* nvrtc, Nvrtc::Get());
  QUIRE_ASSIGN_OR_RETURN(CudaBinary binary, nvrtc->Compile(entry.entry + ".cu", entry.source,
                                                           architecture, CudaKernelHeaders()));
  return std::move(binary.ptx);
}

}  // namespace

std::string ResourcesText(const CudaEntryText& entry, absl::string_view architecture) {
  std::string text =
      absl::StrCat("// ", entry.entry, " for ", architecture, ": ", entry.block_threads,
                   " threads, ", entry.dynamic_shared_bytes, " bytes of dynamic shared memory, ");
  if (!entry.resources.has_value()) {
    return absl::StrCat(text, "registers not known: there is no compiler's log\n");
  }
  const KernelResources& resources = *entry.resources;
  absl::StrAppend(&text, resources.static_shared_bytes, " of static, ", resources.registers,
                  " registers, ");
  const int spilled = resources.spill_store_bytes + resources.spill_load_bytes;
  return absl::StrCat(text, spilled == 0 ? "no" : absl::StrCat(spilled, " bytes of"), " spills\n");
}

nlohmann::ordered_json ResourcesJson(const CudaEntryText& entry, absl::string_view architecture) {
  nlohmann::ordered_json json = {{"entry", entry.entry},
                                 {"architecture", std::string(architecture)},
                                 {"block_threads", entry.block_threads},
                                 {"dynamic_shared_bytes", entry.dynamic_shared_bytes}};
  if (entry.resources.has_value()) {
    json["static_shared_bytes"] = entry.resources->static_shared_bytes;
    json["registers"] = entry.resources->registers;
    json["stack_bytes"] = entry.resources->stack_bytes;
    json["spill_store_bytes"] = entry.resources->spill_store_bytes;
    json["spill_load_bytes"] = entry.resources->spill_load_bytes;
  }
  return json;
}

std::string ShownArchitecture(const plan::TargetT& target) {
  for (const auto& kernel : target.kernels) {
    if (!kernel->binaries.empty()) return kernel->binaries[0]->architecture;
  }
  return "sm_90a";
}

absl::StatusOr<std::vector<std::vector<CudaEntryText>>> CudaKernelTexts(
    const PlanFile& file, const plan::TargetT& target, absl::string_view emit,
    const std::string& architecture) {
  QUIRE_ASSIGN_OR_RETURN(const CudaLimits limits, LimitsOfArchitecture(architecture));
  QUIRE_ASSIGN_OR_RETURN(const CudaKernels kernels, MakeCudaKernels(target, limits));
  CudaKernelBuilder::Options options;
  options.architecture = architecture;
  CudaKernelBuilder builder(options, KernelCache(""));
  // Instructions are those that would run; for texts the compiler's log is of more use, which a
  // plan's binary does not have.
  if (emit == "sass") {
    QUIRE_RETURN_IF_ERROR(AddPlanBinaries(target, architecture, file, &builder));
  }
  const absl::StatusOr<std::vector<std::vector<BuiltEntry>>> built =
      BuildCudaKernels(kernels, &builder);
  if (!built.ok() && (emit == "sass" || !absl::IsUnavailable(built.status()))) {
    return built.status();
  }
  std::vector<std::vector<CudaEntryText>> texts(kernels.size());
  for (size_t i = 0; i < kernels.size(); ++i) {
    for (size_t j = 0; j < kernels[i]->entries().size(); ++j) {
      const CudaEntry& entry = kernels[i]->entries()[j];
      CudaEntryText text;
      text.entry = entry.entry;
      text.block_threads = entry.block_threads;
      text.dynamic_shared_bytes = entry.shared_bytes;
      const BuiltEntry* binary = built.ok() ? &(*built)[i][j] : nullptr;
      if (binary != nullptr) text.resources = ResourcesOf(entry.entry, binary->log);
      QUIRE_ASSIGN_OR_RETURN(text.code, Code(entry, binary, emit, architecture));
      texts[i].push_back(std::move(text));
    }
  }
  return texts;
}

}  // namespace quire
