// Speed of the CPU's linear kernels on random data, beside the read bandwidth of this machine.
//
//   bench_cpu_kernels [filter]      only specs whose text holds the filter
//
// One row (decode) is reported as bytes of packed weights per second, many rows (prefill) as
// multiply-adds per second. Weights are rotated through 256 MiB, so that one row streams from
// memory. Best of several runs: the second core of small machines comes and goes.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "codegen/cpu/abi.h"
#include "codegen/cpu/kernel.h"
#include "codegen/cpu/pack.h"

namespace quire {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsOf(int threads, const std::function<void(int)>& work) {
  const auto start = Clock::now();
  std::vector<std::thread> others;
  for (int thread = 1; thread < threads; ++thread) others.emplace_back(work, thread);
  work(0);
  for (std::thread& other : others) other.join();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double BestOf(int runs, int threads, const std::function<void(int)>& work) {
  double best = 1e30;
  for (int run = 0; run < runs; ++run) best = std::min(best, SecondsOf(threads, work));
  return best;
}

std::vector<uint8_t> RandomBytes(size_t count) {
  std::vector<uint8_t> bytes(count);
  std::mt19937_64 random(1);
  for (size_t i = 0; i + 8 <= count; i += 8) {
    // Bit 14 of every half is cleared: no f16 scale is infinite or large.
    const uint64_t word = random() & 0xbfffbfffbfffbfffULL;
    std::memcpy(bytes.data() + i, &word, 8);
  }
  return bytes;
}

double ReadBandwidth(int threads) {
  static const std::vector<uint64_t> words(size_t{32} << 20, 1);
  static std::atomic<uint64_t> sink;  // so that the loop is not dropped
  const size_t share = words.size() / static_cast<size_t>(threads);
  const double seconds = BestOf(5, threads, [&](int thread) {
    uint64_t sums[8] = {};
    const uint64_t* at = words.data() + static_cast<size_t>(thread) * share;
    for (size_t i = 0; i + 8 <= share; i += 8) {
      for (size_t j = 0; j < 8; ++j) sums[j] += at[i + j];
    }
    sink += sums[0] + sums[1] + sums[2] + sums[3] + sums[4] + sums[5] + sums[6] + sums[7];
  });
  return static_cast<double>(words.size()) * 8e-9 / seconds;
}

struct Bench {
  const LinearSpec& spec;
  const CpuKernel& kernel;
  int64_t bytes, copies, strips;
  const std::vector<uint8_t>& weights;
  std::vector<float> x, y;
  std::vector<ActivationBlock> blocks;

  void Run(int64_t rows, int threads, int thread, int64_t rounds) {
    const int64_t begin = strips * thread / threads, end = strips * (thread + 1) / threads;
    for (int64_t round = 0; round < rounds; ++round) {
      const void* input = x.data();
      if (kernel.quantize != nullptr) {
        // Threads write the same bytes.
        reinterpret_cast<QuantizeEntry>(kernel.quantize)(x.data(), blocks.data(), 0, rows);
        input = blocks.data();
      }
      const uint8_t* weight = weights.data() + round % copies * bytes;
      constexpr int64_t kChunk = 64;
      for (int64_t row = 0; row < rows; row += kChunk) {
        reinterpret_cast<LinearEntry>(kernel.main)(input, weight, nullptr, nullptr, y.data(), row,
                                                   std::min(rows, row + kChunk), begin, end);
      }
    }
  }
};

void RunSpec(KernelBuilder& builder, const LinearSpec& spec, const std::vector<uint8_t>& weights) {
  const auto start = Clock::now();
  const auto kernel = builder.Build(SpecText(spec));
  const double built = std::chrono::duration<double>(Clock::now() - start).count();
  if (!kernel.ok()) {
    std::printf("%s\n", std::string(kernel.status().message()).c_str());
    return;
  }
  const int64_t bytes = PackedBytes(WeightLayout::kRows16, spec.weight, spec.n, spec.k);
  const int64_t copies = static_cast<int64_t>(weights.size()) / bytes;
  if (copies == 0) return;
  constexpr int64_t kRows = 256;
  const int strip = IsBlockType(spec.weight) ? 16 : 64;
  Bench bench{spec, **kernel, bytes, copies, (spec.n + strip - 1) / strip, weights, {}, {}, {}};
  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  bench.x.resize(static_cast<size_t>(kRows * spec.k));
  for (float& value : bench.x) value = normal(random);
  bench.y.resize(static_cast<size_t>(kRows * spec.n));
  bench.blocks.resize(static_cast<size_t>(kRows * spec.k / 32 + 1));
  std::printf("%-34s build %5.1f ms ",
              absl::StrCat("n=", spec.n, " k=", spec.k, " ", DTypeText(spec.weight)).c_str(),
              built * 1e3);
  for (int threads : {1, 2}) {
    const double seconds =
        BestOf(5, threads, [&](int thread) { bench.Run(1, threads, thread, copies); });
    std::printf("| %dt %6.1f GB/s", threads, static_cast<double>(copies * bytes) * 1e-9 / seconds);
    for (int64_t rows : {int64_t{8}, kRows}) {
      const int64_t rounds = std::max<int64_t>(1, 200'000'000 / (spec.n * spec.k * rows));
      const double many =
          BestOf(3, threads, [&](int thread) { bench.Run(rows, threads, thread, rounds); });
      std::printf(" %6.1f", static_cast<double>(spec.n * spec.k * rows * rounds) * 1e-9 / many);
    }
    std::printf(" GMAC/s ");
  }
  std::printf("\n");
  std::fflush(stdout);
}

int Main(const std::string& filter) {
  const auto isa = HostIsa();
  if (!isa.ok()) return 1;
  const auto builder = KernelBuilder::Create(*isa, KernelCache("none"));
  if (!builder.ok()) return 1;
  std::printf("%s, read bandwidth: 1 thread %.1f GB/s, 2 threads %.1f GB/s\n", isa->cpu.c_str(),
              ReadBandwidth(1), ReadBandwidth(2));
  std::printf("per thread count: GB/s at 1 row, GMAC/s at 8 and at 256 rows\n");
  const std::vector<uint8_t> weights = RandomBytes(size_t{256} << 20);
  const int64_t smol[][2] = {{960, 576}, {576, 576}, {3072, 576}, {576, 1536}, {49152, 576}};
  const int64_t llama[][2] = {{4096, 4096}, {4096, 11008}};
  const auto run = [&](int64_t n, int64_t k, DType dtype) {
    LinearSpec spec;
    spec.n = n, spec.k = k, spec.weight = dtype;
    if (absl::StrContains(SpecText(spec), filter)) RunSpec(**builder, spec, weights);
  };
  for (const auto& [n, k] : smol) {
    for (DType dtype : {DType::kQ4_1, DType::kQ8_0, DType::kF32}) run(n, k, dtype);
  }
  for (const auto& [n, k] : llama) {
    for (DType dtype :
         {DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1, DType::kQ8_0, DType::kQ4_K,
          DType::kQ5_K, DType::kQ6_K, DType::kF32, DType::kF16, DType::kBF16}) {
      run(n, k, dtype);
    }
  }
  return 0;
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) { return quire::Main(argc > 1 ? argv[1] : ""); }
