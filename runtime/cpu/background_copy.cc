#include "runtime/cpu/background_copy.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace quire {
namespace {

// Between looks at whether to stop.
constexpr int64_t kPieceBytes = 1 << 20;

}  // namespace

BackgroundCopy::~BackgroundCopy() {
  is_stopping_ = true;
  if (thread_.joinable()) thread_.join();
}

void BackgroundCopy::Add(const void* from, int64_t bytes) {
  arrays_.push_back({static_cast<const uint8_t*>(from), bytes, bytes_});
  bytes_ += (bytes + 63) / 64 * 64;
}

void BackgroundCopy::Start() {
  if (std::exchange(is_started_, true)) return;
  if (bytes_ == 0 || bytes_ > AvailableMemory() / 2) return;
  thread_ = std::thread([this] { Copy(); });
}

void BackgroundCopy::Copy() {
  absl::StatusOr<HostMemory> memory = HostMemory::Allocate(bytes_);
  if (!memory.ok()) return;
  memory_ = std::move(*memory);
  for (const Array& array : arrays_) {
    uint8_t* const to = memory_.data() + array.begin;
    for (int64_t done = 0; done < array.bytes; done += kPieceBytes) {
      if (is_stopping_) return;
      std::memcpy(to + done, array.from + done,
                  static_cast<size_t>(std::min(kPieceBytes, array.bytes - done)));
    }
    copies_[array.from] = to;
  }
  is_done_.store(true, std::memory_order_release);
}

const void* BackgroundCopy::Find(const void* from) const {
  const auto found = copies_.find(from);
  return found == copies_.end() ? from : found->second;
}

}  // namespace quire
