// Linears with block-quantised weights, launched as a plan has them.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>

#include "tools/bench/cuda_linear_kernels.h"
#include "tools/bench/cuda_planned.h"

namespace quire::bench {
namespace {

struct Linear {
  Linear(const Gpu& gpu, const LinearSpec& of) : spec(of), planned(gpu, of) {}
  const LinearSpec spec;
  Planned planned;
};

void CompileLinears(const Gpu& gpu, const std::vector<std::unique_ptr<Linear>>& linears) {
  std::vector<Planned*> kernels;
  for (const auto& linear : linears) kernels.push_back(&linear->planned);
  Compile(gpu, kernels);
}

LinearSpec BlocksSpec(int64_t n, int64_t k, DType weight, DType y) {
  LinearSpec spec = Spec(n, k, DType::kBF16, y, false, false);
  spec.weight = weight;
  return spec;
}

// Blocks of any bytes whose scales are numbers of a size near 2^-6.
std::vector<uint8_t> DrawBlocks(DType type, size_t bytes, Random& random) {
  std::vector<uint8_t> blocks(bytes);
  for (uint8_t& byte : blocks) byte = static_cast<uint8_t>(random.Next() >> 32);
  const auto block_bytes = static_cast<size_t>(InfoOf(type).block_bytes);
  for (size_t block = 0; block + block_bytes <= bytes; block += block_bytes) {
    if (type == DType::kF8E4M3_128) {
      const float scale = random.Value() / 64;
      std::memcpy(&blocks[block], &scale, 4);
      for (size_t i = block + 4; i < block + block_bytes; ++i) {
        if ((blocks[i] & 0x7f) == 0x7f) blocks[i] ^= 1;  // NaN
      }
      continue;
    }
    for (size_t at : {type == DType::kQ6_K ? size_t{208} : size_t{0}, size_t{2}}) {
      if (at == 2 && block_bytes % 4 != 0) continue;  // one scale
      const uint16_t scale = F32ToF16(random.Value() / 64);
      std::memcpy(&blocks[block + at], &scale, 2);
    }
  }
  return blocks;
}

}  // namespace

// Rows of each number of rows give the bits that they give together with many.
int CheckBlocks(const Gpu& gpu, bool quick) {
  const int64_t most_rows = quick ? 65 : 600;
  const CuDevicePtr workspace = gpu.AllocateScratch(kWorkspaceBytes, kCudaZeroBytes);
  std::vector<std::unique_ptr<Linear>> linears;
  for (const DTypeInfo& info : AllDTypes()) {
    if (!IsBlockType(info.dtype)) continue;
    const int64_t ragged_k = info.block_elements * (info.block_elements == 256 ? 11 : 65);
    linears.push_back(
        std::make_unique<Linear>(gpu, BlocksSpec(43, ragged_k, info.dtype, DType::kF32)));
    if (quick) continue;  // enough rows for tiles of 16
    linears.push_back(
        std::make_unique<Linear>(gpu, BlocksSpec(8208, 4096, info.dtype, DType::kBF16)));
  }
  CompileLinears(gpu, linears);
  int64_t wrong = 0;
  for (const auto& linear : linears) {
    const LinearSpec& spec = linear->spec;
    Random random{static_cast<uint64_t>(spec.n)};
    std::vector<uint16_t> x(static_cast<size_t>(most_rows * spec.k));
    for (uint16_t& value : x) value = F32ToBF16(random.Value());
    const std::vector<uint8_t> blocks = DrawBlocks(
        spec.weight, static_cast<size_t>(RowBytes(spec.weight, spec.k) * spec.n), random);
    const size_t y_bytes = static_cast<size_t>(RowBytes(spec.y, spec.n) * most_rows);
    const std::vector<CuDevicePtr> operands = {gpu.Allocate(x.size() * 2),
                                               gpu.Allocate(blocks.size()), gpu.Allocate(y_bytes)};
    gpu.Upload(operands[0], x.data(), x.size() * 2);
    gpu.Upload(operands[1], blocks.data(), blocks.size());
    std::vector<int64_t> rows = {most_rows};
    for (const int64_t fewer : {200, 33, 16, 8, 1}) {
      if (fewer < most_rows && !(quick && (fewer == 33 || fewer == 1))) rows.push_back(fewer);
    }
    std::vector<uint8_t> all;
    wrong += linear->planned.CountOtherBits(SpecText(spec), rows, operands, workspace,
                                            RowBytes(spec.y, spec.n), &all);
    for (CuDevicePtr memory : operands) gpu.Free(memory);
  }
  std::printf("blocks: %zu linears, %ld wrong\n", linears.size(), static_cast<long>(wrong));
  return wrong == 0 ? 0 : 1;
}

// n k rows type us, TB/s of the weight's bytes.
int TimeBlocks(const Gpu& gpu) {
  constexpr size_t kPoolBytes = size_t{2} << 30;
  constexpr std::pair<int64_t, int64_t> kShapes[] = {{4096, 4096}, {22016, 4096}, {4096, 11008}};
  std::vector<std::unique_ptr<Linear>> linears;
  for (const DTypeInfo& info : AllDTypes()) {
    if (!IsBlockType(info.dtype)) continue;
    for (const auto& [n, k] : kShapes) {
      linears.push_back(std::make_unique<Linear>(gpu, BlocksSpec(n, k, info.dtype, DType::kBF16)));
    }
  }
  CompileLinears(gpu, linears);
  const CuDevicePtr pool = gpu.Allocate(kPoolBytes),
                    workspace = gpu.AllocateScratch(kWorkspaceBytes, kCudaZeroBytes);
  const CuDevicePtr x = gpu.Allocate(4096 * 11008 * 2), y = gpu.Allocate(4096 * 22016 * 2);
  std::vector<uint16_t> values(4096 * 1024);
  Random random{3};
  for (uint16_t& value : values) value = F32ToBF16(random.Value());
  for (size_t at = 0; at + values.size() * 2 <= 4096 * 11008 * 2; at += values.size() * 2) {
    gpu.Upload(x + at, values.data(), values.size() * 2);
  }
  for (const auto& linear : linears) {
    const LinearSpec& spec = linear->spec;
    const auto bytes = static_cast<size_t>(RowBytes(spec.weight, spec.k) * spec.n);
    const size_t weights = std::min<size_t>(kPoolBytes / bytes, 600'000'000 / bytes + 1);
    const std::vector<uint8_t> blocks = DrawBlocks(spec.weight, bytes, random);
    gpu.Upload(pool, blocks.data(), bytes);
    for (size_t i = 1; i < weights; ++i) gpu.Copy(pool + i * bytes, pool, bytes);
    for (int64_t rows : {1, 8, 16, 32, 64, 128, 512, 4096}) {
      const size_t calls = rows >= 512 ? 4 : std::max<size_t>(weights, 8);
      const CudaLaunches launches = linear->planned.Launches(rows);
      const double us = gpu.TimeGraph(rows >= 512 ? 3 : 7, [&] {
        for (size_t i = 0; i < calls; ++i) {
          linear->planned.Enqueue(launches, {x, pool + i % weights * bytes, y}, workspace);
        }
      }) / static_cast<double>(calls);
      std::printf("%ld %ld %ld %s %.2f %.2f\n", static_cast<long>(spec.n),
                  static_cast<long>(spec.k), static_cast<long>(rows),
                  std::string(DTypeText(spec.weight)).c_str(), us,
                  static_cast<double>(bytes) / us / 1e6);
    }
  }
  return 0;
}

}  // namespace quire::bench
