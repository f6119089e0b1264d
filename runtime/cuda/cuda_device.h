// A GPU as a device: kernels by NVRTC or from the plan, weights in its memory.
#ifndef QUIRE_RUNTIME_CUDA_CUDA_DEVICE_H_
#define QUIRE_RUNTIME_CUDA_CUDA_DEVICE_H_

#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/cuda/context.h"
#include "runtime/cuda/cuda_weights.h"
#include "runtime/cuda/driver.h"
#include "runtime/cuda/library_products.h"
#include "runtime/device.h"

namespace quire {

class CudaDevice : public Device {
 public:
  // The first GPU of `driver`, which must outlive the device. `blas`: CudaBlas::Get but in tests.
  static absl::StatusOr<std::unique_ptr<CudaDevice>> Create(const CudaDriver& driver,
                                                            const DeviceOptions& options,
                                                            LibraryProducts::Opener blas);

  std::string Description() const override;
  absl::StatusOr<std::unique_ptr<Program>> Load(const plan::TargetT& target, absl::string_view name,
                                                const WeightSource& weights) override;

  const CudaContext& context() const { return *context_; }
  const DeviceOptions& options() const { return options_; }
  // What kernels are made for, and by NVRTC's names, what they are built for.
  CudaLimits limits() const;
  std::string architecture() const;
  // Threads that load.
  int threads() const;
  CudaWeights::Uploaded& uploaded() { return uploaded_; }
  LibraryProducts& products() { return products_; }

 private:
  CudaDevice(std::unique_ptr<CudaContext> context, const DeviceOptions& options,
             LibraryProducts::Opener blas)
      : context_(std::move(context)), options_(options), products_(*context_, blas) {}

  const std::unique_ptr<CudaContext> context_;
  const DeviceOptions options_;
  CudaWeights::Uploaded uploaded_;
  LibraryProducts products_;
};

}  // namespace quire

#endif  // QUIRE_RUNTIME_CUDA_CUDA_DEVICE_H_
