#include "runtime/cpu/cpu_device.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "ir/status.h"
#include "runtime/cpu/cpu_program.h"

namespace quire {
namespace {

constexpr int kMaxThreads = 1024;

const char* DotText(Isa::Dot dot) {
  switch (dot) {
    case Isa::Dot::kVnni512:
      return "avx512-vnni";
    case Isa::Dot::kVnni256:
      return "avx-vnni";
    case Isa::Dot::kMadd:
      return "avx2";
    case Isa::Dot::kPortable:
      break;
  }
  return "portable";
}

}  // namespace

absl::StatusOr<std::unique_ptr<CpuDevice>> CpuDevice::Create(const DeviceOptions& options) {
  if (options.threads < 0 || options.threads > kMaxThreads) {
    return absl::InvalidArgumentError(
        absl::StrCat("threads=", options.threads, "\n  allowed: 0 .. ", kMaxThreads));
  }
  QUIRE_ASSIGN_OR_RETURN(const Isa isa, HostIsa());
  QUIRE_ASSIGN_OR_RETURN(
      auto builder, KernelBuilder::Create(isa, KernelCache(options.kernel_cache_dir), options.jit));
  const int threads = options.threads == 0 ? AvailableCores() : options.threads;
  return std::unique_ptr<CpuDevice>(
      new CpuDevice(std::min(threads, kMaxThreads), std::move(builder)));
}

std::string CpuDevice::Description() const {
  const int threads = pool_.threads();
  return absl::StrCat("cpu: ", builder_->isa().cpu, ", ", DotText(builder_->isa().dot), ", ",
                      threads, threads == 1 ? " thread" : " threads");
}

absl::StatusOr<std::unique_ptr<Program>> CpuDevice::Load(const plan::TargetT& target,
                                                         absl::string_view name,
                                                         const WeightSource& weights) {
  return CpuProgram::Load(*this, target, name, weights);
}

}  // namespace quire
