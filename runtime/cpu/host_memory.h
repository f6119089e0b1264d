// Large arrays of host memory: 4096-byte aligned, zero at first, in huge pages where the system has
// them.
#ifndef QUIRE_RUNTIME_CPU_HOST_MEMORY_H_
#define QUIRE_RUNTIME_CPU_HOST_MEMORY_H_

#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"

namespace quire {

class HostMemory {
 public:
  HostMemory() = default;
  // RESOURCE_EXHAUSTED when the system has not that much.
  static absl::StatusOr<HostMemory> Allocate(int64_t bytes);
  ~HostMemory();
  HostMemory(HostMemory&& other) noexcept { *this = std::move(other); }
  HostMemory& operator=(HostMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  uint8_t* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  // Makes room for `bytes`; contents are lost when the memory moves.
  absl::Status Reserve(int64_t bytes);

 private:
  uint8_t* data_ = nullptr;
  int64_t bytes_ = 0;
};

// Bytes that the system could still give without writing any to disk; 0 where it does not say.
int64_t AvailableMemory();

}  // namespace quire

#endif  // QUIRE_RUNTIME_CPU_HOST_MEMORY_H_
