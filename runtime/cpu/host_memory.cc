#include "runtime/cpu/host_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "ir/status.h"

namespace quire {

absl::StatusOr<HostMemory> HostMemory::Allocate(int64_t bytes) {
  HostMemory memory;
  if (bytes <= 0) return memory;
  void* data = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) {
    return absl::ResourceExhaustedError(absl::StrCat("cpu: no memory for ", bytes, " bytes"));
  }
  // A hint: without huge pages everything works, with more misses of the address cache.
  static_cast<void>(madvise(data, static_cast<size_t>(bytes), MADV_HUGEPAGE));
  memory.data_ = static_cast<uint8_t*>(data);
  memory.bytes_ = bytes;
  return memory;
}

HostMemory::~HostMemory() {
  if (data_ != nullptr) munmap(data_, static_cast<size_t>(bytes_));
}

absl::Status HostMemory::Reserve(int64_t bytes) {
  if (bytes <= bytes_) return absl::OkStatus();
  // Growth by doubling: steps of slowly rising size do not allocate each time.
  const int64_t wanted = std::max(bytes, std::min(2 * bytes_, int64_t{1} << 28));
  QUIRE_ASSIGN_OR_RETURN(*this, Allocate(wanted));
  return absl::OkStatus();
}

int64_t AvailableMemory() {
  std::ifstream lines("/proc/meminfo");
  for (std::string line; std::getline(lines, line);) {
    absl::string_view rest = line;
    int64_t kilobytes;
    if (!absl::ConsumePrefix(&rest, "MemAvailable:") || !absl::ConsumeSuffix(&rest, "kB")) continue;
    if (absl::SimpleAtoi(rest, &kilobytes)) return kilobytes * 1024;
  }
  return 0;
}

}  // namespace quire
