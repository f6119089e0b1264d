#include "runtime/cuda/cuda_device.h"

#include <algorithm>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "codegen/cuda/architecture.h"
#include "ir/status.h"
#include "runtime/cuda/cuda_program.h"

namespace quire {

absl::StatusOr<std::unique_ptr<CudaDevice>> CudaDevice::Create(const CudaDriver& driver,
                                                               const DeviceOptions& options,
                                                               LibraryProducts::Opener blas) {
  if (options.threads < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("threads=", options.threads, "\n  allowed: 0 or more"));
  }
  QUIRE_ASSIGN_OR_RETURN(auto context, CudaContext::Create(driver));
  return std::unique_ptr<CudaDevice>(new CudaDevice(std::move(context), options, blas));
}

CudaLimits CudaDevice::limits() const {
  return options_.portable ? context_->limits().Portable() : context_->limits();
}

std::string CudaDevice::architecture() const {
  return ArchitectureOf(context_->limits().major, context_->limits().minor);
}

int CudaDevice::threads() const {
  // More readers than this do not load faster.
  constexpr int kMost = 16;
  const int threads = options_.threads > 0 ? options_.threads
                                           : static_cast<int>(std::thread::hardware_concurrency());
  return std::clamp(threads, 1, kMost);
}

std::string CudaDevice::Description() const {
  return absl::StrFormat("cuda: %s, %s, %d multiprocessors, %d GiB", context_->name(),
                         architecture(), context_->limits().multiprocessors,
                         context_->total_bytes() >> 30);
}

absl::StatusOr<std::unique_ptr<Program>> CudaDevice::Load(const plan::TargetT& target,
                                                          absl::string_view name,
                                                          const WeightSource& weights) {
  return CudaProgram::Load(*this, target, name, weights);
}

}  // namespace quire
