#include "runtime/device.h"

#include "absl/strings/str_cat.h"
#include "ir/status.h"
#include "runtime/cuda/cuda_device.h"
#ifdef QUIRE_CPU_BACKEND
#include "runtime/cpu/cpu_device.h"
#endif

namespace quire {

absl::Span<float> Program::LogitsMemory(size_t floats) {
  (void)floats;
  return {};
}

absl::Status Program::RunGreedy(const Step& step, PagePool& pool,
                                absl::Span<GreatestLogit> greatest) {
  (void)step, (void)pool, (void)greatest;
  return absl::UnimplementedError("the program gives whole rows of logits only");
}

absl::Status Program::ReadLogits(size_t row, absl::Span<float> logits) {
  (void)row, (void)logits;
  return absl::UnimplementedError("the program leaves no logits on a device");
}

absl::Status Program::RunWatched(const Step& step, PagePool& pool, absl::Span<float> logits,
                                 LaunchWatcher watcher) {
  (void)step, (void)pool, (void)logits, (void)watcher;
  return absl::UnimplementedError("the device does not run a step launch by launch");
}

absl::Status Program::Reserve(const StepRoom& room) {
  (void)room;
  return absl::OkStatus();
}

absl::StatusOr<int64_t> Program::SpareBytes() const { return int64_t{1} << 30; }

absl::StatusOr<std::unique_ptr<Device>> CreateDevice(absl::string_view name,
                                                     const DeviceOptions& options) {
  if (name == "cuda") {
    QUIRE_ASSIGN_OR_RETURN(const CudaDriver* driver, CudaDriver::Get());
    return CudaDevice::Create(*driver, options, &CudaBlas::Get);
  }
#ifdef QUIRE_CPU_BACKEND
  if (name == "cpu") return CpuDevice::Create(options);
  constexpr absl::string_view kDevices = "cpu, cuda";
#else
  constexpr absl::string_view kDevices =
      "cuda\n  fix: for the CPU, build with -DQUIRE_CPU_BACKEND=ON";
#endif
  return WithLine(absl::UnavailableError(absl::StrCat("there is no device ", name)), "allowed",
                  kDevices);
}

std::string ChooseDevice(absl::string_view name, const plan::PlanT& plan) {
  if (name != "auto") return std::string(name);
  for (const auto& target : plan.targets) {
    if (target->name == "cuda" && CudaDriver::Get().ok()) return "cuda";
  }
  return "cpu";
}

absl::Status ExplainChoice(absl::string_view name, absl::string_view chosen,
                           const absl::Status& refused) {
  const absl::Status gpu = CudaDriver::Get().status();
  if (name != "auto" || chosen != "cpu" || gpu.ok()) return refused;
  const absl::string_view reason = gpu.message().substr(0, gpu.message().find('\n'));
  return WithLine(refused, "now", absl::StrCat("no GPU was found, so it is the CPU: ", reason));
}

}  // namespace quire
