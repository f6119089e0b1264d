#include "tools/read_bandwidth.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

namespace quire {
namespace {

// Eight sums at a time, so that no addition waits for the one before.
uint64_t Sum(const uint64_t* words, size_t count) {
  uint64_t sums[8] = {};
  for (size_t i = 0; i + 8 <= count; i += 8) {
    for (size_t j = 0; j < 8; ++j) sums[j] += words[i + j];
  }
  return sums[0] + sums[1] + sums[2] + sums[3] + sums[4] + sums[5] + sums[6] + sums[7];
}

}  // namespace

double MeasureReadBandwidth(int threads) {
  if (threads == 0) threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  const std::vector<uint64_t> words(size_t{32} << 20, 1);
  std::atomic<uint64_t> total{0};  // used below, so that the sums are not dropped
  const size_t share = words.size() / static_cast<size_t>(threads);
  const auto work = [&](int thread) {
    total += Sum(words.data() + static_cast<size_t>(thread) * share, share);
  };
  double best_s = 1e30;
  for (int run = 0; run < 5; ++run) {
    const auto begin = std::chrono::steady_clock::now();
    std::vector<std::thread> others;
    for (int thread = 1; thread < threads; ++thread) others.emplace_back(work, thread);
    work(0);
    for (std::thread& other : others) other.join();
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    best_s = std::min(best_s, taken.count());
  }
  return total == 0 ? 0 : static_cast<double>(share * static_cast<size_t>(threads) * 8) / best_s;
}

}  // namespace quire
