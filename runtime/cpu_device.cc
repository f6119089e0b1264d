#include "runtime/cpu_device.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "codegen/cpu/kernel.h"
#include "ir/status.h"
#include "runtime/cpu_program.h"
#include "runtime/thread_pool.h"

namespace quire {
namespace {

class CpuDevice : public Device {
 public:
  CpuDevice(std::unique_ptr<KernelBuilder> kernels, int threads)
      : kernels_(std::move(kernels)), threads_(threads) {}

  std::string Description() const override {
    return absl::StrCat("cpu: ", kernels_->isa().cpu, ", ", threads_.threads(),
                        threads_.threads() == 1 ? " thread" : " threads");
  }

  absl::StatusOr<std::unique_ptr<Program>> Load(const plan::TargetT& target, absl::string_view name,
                                                const WeightSource& weights) override {
    for (const auto& program : target.programs) {
      if (program->name == name)
        return LoadCpuProgram(target, *program, weights, *kernels_, threads_);
    }
    return absl::InvalidArgumentError(absl::StrCat("the plan has no program ", name));
  }

 private:
  std::unique_ptr<KernelBuilder> kernels_;
  ThreadPool threads_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> CreateCpuDevice(const DeviceOptions& options,
                                                        const Isa& isa) {
  QUIRE_ASSIGN_OR_RETURN(std::unique_ptr<KernelBuilder> kernels,
                         KernelBuilder::Create(isa, KernelCache(options.kernel_cache_dir)));
  const int threads = options.threads > 0 ? options.threads : UsableCores();
  return std::make_unique<CpuDevice>(std::move(kernels), threads);
}

absl::StatusOr<std::unique_ptr<Device>> CreateCpuDevice(const DeviceOptions& options) {
  QUIRE_ASSIGN_OR_RETURN(const Isa isa, HostIsa());
  return CreateCpuDevice(options, isa);
}

}  // namespace quire
