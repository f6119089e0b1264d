// CUDA attention kernels on this machine's GPU:
//
//   bench_cuda_attention check [HOW]    results over every feature against double precision, and
//                                       bits alone against batched, chunked, other pages, other
//                                       blocks, replayed graphs; quick: few, for a sanitizer; other
//                                       words: of specs whose text holds them
//   bench_cuda_attention time [WHICH]   a line a measurement: what us, and GB/s of keys and values
//                                       or TFLOP/s
//
// tools/bench/cuda_attention.py runs it beside cuDNN and PyTorch's FlashAttention.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <optional>
#include <random>

#include "absl/strings/str_cat.h"
#include "tools/bench/cuda_attention_step.h"

namespace quire::bench {
namespace {

constexpr size_t kPoolBytes = size_t{9} << 29;  // 4.8 GB

struct Timed {
  std::string what;
  AttentionSpec spec;
  std::vector<Part> parts;
};

std::vector<Part> Batch(int sequences, int context) {
  return std::vector<Part>(static_cast<size_t>(sequences), Part{1, context});
}

// "prefill sequences tokens context query_heads kv_heads head window".
void AddPrefill(std::vector<Timed>& cases) {
  struct Row {
    int sequences, tokens, context, hq, hkv, d, window = 0;
  };
  std::vector<Row> rows;
  for (int tokens : {512, 1000, 4096, 16384}) rows.push_back({1, tokens, tokens, 32, 8, 128});
  for (int tokens : {100, 500, 1000}) {
    rows.push_back({1, tokens, tokens, 12, 12, 64});
    rows.push_back({1, tokens, tokens, 32, 32, 128});
    rows.push_back({1, tokens, tokens, 64, 64, 128});
  }
  rows.push_back({1, 4096, 4096, 32, 32, 128});
  for (int d : {64, 96, 256}) rows.push_back({1, 1000, 1000, 32, 8, d});
  rows.push_back({32, 512, 512, 32, 8, 128});
  rows.push_back({1, 512, 8192, 32, 8, 128});
  rows.push_back({1, 8192, 65536, 32, 8, 128});
  for (const Row& row : rows) {
    cases.push_back(
        {absl::StrCat("prefill ", row.sequences, " ", row.tokens, " ", row.context, " ", row.hq,
                      " ", row.hkv, " ", row.d, " ", row.window),
         MakeSpec(row.hq, row.hkv, row.d),
         std::vector<Part>(static_cast<size_t>(row.sequences), Part{row.tokens, row.context})});
  }
  Timed window{"prefill 1 4096 4096 32 8 128 1024", MakeSpec(32, 8, 128), {{4096, 4096}}};
  window.spec.window = 1024;
  cases.push_back(window);
  Timed cap{"softcap 4096", MakeSpec(32, 8, 128), {{4096, 4096}}};
  cap.spec.cap = 50;
  cases.push_back(cap);
  // One page holds all.
  cases.push_back({"contiguous 4096", MakeSpec(32, 8, 128, 4096), {{4096, 4096}}});
  std::vector<Part> both(4, Part{512, 512});
  both.insert(both.end(), 60, Part{1, 2048});
  cases.push_back({"both 4 512 60 2048", MakeSpec(32, 8, 128), both});
}

std::vector<Timed> Cases() {
  std::vector<Timed> cases;
  struct Row {
    int sequences, context, hkv;
  };
  for (const Row& row :
       {Row{1, 1024, 8}, Row{1, 4096, 32}, Row{1, 4096, 8}, Row{1, 32768, 8}, Row{8, 4096, 8},
        Row{32, 1024, 32}, Row{32, 1024, 8}, Row{32, 1024, 1}, Row{128, 1024, 32},
        Row{128, 1024, 8}, Row{128, 1024, 1}, Row{32, 8192, 8}, Row{128, 4096, 8}}) {
    cases.push_back({absl::StrCat("decode ", row.sequences, " ", row.context, " ", row.hkv),
                     MakeSpec(32, row.hkv, 128), Batch(row.sequences, row.context)});
  }
  std::vector<Part> mixed;
  for (int i = 0; i < 64; ++i) {
    const int at = i * 37 % 64;
    mixed.push_back({1, static_cast<int>(std::lround(64 * std::pow(128.0, at / 63.0)))});
  }
  cases.push_back({"mixed 64 0 8", MakeSpec(32, 8, 128), mixed});
  // Per byte beside group 8, head 128, page 16.
  cases.push_back({"like group=8", MakeSpec(32, 4, 128), Batch(32, 4096)});
  cases.push_back({"like group=7", MakeSpec(28, 4, 128), Batch(32, 4096)});
  cases.push_back({"like head=80", MakeSpec(32, 4, 80), Batch(32, 4096)});
  Timed window{"like window=1024", MakeSpec(32, 4, 128), Batch(128, 4096)};
  window.spec.window = 1024;
  cases.push_back(window);
  Timed cap{"like softcap", MakeSpec(32, 4, 128), Batch(32, 4096)};
  cap.spec.cap = 50;
  cases.push_back(cap);
  cases.push_back({"like page=1", MakeSpec(32, 4, 128, 1), Batch(32, 4096)});
  AddPrefill(cases);
  cases.push_back({"verify 8 5 4096", MakeSpec(32, 8, 128), {8, Part{5, 4096}}});
  cases.push_back({"verify 64 5 4096", MakeSpec(32, 8, 128), {64, Part{5, 4096}}});
  // Keys and values of f8e4m3, by scales.
  std::vector<Timed> bytes;
  for (const Timed& timed : cases) {
    if (timed.spec.hkv == 32 || timed.what.rfind("like", 0) == 0) continue;
    bytes.push_back(timed);
    bytes.back().what = absl::StrCat("f8e4m3 ", timed.what);
    bytes.back().spec.kv = DType::kF8E4M3;
    bytes.back().spec.k_scale = bytes.back().spec.v_scale = true;
  }
  cases.insert(cases.end(), bytes.begin(), bytes.end());
  return cases;
}

// Bytes of keys and values that the batch needs, and floating-point operations.
int64_t NeededBytes(const Timed& timed) {
  int64_t tokens = 0;
  for (const Part& part : timed.parts) {
    const int64_t seen = timed.spec.window + part.rows - 1;
    tokens += timed.spec.window > 0 ? std::min<int64_t>(part.context, seen) : part.context;
  }
  return tokens * timed.spec.hkv * (timed.spec.d + timed.spec.dv) *
         InfoOf(timed.spec.kv).block_bytes;
}
double Operations(const Timed& timed) {
  double pairs = 0;
  for (const Part& part : timed.parts) {
    const double seen = part.context - part.rows / 2.0;
    const auto window = static_cast<double>(timed.spec.window);
    pairs += part.rows * (window > 0 ? std::min(seen, window) : seen);
  }
  return pairs * static_cast<double>(timed.spec.hq * (timed.spec.d + timed.spec.dv)) * 2;
}

}  // namespace

int TimeAttention(const Gpu& gpu, const std::string& which) {
  std::vector<AttentionSpec> specs;
  std::vector<Timed> cases = Cases();
  std::erase_if(cases,
                [&](const Timed& timed) { return timed.what.find(which) == std::string::npos; });
  for (const Timed& timed : cases) specs.push_back(timed.spec);
  const std::vector<LoadedAttention> loaded = LoadAttentions(gpu, specs);

  const CuDevicePtr pool = gpu.Allocate(kPoolBytes);
  constexpr size_t kBlock = size_t{64} << 20;
  const CuDevicePtr queries = gpu.Allocate(kBlock), scales = gpu.Allocate(1024);
  std::mt19937_64 random{7};
  std::normal_distribution<float> normal;
  std::vector<uint8_t> values(kBlock);
  const auto draw = [&](CuDevicePtr to, bool bytes) {
    for (size_t at = 0; at < kBlock; at += bytes ? 1 : 2) {
      const uint16_t bits = bytes ? F32ToF8E4M3(normal(random)) : F32ToBF16(normal(random));
      std::memcpy(&values[at], &bits, bytes ? 1 : 2);
    }
    gpu.Upload(to, values.data(), kBlock);
  };
  draw(queries, false);
  std::vector<float> factors(256);
  for (float& factor : factors) factor = std::exp2(normal(random) / 4);
  gpu.Upload(scales, factors.data(), 1024);
  std::optional<bool> pool_is_bytes;

  for (size_t i = 0; i < cases.size(); ++i) {
    const Timed& timed = cases[i];
    const AttentionSpec& spec = timed.spec;
    const bool is_bytes = spec.kv == DType::kF8E4M3;
    if (pool_is_bytes != is_bytes) {
      draw(pool, is_bytes);
      for (size_t at = kBlock; at < kPoolBytes; at += kBlock) gpu.Copy(pool + at, pool, kBlock);
      pool_is_bytes = is_bytes;
    }
    const int64_t page_bytes =
        spec.hkv * spec.page_tokens * (spec.d + spec.dv) * InfoOf(spec.kv).block_bytes;
    int64_t rows = 0, pages = 0;
    for (const Part& part : timed.parts) {
      rows += part.rows;
      pages += (part.context + spec.page_tokens - 1) / spec.page_tokens;
    }
    const int64_t most = static_cast<int64_t>(kPoolBytes) / (pages * page_bytes);
    const int64_t tables =
        std::clamp<int64_t>(300'000'000 / (pages * page_bytes) + 1, 2, std::min<int64_t>(most, 64));
    AttentionStep step(gpu, loaded[i], rows, static_cast<int64_t>(timed.parts.size()), pages);
    const auto query_bytes = static_cast<size_t>(rows * spec.hq * spec.d * 2);
    for (size_t at = 0; at < query_bytes; at += kBlock) {
      gpu.Copy(step.q + at, queries, std::min(kBlock, query_bytes - at));
    }
    for (const CuDevicePtr to : {step.key_scales, step.value_scales}) {
      gpu.Copy(to, scales, static_cast<size_t>(spec.hkv * 4));
    }
    std::vector<int> order(static_cast<size_t>(tables * pages));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    step.SetBatch(timed.parts, {});
    std::vector<CuDevicePtr> table;
    for (int64_t t = 0; t < tables; ++t) {
      table.push_back(step.AddPages({order.begin() + t * pages, order.begin() + (t + 1) * pages}));
    }
    step.Prepare();
    const size_t calls = std::max<size_t>(table.size(), 10);
    double us[2];
    for (int dependent : {1, 0}) {
      us[dependent] = gpu.TimeGraph(9, [&] {
        for (size_t c = 0; c < calls; ++c) {
          step.Attend(pool, table[c % table.size()], dependent != 0);
        }
      }) / static_cast<double>(calls);
    }
    std::printf("%s: %.2f us, alone %.2f us, %.2f TB/s, %.1f TFLOP/s\n", timed.what.c_str(), us[1],
                us[0], static_cast<double>(NeededBytes(timed)) / us[1] / 1e6,
                Operations(timed) / us[1] / 1e6);
    std::fflush(stdout);
  }
  // The work list of 128 sequences.
  if (!which.empty()) return 0;
  const LoadedAttention& attention = loaded[9];
  AttentionStep step(gpu, attention, 128, 128, 128 * 64);
  step.SetBatch(Batch(128, 1024), {});
  std::printf("plan 128: %.2f us\n", gpu.TimeGraph(9, [&] {
    for (int c = 0; c < 20; ++c) step.Prepare();
  }) / 20);
  return 0;
}

}  // namespace quire::bench
