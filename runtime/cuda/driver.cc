#include "runtime/cuda/driver.h"

#include <dlfcn.h>

#include "absl/strings/str_cat.h"
#include "ir/status.h"

namespace quire {
namespace {

constexpr CuResult kOutOfMemory = 2, kNoDevice = 100, kStubLibrary = 34;

absl::Status Unavailable(absl::string_view what, absl::string_view fix) {
  return WithLine(absl::UnavailableError(absl::StrCat("cuda: ", what)), "fix", fix);
}

}  // namespace

absl::StatusOr<CudaDriver> CudaDriver::Open(const char* library) {
  void* handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    return Unavailable(absl::StrCat("no NVIDIA driver: ", dlerror()),
                       "install the driver, or run on the CPU with --device cpu");
  }
  CudaDriver driver;
  const char* missing = nullptr;
#define CUDA_FN(member, name, parameters)                                        \
  driver.member = reinterpret_cast<CuResult(*) parameters>(dlsym(handle, name)); \
  if (driver.member == nullptr && missing == nullptr) missing = name;
#include "runtime/cuda/driver.def"
  if (missing != nullptr) {
    return Unavailable(
        absl::StrCat(library, " has no ", missing, ": the driver is older than CUDA 12.0"),
        "update the driver, or run on the CPU with --device cpu");
  }
  const CuResult initialised = driver.Init(0);
  if (initialised == kNoDevice || initialised == kStubLibrary) {
    return Unavailable("a driver is installed, but it sees no GPU",
                       "make a GPU visible to this process, or run on the CPU with --device cpu");
  }
  if (initialised != 0) {
    const absl::Status status = driver.Check(initialised, "cuInit");
    return Unavailable(status.message(), "see nvidia-smi, or run on the CPU with --device cpu");
  }
  return driver;
}

absl::StatusOr<const CudaDriver*> CudaDriver::Get() {
  // Never unloaded: contexts and kernels live until the process ends.
  static const absl::StatusOr<CudaDriver>& driver =
      *new absl::StatusOr<CudaDriver>(Open("libcuda.so.1"));
  if (!driver.ok()) return driver.status();
  return &*driver;
}

absl::Status CudaDriver::Check(CuResult result, absl::string_view what) const {
  if (result == 0) return absl::OkStatus();
  const char* name = nullptr;
  const char* text = nullptr;
  GetErrorName(result, &name);
  GetErrorString(result, &text);
  const std::string message =
      absl::StrCat(what, ": ", name != nullptr ? name : "unknown error", " (",
                   text != nullptr ? text : absl::StrCat(result).c_str(), ")");
  return result == kOutOfMemory ? absl::ResourceExhaustedError(message)
                                : absl::InternalError(message);
}

}  // namespace quire
