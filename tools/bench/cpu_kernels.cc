// Speed of the CPU's linear and attention kernels on random data, beside the read bandwidth of this
// machine.
//
//   bench_cpu_kernels [filter]      only specs whose text holds the filter
//
// One row (decode) is reported as bytes of packed weights, or of keys and values, per second, many
// rows (prefill) as multiply-adds per second. Weights and pages are rotated through 256 MiB, so
// that one row streams from memory. Best of several runs: the second core of small machines comes
// and goes.
#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "codegen/cpu/abi.h"
#include "codegen/cpu/kernel.h"
#include "codegen/cpu/pack.h"

namespace quire {
namespace {

double Now(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// One thread is timed by its own clock, which other processes do not advance.
double SecondsOf(int threads, const std::function<void(int)>& work) {
  const clockid_t clock = threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC;
  const double start = Now(clock);
  std::vector<std::thread> others;
  for (int thread = 1; thread < threads; ++thread) others.emplace_back(work, thread);
  work(0);
  for (std::thread& other : others) other.join();
  return Now(clock) - start;
}

double BestOf(int runs, int threads, const std::function<void(int)>& work) {
  double best = 1e30;
  for (int run = 0; run < runs; ++run) best = std::min(best, SecondsOf(threads, work));
  return best;
}

// Memory in huge pages, as the runtime's is.
absl::Span<uint8_t> RandomBytes(size_t count) {
  void* memory = mmap(nullptr, count, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return {};
  static_cast<void>(madvise(memory, count, MADV_HUGEPAGE));
  auto* bytes = static_cast<uint8_t*>(memory);
  std::mt19937_64 random(1);
  for (size_t i = 0; i + 8 <= count; i += 8) {
    // Bit 14 of every half is cleared: no f16 scale is infinite or large.
    const uint64_t word = random() & 0xbfffbfffbfffbfffULL;
    std::memcpy(bytes + i, &word, 8);
  }
  return {bytes, count};
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
  absl::Span<const uint8_t> weights;
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

void RunSpec(KernelBuilder& builder, const LinearSpec& spec, absl::Span<const uint8_t> weights) {
  const double start = Now(CLOCK_THREAD_CPUTIME_ID);
  const auto kernel = builder.Build(SpecText(spec));
  const double built = Now(CLOCK_THREAD_CPUTIME_ID) - start;
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

// Pages that hold `tokens` tokens of one layer, some copies of them in random order.
struct Pages {
  int64_t page_bytes, copies;
  std::vector<std::vector<int32_t>> tables;

  Pages(const AttentionSpec& spec, int64_t tokens, int64_t pool_bytes)
      : page_bytes(spec.page_tokens * spec.hkv * (spec.d + spec.dv) * InfoOf(spec.kv).block_bytes) {
    const int64_t count = tokens / spec.page_tokens;
    copies = std::max<int64_t>(1, pool_bytes / (count * page_bytes));
    std::vector<int32_t> all(static_cast<size_t>(copies * count));
    std::iota(all.begin(), all.end(), 0);
    std::shuffle(all.begin(), all.end(), std::mt19937(3));
    for (int64_t copy = 0; copy < copies; ++copy) {
      tables.emplace_back(all.begin() + copy * count, all.begin() + (copy + 1) * count);
    }
  }
};

// Seconds of one call over all heads, on one thread.
double AttentionSeconds(const CpuKernel& kernel, const Pages& pages, absl::Span<const uint8_t> pool,
                        int64_t rows, int64_t tokens) {
  const auto& spec = std::get<AttentionSpec>(kernel.spec);
  std::vector<float> q(static_cast<size_t>(rows * spec.hq * spec.d), 0.1f);
  std::vector<float> y(static_cast<size_t>(rows * spec.hq * spec.dv));
  std::vector<uint8_t> scratch(static_cast<size_t>(kernel.scratch_bytes));
  const AttentionTables tables;
  return BestOf(5, 1,
                [&](int) {
                  for (const std::vector<int32_t>& table : pages.tables) {
                    for (int64_t head = 0; head < spec.hkv; ++head) {
                      const AttentionItem item{table.data(),
                                               pages.page_bytes,
                                               0,
                                               rows,
                                               tokens,
                                               head,
                                               0,
                                               rows * spec.hq / spec.hkv,
                                               0,
                                               (tokens + kSplitTokens - 1) / kSplitTokens,
                                               nullptr};
                      reinterpret_cast<AttentionEntry>(kernel.main)(q.data(), pool.data(), y.data(),
                                                                    &item, scratch.data(), &tables);
                    }
                  }
                }) /
         static_cast<double>(pages.copies);
}

void RunAttention(KernelBuilder& builder, const AttentionSpec& spec,
                  absl::Span<const uint8_t> pool) {
  const auto kernel = builder.Build(SpecText(spec));
  if (!kernel.ok()) {
    std::printf("%s\n", std::string(kernel.status().message()).c_str());
    return;
  }
  constexpr int64_t kTokens = 1024;
  const Pages cold(spec, kTokens, static_cast<int64_t>(pool.size())), warm(spec, kTokens, 1);
  const double kv_bytes = static_cast<double>(kTokens / spec.page_tokens * cold.page_bytes) * 1e-9;
  const double seen = static_cast<double>(kTokens * (kTokens + 1) / 2);
  const double macs = seen * static_cast<double>(spec.hq * (spec.d + spec.dv)) * 1e-9;
  std::printf(
      "hq=%-3d hkv=%-3d d=%-3d %s context 1024: 1 row %6.1f GB/s, from cache %6.1f; 1024 rows "
      "%6.1f GMAC/s\n",
      static_cast<int>(spec.hq), static_cast<int>(spec.hkv), static_cast<int>(spec.d),
      std::string(DTypeText(spec.kv)).c_str(),
      kv_bytes / AttentionSeconds(**kernel, cold, pool, 1, kTokens),
      kv_bytes / AttentionSeconds(**kernel, warm, pool, 1, kTokens),
      macs / AttentionSeconds(**kernel, warm, pool, kTokens, kTokens));
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
  const absl::Span<const uint8_t> weights = RandomBytes(size_t{256} << 20);
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
  const int64_t heads[][3] = {{9, 3, 64}, {32, 32, 128}, {32, 8, 128}, {8, 1, 256}};
  for (const auto& [hq, hkv, d] : heads) {
    for (DType dtype : {DType::kF16, DType::kF32}) {
      AttentionSpec spec;
      spec.hq = hq, spec.hkv = hkv, spec.d = spec.dv = d;
      spec.kv = dtype, spec.page_tokens = 16, spec.scale = 0.1;
      if (absl::StrContains(SpecText(spec), filter)) RunAttention(**builder, spec, weights);
    }
  }
  return 0;
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) { return quire::Main(argc > 1 ? argv[1] : ""); }
