#include "runtime/stop_scanner.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"

namespace quire {

std::string StopScanner::Push(absl::string_view piece) {
  held_.append(piece.data(), piece.size());
  size_t cut = std::string::npos, cut_end = std::string::npos;
  for (const std::string& stop : stops_) {
    const size_t begin = held_.find(stop);
    if (begin == std::string::npos) continue;
    const size_t end = begin + stop.size();
    if (end < cut_end || (end == cut_end && begin < cut)) {
      cut = begin;
      cut_end = end;
    }
  }
  if (cut != std::string::npos) {
    held_.resize(cut);
    stopped_ = true;
    return std::exchange(held_, {});
  }
  size_t held_bytes = 0;
  for (const std::string& stop : stops_) {
    for (size_t bytes = std::min(stop.size() - 1, held_.size()); bytes > held_bytes; --bytes) {
      if (absl::EndsWith(held_, absl::string_view(stop).substr(0, bytes))) held_bytes = bytes;
    }
  }
  std::string certain = held_.substr(0, held_.size() - held_bytes);
  held_.erase(0, certain.size());
  return certain;
}

std::string StopScanner::Finish() { return std::exchange(held_, {}); }

}  // namespace quire
