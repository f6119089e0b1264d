#include "tools/kernel_text.h"

#ifdef QUIRE_CPU_BACKEND
#include "codegen/cpu/emit.h"
#include "codegen/cpu/jit.h"
#include "codegen/cpu/kernel.h"
#include "codegen/kernel_cache.h"
#include "codegen/spec.h"
#include "ir/status.h"
#endif

namespace quire {

#ifdef QUIRE_CPU_BACKEND

absl::StatusOr<std::string> KernelText(absl::string_view spec, absl::string_view emit) {
  QUIRE_ASSIGN_OR_RETURN(KernelSpec parsed, ParseSpec(spec));
  QUIRE_ASSIGN_OR_RETURN(Isa isa, HostIsa());
  QUIRE_ASSIGN_OR_RETURN(EmittedKernel kernel, EmitKernel(parsed, isa));
  if (emit == "llvm") return kernel.ir;
  return CompileAssembly(kernel.ir, isa);
}

absl::StatusOr<bool> IsInKernelCache(absl::string_view spec, const std::string& cache_dir) {
  QUIRE_ASSIGN_OR_RETURN(KernelSpec parsed, ParseSpec(spec));
  QUIRE_ASSIGN_OR_RETURN(Isa isa, HostIsa());
  QUIRE_ASSIGN_OR_RETURN(EmittedKernel kernel, EmitKernel(parsed, isa));
  return KernelCache(cache_dir).Find(CacheKey(kernel, isa)).has_value();
}

#else

namespace {

absl::Status NoBackend() {
  return absl::UnavailableError(
      "this build has no CPU backend\n  fix: build with -DQUIRE_CPU_BACKEND=ON");
}

}  // namespace

absl::StatusOr<std::string> KernelText(absl::string_view, absl::string_view) { return NoBackend(); }

absl::StatusOr<bool> IsInKernelCache(absl::string_view, const std::string&) { return NoBackend(); }

#endif

}  // namespace quire
