#include "tools/copy_bandwidth.h"

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "ir/status.h"
#include "runtime/cuda/driver.h"

namespace quire {
namespace {

// What is held on the device, given back in any case.
struct Held {
  const CudaDriver& cuda;
  CuDevice device = 0;
  CuContext context = nullptr;
  CuDevicePtr from = 0, to = 0;
  CuEvent begin = nullptr, end = nullptr;

  explicit Held(const CudaDriver& driver) : cuda(driver) {}
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  ~Held() {
    if (begin != nullptr) cuda.EventDestroy(begin);
    if (end != nullptr) cuda.EventDestroy(end);
    if (from != 0) cuda.MemFree(from);
    if (to != 0) cuda.MemFree(to);
    if (context != nullptr) cuda.DevicePrimaryCtxRelease(device);
  }
};

}  // namespace

absl::StatusOr<double> MeasureCopyBandwidth() {
  QUIRE_ASSIGN_OR_RETURN(const CudaDriver* driver, CudaDriver::Get());
  const CudaDriver& cuda = *driver;
  Held held(cuda);
  const auto check = [&](CuResult result) { return cuda.Check(result, "measuring the copy rate"); };
  QUIRE_RETURN_IF_ERROR(check(cuda.DeviceGet(&held.device, 0)));
  QUIRE_RETURN_IF_ERROR(check(cuda.DevicePrimaryCtxRetain(&held.context, held.device)));
  QUIRE_RETURN_IF_ERROR(check(cuda.CtxSetCurrent(held.context)));
  size_t free_bytes = 0, total_bytes = 0;
  QUIRE_RETURN_IF_ERROR(check(cuda.MemGetInfo(&free_bytes, &total_bytes)));
  std::vector<uint64_t> random_words(size_t{8} << 17);  // 8 MiB
  std::mt19937_64 random(1);
  for (uint64_t& word : random_words) word = random();
  const size_t chunk = random_words.size() * sizeof(uint64_t);
  const size_t bytes =
      std::max(std::min(size_t{1} << 30, free_bytes / 8) / chunk, size_t{1}) * chunk;
  QUIRE_RETURN_IF_ERROR(check(cuda.MemAlloc(&held.from, bytes)));
  QUIRE_RETURN_IF_ERROR(check(cuda.MemAlloc(&held.to, bytes)));
  for (size_t at = 0; at < bytes; at += chunk) {
    QUIRE_RETURN_IF_ERROR(
        check(cuda.MemcpyHtoDAsync(held.from + at, random_words.data(), chunk, nullptr)));
  }
  QUIRE_RETURN_IF_ERROR(check(cuda.EventCreate(&held.begin, 0)));
  QUIRE_RETURN_IF_ERROR(check(cuda.EventCreate(&held.end, 0)));
  float best_ms = 1e30f;
  for (int run = 0; run < 10; ++run) {
    float ms = 0;
    QUIRE_RETURN_IF_ERROR(check(cuda.EventRecord(held.begin, nullptr)));
    QUIRE_RETURN_IF_ERROR(check(cuda.MemcpyDtoDAsync(held.to, held.from, bytes, nullptr)));
    QUIRE_RETURN_IF_ERROR(check(cuda.EventRecord(held.end, nullptr)));
    QUIRE_RETURN_IF_ERROR(check(cuda.EventSynchronize(held.end)));
    QUIRE_RETURN_IF_ERROR(check(cuda.EventElapsedTime(&ms, held.begin, held.end)));
    best_ms = std::min(best_ms, ms);
  }
  return 2.0 * static_cast<double>(bytes) / (static_cast<double>(best_ms) * 1e-3);
}

}  // namespace quire
