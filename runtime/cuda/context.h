// One GPU: the driver's primary context, one stream, and what the device gives. Memory of it.
//
// Errors:  UNAVAILABLE when it cannot be used; RESOURCE_EXHAUSTED when memory does not suffice,
// with
//          what was asked for and what is free.
// Threads: any one at a time may enqueue; a thread calls MakeCurrent() before it does.
// Owner:   memory must not outlive its context.
#ifndef QUIRE_RUNTIME_CUDA_CONTEXT_H_
#define QUIRE_RUNTIME_CUDA_CONTEXT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "codegen/cuda/kernel.h"
#include "runtime/cuda/driver.h"

namespace quire {

class CudaContext {
 public:
  // Device 0 of `driver`, which must outlive the context.
  static absl::StatusOr<std::unique_ptr<CudaContext>> Create(const CudaDriver& driver);
  ~CudaContext();
  CudaContext(const CudaContext&) = delete;
  CudaContext& operator=(const CudaContext&) = delete;

  const CudaDriver& driver() const { return driver_; }
  CuStream stream() const { return stream_; }
  const CudaLimits& limits() const { return limits_; }
  const std::string& name() const { return name_; }
  int64_t total_bytes() const { return total_bytes_; }

  absl::Status MakeCurrent() const;
  absl::Status Synchronize() const;
  // `what` is for messages: "copying logits".
  absl::Status Check(CuResult result, absl::string_view what) const {
    return result == 0 ? absl::OkStatus() : driver_.Check(result, what);
  }
  absl::StatusOr<int64_t> FreeBytes() const;

 private:
  CudaContext(const CudaDriver& driver, CuDevice device) : driver_(driver), device_(device) {}
  absl::Status Initialize();

  const CudaDriver& driver_;
  const CuDevice device_;
  CuContext context_ = nullptr;
  CuStream stream_ = nullptr;
  CudaLimits limits_;
  std::string name_;
  int64_t total_bytes_ = 0;
};

// Device memory from a multiple of 256, zero at first.
class CudaMemory {
 public:
  CudaMemory() = default;
  // `what` names it in messages: "weights".
  static absl::StatusOr<CudaMemory> Allocate(const CudaContext& context, int64_t bytes,
                                             absl::string_view what);
  ~CudaMemory();
  CudaMemory(CudaMemory&& other) noexcept { *this = std::move(other); }
  CudaMemory& operator=(CudaMemory&& other) noexcept {
    std::swap(context_, other.context_);
    std::swap(at_, other.at_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  CuDevicePtr at() const { return at_; }
  int64_t bytes() const { return bytes_; }

 private:
  const CudaContext* context_ = nullptr;
  CuDevicePtr at_ = 0;
  int64_t bytes_ = 0;
};

// Host memory that the device copies from and to by itself, and that kernels may write.
class PinnedMemory {
 public:
  PinnedMemory() = default;
  static absl::StatusOr<PinnedMemory> Allocate(const CudaContext& context, int64_t bytes);
  ~PinnedMemory();
  PinnedMemory(PinnedMemory&& other) noexcept { *this = std::move(other); }
  PinnedMemory& operator=(PinnedMemory&& other) noexcept {
    std::swap(context_, other.context_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  uint8_t* data() const { return data_; }
  // Kernels reach it where the host does.
  CuDevicePtr at() const { return reinterpret_cast<CuDevicePtr>(data_); }
  int64_t bytes() const { return bytes_; }

 private:
  const CudaContext* context_ = nullptr;
  uint8_t* data_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace quire

#endif  // QUIRE_RUNTIME_CUDA_CONTEXT_H_
