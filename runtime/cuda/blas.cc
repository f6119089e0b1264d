#include "runtime/cuda/blas.h"

#include <dlfcn.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "codegen/cuda/toolkit.h"

namespace quire {
namespace {

absl::StatusOr<CudaBlas> OpenAny() {
  absl::Status first;
  for (const std::string& folder : CudaToolkitFolders()) {
    for (const char* version : kCudaToolkitVersions) {
      absl::StatusOr<CudaBlas> blas =
          CudaBlas::Open(absl::StrCat(folder, "libcublasLt.so.", version).c_str());
      if (blas.ok()) return blas;
      first.Update(blas.status());
    }
  }
  return first;
}

}  // namespace

absl::StatusOr<CudaBlas> CudaBlas::Open(const char* library) {
  void* handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    return absl::UnavailableError(absl::StrCat("cuda: no cuBLASLt: ", dlerror()));
  }
  CudaBlas blas;
  const char* missing = nullptr;
#define BLAS_FN(member, name, parameters)                                          \
  blas.member = reinterpret_cast<CuBlasResult(*) parameters>(dlsym(handle, name)); \
  if (blas.member == nullptr && missing == nullptr) missing = name;
#include "runtime/cuda/blas.def"
  if (missing != nullptr) {
    return absl::UnavailableError(absl::StrCat("cuda: ", library, " has no ", missing));
  }
  return blas;
}

absl::StatusOr<const CudaBlas*> CudaBlas::Get() {
  // Never unloaded.
  static const absl::StatusOr<CudaBlas>& blas = *new absl::StatusOr<CudaBlas>(OpenAny());
  if (!blas.ok()) return blas.status();
  return &*blas;
}

}  // namespace quire
