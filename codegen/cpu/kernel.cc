#include "codegen/cpu/kernel.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "codegen/cpu/abi.h"
#include "codegen/cpu/emit.h"
#include "ir/status.h"

namespace quire {

std::string CacheKey(const EmittedKernel& kernel, const Isa& isa) {
  return absl::StrCat(CompilerKey(), "\n", isa.Key(), "\n", kernel.ir);
}

absl::StatusOr<std::unique_ptr<KernelBuilder>> KernelBuilder::Create(const Isa& isa,
                                                                     KernelCache cache,
                                                                     JitPolicy jit) {
  QUIRE_ASSIGN_OR_RETURN(std::unique_ptr<CodeLoader> loader, CodeLoader::Create());
  return std::unique_ptr<KernelBuilder>(
      new KernelBuilder(isa, std::move(cache), jit, std::move(loader)));
}

absl::StatusOr<const CpuKernel*> KernelBuilder::Build(absl::string_view spec) {
  Slot* slot;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::unique_ptr<Slot>& entry = slots_[std::string(spec)];
    if (entry == nullptr) entry = std::make_unique<Slot>();
    slot = entry.get();
  }
  const std::lock_guard<std::mutex> lock(slot->mutex);
  if (slot->kernel == nullptr) {
    QUIRE_ASSIGN_OR_RETURN(slot->kernel, Load(spec));
  }
  return slot->kernel.get();
}

absl::StatusOr<std::unique_ptr<CpuKernel>> KernelBuilder::Load(absl::string_view text) {
  auto kernel = std::make_unique<CpuKernel>();
  QUIRE_ASSIGN_OR_RETURN(kernel->spec, ParseSpec(text));
  QUIRE_ASSIGN_OR_RETURN(const EmittedKernel emitted, EmitKernel(kernel->spec, isa_));
  kernel->scratch_bytes = emitted.scratch_bytes;
  kernel->rows = emitted.rows;
  const std::string key = CacheKey(emitted, isa_);
  std::optional<std::string> object = cache_.Find(key);
  if (!object.has_value() && jit_ == JitPolicy::kNever) {
    return WithLine(
        absl::FailedPreconditionError(absl::StrCat(
            "cpu: --jit=never, and a kernel would have to be compiled: ", SpecTitle(text))),
        "fix", "--jit=auto; later loads find the kernel in the cache");
  }
  if (!object.has_value()) {
    QUIRE_ASSIGN_OR_RETURN(object, CompileObject(emitted.ir, isa_));
    ++compiled_;
    cache_.Publish(key, *object).IgnoreError();
  }
  QUIRE_ASSIGN_OR_RETURN(const CodeLoader::Code code, loader_->Load(*object));
  QUIRE_ASSIGN_OR_RETURN(kernel->main, code.Find(kMainEntry));
  const auto* linear = std::get_if<LinearSpec>(&kernel->spec);
  if (linear != nullptr && IsIntegerBlockType(linear->weight)) {
    QUIRE_ASSIGN_OR_RETURN(kernel->quantize, code.Find(kQuantizeEntry));
  }
  if (std::holds_alternative<AttentionSpec>(kernel->spec)) {
    QUIRE_ASSIGN_OR_RETURN(kernel->merge, code.Find(kMergeEntry));
  }
  return kernel;
}

}  // namespace quire
