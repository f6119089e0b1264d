#include "runtime/device.h"

#include "absl/strings/str_cat.h"
#include "ir/status.h"
#ifdef QUIRE_CPU_BACKEND
#include "runtime/cpu/cpu_device.h"
#endif

namespace quire {

absl::StatusOr<std::unique_ptr<Device>> CreateDevice(absl::string_view name,
                                                     const DeviceOptions& options) {
#ifdef QUIRE_CPU_BACKEND
  if (name == "cpu") return CpuDevice::Create(options);
  constexpr absl::string_view kDevices = "cpu";
#else
  (void)options;
  constexpr absl::string_view kDevices =
      "none: this build has no backend\n  fix: build with -DQUIRE_CPU_BACKEND=ON";
#endif
  return WithLine(absl::UnavailableError(absl::StrCat("there is no device ", name)), "allowed",
                  kDevices);
}

}  // namespace quire
