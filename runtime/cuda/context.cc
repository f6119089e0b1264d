#include "runtime/cuda/context.h"

#include "absl/strings/str_cat.h"
#include "ir/status.h"

namespace quire {
namespace {

constexpr unsigned kNonBlocking = 1;  // CU_STREAM_NON_BLOCKING
constexpr absl::string_view kCpuFix = "run on the CPU with --device cpu, or see nvidia-smi";

absl::Status Unusable(const absl::Status& status) {
  if (status.ok()) return status;
  return WithLine(absl::UnavailableError(absl::StrCat("cuda: ", status.message())), "fix", kCpuFix);
}

}  // namespace

absl::StatusOr<std::unique_ptr<CudaContext>> CudaContext::Create(const CudaDriver& driver) {
  CuDevice device = 0;
  QUIRE_RETURN_IF_ERROR(Unusable(driver.Check(driver.DeviceGet(&device, 0), "opening device 0")));
  std::unique_ptr<CudaContext> context(new CudaContext(driver, device));
  QUIRE_RETURN_IF_ERROR(Unusable(context->Initialize()));
  return context;
}

absl::Status CudaContext::Initialize() {
  const auto attribute = [&](CuDeviceAttribute id, int* value) {
    return Check(driver_.DeviceGetAttribute(value, id, device_), "reading a device attribute");
  };
  QUIRE_RETURN_IF_ERROR(attribute(kCuComputeMajor, &limits_.major));
  QUIRE_RETURN_IF_ERROR(attribute(kCuComputeMinor, &limits_.minor));
  QUIRE_RETURN_IF_ERROR(attribute(kCuSharedBytesPerBlockOptin, &limits_.shared_bytes));
  QUIRE_RETURN_IF_ERROR(attribute(kCuMultiprocessors, &limits_.multiprocessors));
  char name[256] = {};
  QUIRE_RETURN_IF_ERROR(
      Check(driver_.DeviceGetName(name, sizeof name - 1, device_), "reading the device's name"));
  name_ = name;
  CuContext context = nullptr;
  QUIRE_RETURN_IF_ERROR(
      Check(driver_.DevicePrimaryCtxRetain(&context, device_), "making a context"));
  context_ = context;
  QUIRE_RETURN_IF_ERROR(MakeCurrent());
  size_t free_bytes = 0, total_bytes = 0;
  QUIRE_RETURN_IF_ERROR(
      Check(driver_.MemGetInfo(&free_bytes, &total_bytes), "asking for free memory"));
  total_bytes_ = static_cast<int64_t>(total_bytes);
  return Check(driver_.StreamCreate(&stream_, kNonBlocking), "making a stream");
}

CudaContext::~CudaContext() {
  if (context_ == nullptr) return;
  if (stream_ != nullptr && MakeCurrent().ok()) {
    driver_.StreamSynchronize(stream_);
    driver_.StreamDestroy(stream_);
  }
  driver_.DevicePrimaryCtxRelease(device_);
}

absl::Status CudaContext::MakeCurrent() const {
  return Check(driver_.CtxSetCurrent(context_), "entering the context");
}

absl::Status CudaContext::Synchronize() const {
  return Check(driver_.StreamSynchronize(stream_), "waiting for the device");
}

absl::StatusOr<int64_t> CudaContext::FreeBytes() const {
  size_t free_bytes = 0, total_bytes = 0;
  QUIRE_RETURN_IF_ERROR(
      Check(driver_.MemGetInfo(&free_bytes, &total_bytes), "asking for free memory"));
  return static_cast<int64_t>(free_bytes);
}

absl::StatusOr<CudaMemory> CudaMemory::Allocate(const CudaContext& context, int64_t bytes,
                                                absl::string_view what) {
  CudaMemory memory;
  if (bytes <= 0) return memory;
  QUIRE_RETURN_IF_ERROR(context.MakeCurrent());
  const CudaDriver& driver = context.driver();
  const absl::Status status =
      context.Check(driver.MemAlloc(&memory.at_, static_cast<size_t>(bytes)), "allocating");
  if (absl::IsResourceExhausted(status)) {
    QUIRE_ASSIGN_OR_RETURN(const int64_t free_bytes, context.FreeBytes());
    return absl::ResourceExhaustedError(absl::StrCat("cuda: no memory for ", what, ": ", bytes,
                                                     " bytes\n  free: ", free_bytes, " of ",
                                                     context.total_bytes(), " bytes"));
  }
  QUIRE_RETURN_IF_ERROR(status);
  memory.context_ = &context;
  memory.bytes_ = bytes;
  QUIRE_RETURN_IF_ERROR(context.Check(
      driver.MemsetD8Async(memory.at_, 0, static_cast<size_t>(bytes), context.stream()),
      "clearing memory"));
  return memory;
}

CudaMemory::~CudaMemory() {
  if (context_ == nullptr || !context_->MakeCurrent().ok()) return;
  context_->driver().MemFree(at_);
}

absl::StatusOr<PinnedMemory> PinnedMemory::Allocate(const CudaContext& context, int64_t bytes) {
  PinnedMemory memory;
  if (bytes <= 0) return memory;
  QUIRE_RETURN_IF_ERROR(context.MakeCurrent());
  void* data = nullptr;
  const absl::Status status =
      context.Check(context.driver().MemHostAlloc(&data, static_cast<size_t>(bytes), 0),
                    absl::StrCat("cuda: ", bytes, " bytes of host memory that the device reads"));
  QUIRE_RETURN_IF_ERROR(status);
  memory.context_ = &context;
  memory.data_ = static_cast<uint8_t*>(data);
  memory.bytes_ = bytes;
  return memory;
}

PinnedMemory::~PinnedMemory() {
  if (context_ == nullptr || !context_->MakeCurrent().ok()) return;
  context_->driver().MemFreeHost(data_);
}

}  // namespace quire
