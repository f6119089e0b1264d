// The CPU as a device: kernels by LLVM for the host, weights packed at load, a pool of threads.
#ifndef QUIRE_RUNTIME_CPU_CPU_DEVICE_H_
#define QUIRE_RUNTIME_CPU_CPU_DEVICE_H_

#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "codegen/cpu/kernel.h"
#include "runtime/cpu/thread_pool.h"
#include "runtime/device.h"

namespace quire {

class CpuDevice : public Device {
 public:
  static absl::StatusOr<std::unique_ptr<CpuDevice>> Create(const DeviceOptions& options);

  std::string Description() const override;
  absl::StatusOr<std::unique_ptr<Program>> Load(const plan::TargetT& target, absl::string_view name,
                                                const WeightSource& weights) override;

  ThreadPool& threads() { return pool_; }
  KernelBuilder& kernels() { return *builder_; }

 private:
  CpuDevice(int threads, std::unique_ptr<KernelBuilder> builder)
      : pool_(threads), builder_(std::move(builder)) {}

  ThreadPool pool_;
  const std::unique_ptr<KernelBuilder> builder_;
};

}  // namespace quire

#endif  // QUIRE_RUNTIME_CPU_CPU_DEVICE_H_
