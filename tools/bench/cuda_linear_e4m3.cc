// Linears of numbers of f8e4m3 on both sides, launched as a plan has them.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>

#include "codegen/cuda/linear_e4m3.h"
#include "ir/weight_scales.h"
#include "tools/bench/cuda_linear_kernels.h"
#include "tools/bench/cuda_planned.h"

namespace quire::bench {
namespace {

LinearSpec E4m3Spec(int64_t n, int64_t k, int64_t columns, DType y = DType::kBF16) {
  LinearSpec spec = Spec(n, k, DType::kBF16, y, false, false);
  spec.weight = DType::kF8E4M3_128;
  spec.quantize = QuantizeSpec{columns};
  spec.row_scales = columns == 0;
  return spec;
}

// Numbers and scales as kernels read them (CudaKernel::splits_scales), in one piece.
std::vector<uint8_t> DrawNumbers(const LinearSpec& spec, Random& random) {
  const int64_t rows = spec.weight_rows(), numbers = rows * spec.k, blocks = spec.k / kScaleBlock;
  std::vector<uint8_t> bytes(static_cast<size_t>(numbers + 4 * rows * blocks + 4));
  for (int64_t i = 0; i < numbers; ++i) {
    bytes[static_cast<size_t>(i)] = F32ToF8E4M3(random.Value() * 64);
  }
  // Of rows of which each 128 could share theirs, each 128 do.
  const bool is_shared = !spec.row_scales && rows % kScaleBlock == 0;
  std::vector<float> scales(static_cast<size_t>(rows * blocks));
  for (int64_t row = 0; row < rows; ++row) {
    float scale = 0;
    for (int64_t block = 0; block < blocks; ++block) {
      const int64_t at = block * rows + row;
      if (block == 0 || !spec.row_scales) scale = (2.5f + random.Value()) / 1024;
      const bool is_first = !is_shared || row % kScaleBlock == 0;
      scales[static_cast<size_t>(at)] =
          is_first ? scale : scales[static_cast<size_t>(at - row % kScaleBlock)];
    }
  }
  std::memcpy(&bytes[static_cast<size_t>(numbers)], scales.data(), scales.size() * 4);
  const uint32_t flag = is_shared ? 1 : 0;
  std::memcpy(&bytes[bytes.size() - 4], &flag, 4);
  return bytes;
}

// A row of x as the kernels bring it to 8 bits.
struct Row {
  std::vector<uint8_t> numbers;
  std::vector<float> scales;

  Row(const uint16_t* x, int64_t k, int64_t columns) : numbers(static_cast<size_t>(k)) {
    const int64_t count = columns == 0 ? k : columns;
    for (int64_t begin = 0; begin < k; begin += count) {
      float greatest = 0;
      for (int64_t i = begin; i < begin + count; ++i) {
        greatest = std::max(greatest, std::fabs(BF16ToF32(x[i])));
      }
      scales.push_back(greatest / 448);
      for (int64_t i = begin; i < begin + count; ++i) {
        numbers[static_cast<size_t>(i)] = F32ToF8E4M3(BF16ToF32(x[i]) / scales.back());
      }
    }
  }
};

struct Linear {
  Linear(const Gpu& gpu, const LinearSpec& of) : spec(of), planned(gpu, of) {}
  const LinearSpec spec;
  Planned planned;
};
using E4m3Linears = std::vector<std::unique_ptr<Linear>>;

void CompileLinears(const Gpu& gpu, const E4m3Linears& linears) {
  std::vector<Planned*> kernels;
  for (const auto& linear : linears) kernels.push_back(&linear->planned);
  Compile(gpu, kernels);
}

}  // namespace

// Elements of some rows beside the arithmetic, bit for bit, and all rows beside other numbers of
// rows.
int CheckE4m3(const Gpu& gpu) {
  constexpr int64_t kMostRows = 600;
  if (!CudaLinearIsE4m3(E4m3Spec(64, 256, 0), gpu.limits())) return 0;
  const CuDevicePtr workspace = gpu.AllocateScratch(kWorkspaceBytes, kCudaZeroBytes);
  E4m3Linears linears;
  for (const int64_t columns : {int64_t{0}, kScaleBlock}) {
    for (const auto& [n, k] : {std::pair<int64_t, int64_t>{43, 384}, {1032, 1152}, {8320, 4096}}) {
      for (const DType y : {DType::kBF16, DType::kF32}) {
        linears.push_back(std::make_unique<Linear>(gpu, E4m3Spec(n, k, columns, y)));
      }
    }
  }
  CompileLinears(gpu, linears);
  int64_t wrong = 0, compared = 0;
  for (const auto& linear : linears) {
    const LinearSpec& spec = linear->spec;
    const int64_t columns = spec.quantize->columns, numbers = spec.n * spec.k;
    Random random{static_cast<uint64_t>(spec.n)};
    std::vector<uint16_t> x(static_cast<size_t>(kMostRows * spec.k));
    for (uint16_t& value : x) value = F32ToBF16(random.Value());
    const std::vector<uint8_t> weight = DrawNumbers(spec, random);
    const auto y_bytes = static_cast<size_t>(RowBytes(spec.y, spec.n) * kMostRows);
    const std::vector<CuDevicePtr> operands = {gpu.Allocate(x.size() * 2),
                                               gpu.Allocate(weight.size()), gpu.Allocate(y_bytes)};
    gpu.Upload(operands[0], x.data(), x.size() * 2);
    gpu.Upload(operands[1], weight.data(), weight.size());
    std::vector<uint8_t> all;
    wrong += linear->planned.CountOtherBits(SpecText(spec), {kMostRows, 300, 128, 65, 33, 17, 8, 1},
                                            operands, workspace, RowBytes(spec.y, spec.n), &all);
    const int64_t blocks = spec.k / kScaleBlock;
    for (const int64_t row : {0, 1, 7, 8, 130, 511, 599}) {
      const Row of_x(&x[static_cast<size_t>(row * spec.k)], spec.k, columns);
      for (int64_t n = 0; n < spec.n; n += spec.n > 1000 ? 37 : 1) {
        std::vector<float> scales(static_cast<size_t>(blocks));
        for (int64_t block = 0; block < blocks; ++block) {
          std::memcpy(&scales[static_cast<size_t>(block)],
                      &weight[static_cast<size_t>(numbers + 4 * (block * spec.n + n))], 4);
        }
        const float sum = CudaE4m3Sum(of_x.numbers.data(), of_x.scales.data(),
                                      &weight[static_cast<size_t>(n * spec.k)], scales.data(),
                                      spec.k, columns == 0);
        const auto at = static_cast<size_t>(row * spec.n + n);
        bool equal = false;
        if (spec.y == DType::kF32) {
          equal = std::memcmp(&all[at * 4], &sum, 4) == 0;
        } else {
          const uint16_t expected = F32ToBF16(sum);
          equal = std::memcmp(&all[at * 2], &expected, 2) == 0;
        }
        ++compared;
        if (equal) continue;
        if (++wrong < 20) {
          std::printf("WRONG: %s row %ld n %ld: %.9g expected\n", SpecText(spec).c_str(),
                      static_cast<long>(row), static_cast<long>(n), static_cast<double>(sum));
        }
      }
    }
    for (const CuDevicePtr memory : operands) gpu.Free(memory);
  }
  std::printf("e4m3: %zu linears, %ld elements, %ld wrong\n", linears.size(),
              static_cast<long>(compared), static_cast<long>(wrong));
  return wrong == 0 ? 0 : 1;
}

// n k rows scales body us us_with_rows: of the product alone, and after bringing x to 8 bits.
int TimeE4m3(const Gpu& gpu) {
  constexpr size_t kPoolBytes = size_t{1} << 30;
  constexpr std::pair<int64_t, int64_t> kShapes[] = {
      {4096, 4096}, {12288, 4096}, {22016, 4096}, {4096, 11008}};
  E4m3Linears linears;
  for (const int64_t columns : {int64_t{0}, kScaleBlock}) {
    for (const auto& [n, k] : kShapes) {
      linears.push_back(std::make_unique<Linear>(gpu, E4m3Spec(n, k, columns)));
    }
  }
  CompileLinears(gpu, linears);
  const CuDevicePtr pool = gpu.Allocate(kPoolBytes),
                    workspace = gpu.AllocateScratch(kWorkspaceBytes, kCudaZeroBytes);
  constexpr size_t kXBytes = size_t{16384} * 11008 * 2;
  const CuDevicePtr x = gpu.Allocate(kXBytes), y = gpu.Allocate(size_t{16384} * 22016 * 2);
  std::vector<uint16_t> values(size_t{4096} * 1024);
  Random random{3};
  for (uint16_t& value : values) value = F32ToBF16(random.Value());
  for (size_t at = 0; at + values.size() * 2 <= kXBytes; at += values.size() * 2) {
    gpu.Upload(x + at, values.data(), values.size() * 2);
  }
  for (const auto& linear : linears) {
    const LinearSpec& spec = linear->spec;
    const std::vector<uint8_t> weight = DrawNumbers(spec, random);
    const size_t bytes = (weight.size() + 1023) / 1024 * 1024, weights = kPoolBytes / bytes;
    gpu.Upload(pool, weight.data(), weight.size());
    for (size_t i = 1; i < weights; ++i) gpu.Copy(pool + i * bytes, pool, weight.size());
    for (const int64_t rows : {1, 8, 32, 128, 512, 4096, 16384}) {
      const size_t calls = rows >= 512 ? 4 : std::max<size_t>(weights, 8);
      const CudaLaunches both = linear->planned.Launches(rows);
      CudaLaunches product = both;
      product.launches.erase(product.launches.begin());
      double us[2] = {};
      for (const bool whole : {true, false}) {  // numbers are there then
        us[whole] = gpu.TimeGraph(rows >= 512 ? 3 : 7, [&] {
          for (size_t i = 0; i < calls; ++i) {
            linear->planned.Enqueue(whole ? both : product, {x, pool + i % weights * bytes, y},
                                    workspace);
          }
        }) / static_cast<double>(calls);
      }
      std::printf("%ld %ld %ld %s %s %.2f %.2f\n", static_cast<long>(spec.n),
                  static_cast<long>(spec.k), static_cast<long>(rows),
                  spec.row_scales ? "rows" : "blocks",
                  linear->planned.entries()[product.launches[0].entry].entry.c_str(), us[0], us[1]);
      std::fflush(stdout);
    }
  }
  return 0;
}

}  // namespace quire::bench
