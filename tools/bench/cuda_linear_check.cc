// Every linear body's bits, against the CPU model and against each other.
#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdio>
#include <cstring>
#include <thread>

#include "tools/bench/cuda_linear_kernels.h"

namespace quire::bench {
namespace {

uint16_t Narrow(DType dtype, float value) {
  return dtype == DType::kF16 ? F32ToF16(value) : F32ToBF16(value);
}

constexpr int64_t kRowCounts[] = {1, 2, 7, 8, 9, 16, 33, 64, 65, 128, 300, 2200};
// For a sanitizer: of each body as many as it takes, two tiles at most.
constexpr int64_t kQuickRows = 129;

// Checks every body of one spec; returns the number of elements that differ.
class Checker {
 public:
  Checker(const Gpu& gpu, const LinearSpec& spec, const std::vector<Compiled>& kernels,
          CuDevicePtr workspace, bool quick)
      : gpu_(gpu),
        spec_(spec),
        quick_(quick),
        kernels_(kernels),
        rows_(quick          ? kQuickRows
              : spec.n < 100 ? 2200
                             : 300) {
    Random random{static_cast<uint64_t>(spec.n * 1000003 + spec.k) * 2 + spec.bias};
    x_ = Draw(random, rows_ * spec.k);
    weight_ = Draw(random, spec.n * spec.k);
    residual_ = Draw(random, rows_ * spec.n);
    for (int64_t i = 0; i < spec.n; ++i) bias_.push_back(random.Value());
    y_bytes_ = static_cast<size_t>(RowBytes(spec.y, spec.n) * rows_);
    operands_ = {Place(x_.data(), x_.size() * 2),
                 Place(weight_.data(), weight_.size() * 2),
                 spec.bias ? Place(bias_.data(), bias_.size() * 4) : 0,
                 spec.residual ? Place(residual_.data(), residual_.size() * 2) : 0,
                 gpu.Allocate(y_bytes_),
                 workspace};
  }
  ~Checker() {
    for (CuDevicePtr memory :
         {operands_.x, operands_.weight, operands_.bias, operands_.residual, operands_.y}) {
      if (memory != 0) gpu_.Free(memory);
    }
  }

  int64_t Run() {
    if (quick_) {
      for (auto c = kernels_.rbegin(); c != kernels_.rend(); ++c) {
        RunKernel(*c, std::min<int64_t>(c->kernel.max_rows, kQuickRows));
      }
    } else {
      for (auto rows = std::rbegin(kRowCounts); rows != std::rend(kRowCounts); ++rows) {
        if (*rows > rows_) continue;
        for (auto c = kernels_.rbegin(); c != kernels_.rend(); ++c) {
          const bool tile = c->kernel.config.body != CudaLinearConfig::kFew;
          if (tile || *rows <= c->kernel.max_rows) RunKernel(*c, *rows);
        }
      }
    }
    std::printf("%s: %ld launches, %ld wrong\n", SpecText(spec_).c_str(),
                static_cast<long>(launches_), static_cast<long>(wrong_));
    return wrong_;
  }

 private:
  void RunKernel(const Compiled& c, int64_t rows) {
    for (CudaLinearLaunch launch : Launches(spec_, c.kernel, rows, gpu_.multiprocessors())) {
      for (int grid : {launch.grid, std::min(launch.grid, quick_ ? 2 : 3)}) {
        if (quick_ && grid > 2) continue;
        launch.grid = grid;
        gpu_.Fill(operands_.y, 0xee, y_bytes_);
        // Twice, so that the second starts early and meets what the first leaves behind.
        Enqueue(gpu_, spec_, c, operands_, rows, launch, true);
        Enqueue(gpu_, spec_, c, operands_, rows, launch, true);
        std::vector<uint8_t> y(y_bytes_);
        gpu_.Download(y.data(), operands_.y, y.size());
        launches_ += 2;
        if (all_.empty()) {
          all_ = y;
          wrong_ += CompareWithModel(all_);
        }
        const size_t bytes = static_cast<size_t>(RowBytes(spec_.y, spec_.n) * rows);
        const bool equal = std::memcmp(y.data(), all_.data(), bytes) == 0;
        const bool beyond = std::all_of(y.begin() + static_cast<ptrdiff_t>(bytes), y.end(),
                                        [](uint8_t byte) { return byte == 0xee; });
        if (equal && beyond) continue;
        ++wrong_;
        std::printf("DIFFERS: %s %s rows %ld whole %d grid %d equal %d beyond %d\n",
                    SpecText(spec_).c_str(), Name(c.kernel.config).c_str(), static_cast<long>(rows),
                    launch.whole_tiles, grid, equal, beyond);
      }
    }
  }

  std::vector<uint16_t> Draw(Random& random, int64_t count) const {
    std::vector<uint16_t> values(static_cast<size_t>(count));
    for (uint16_t& value : values) value = Narrow(spec_.weight, random.Value());
    return values;
  }
  CuDevicePtr Place(const void* data, size_t bytes) const {
    const CuDevicePtr memory = gpu_.Allocate(bytes);
    gpu_.Upload(memory, data, bytes);
    return memory;
  }

  // All elements where they are few, else a spread of them.
  int64_t CompareWithModel(const std::vector<uint8_t>& y) const {
    const int64_t count = rows_ * spec_.n;
    const int64_t stride = std::max<int64_t>(1, count * spec_.k / 40'000'000) | 1;
    std::atomic<int64_t> next = 0, wrong = 0;
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < std::max(1u, std::thread::hardware_concurrency()); ++i) {
      threads.emplace_back([&] {
        for (int64_t at; (at = next++ * stride) < count;) {
          const size_t row = static_cast<size_t>(at / spec_.n),
                       n = static_cast<size_t>(at % spec_.n);
          const size_t k = static_cast<size_t>(spec_.k);
          float sum = CudaLinearSum(spec_.weight, &x_[row * k], &weight_[n * k], spec_.k);
          if (spec_.bias) sum += bias_[n];
          const size_t element = static_cast<size_t>(at);
          if (spec_.residual) {
            sum += spec_.y == DType::kF16 ? F16ToF32(residual_[element])
                                          : BF16ToF32(residual_[element]);
          }
          bool equal;
          if (spec_.y == DType::kF32) {
            equal = std::memcmp(&sum, &y[4 * element], 4) == 0;
          } else {
            const uint16_t bits = Narrow(spec_.y, sum);
            equal = std::memcmp(&bits, &y[2 * element], 2) == 0;
          }
          if (!equal && wrong++ == 0) {
            std::printf("MODEL: %s row %zu n %zu: model %08x\n", SpecText(spec_).c_str(), row, n,
                        std::bit_cast<uint32_t>(sum));
          }
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    return wrong;
  }

  const Gpu& gpu_;
  const LinearSpec spec_;
  const bool quick_;
  const std::vector<Compiled>& kernels_;
  const int64_t rows_;  // the most that are checked
  std::vector<uint16_t> x_, weight_, residual_;
  std::vector<float> bias_;
  size_t y_bytes_ = 0;
  Operands operands_ = {};
  std::vector<uint8_t> all_;  // what the most rows gave
  int64_t launches_ = 0, wrong_ = 0;
};

}  // namespace

int CheckLinears(const Gpu& gpu, bool quick) {
  Linears linears(gpu);
  size_t count = 0;
  const std::vector<int64_t> ns =
      quick ? std::vector<int64_t>{40} : std::vector<int64_t>{16, 40, 43, 4096};
  const std::vector<int64_t> ks =
      quick ? std::vector<int64_t>{72, 512} : std::vector<int64_t>{16, 72, 576, 4096};
  for (int64_t n : ns) {
    for (int64_t k : ks) {
      std::vector<LinearSpec> specs = {Spec(n, k, DType::kBF16, DType::kF32, false, false),
                                       Spec(n, k, DType::kBF16, DType::kBF16, true, true),
                                       Spec(n, k, DType::kF16, DType::kF32, true, false),
                                       Spec(n, k, DType::kF16, DType::kF16, false, true)};
      if (quick) specs = {specs[1]};
      for (const LinearSpec& spec : specs) {
        std::vector<CudaLinearConfig> configs = OrDie(CudaLinearConfigs(spec, gpu.limits()));
        for (const CudaLinearConfig& config : OtherConfigs(spec, gpu.limits())) {
          if (!quick) configs.push_back(config);
        }
        linears.Add(spec, configs);
        ++count;
      }
    }
  }
  linears.Compile();
  const CuDevicePtr workspace = gpu.AllocateScratch(kWorkspaceBytes, kCudaZeroBytes);
  int64_t wrong = 0;
  for (size_t i = 0; i < count; ++i) {
    wrong += Checker(gpu, linears.spec(i), linears.kernels(i), workspace, quick).Run();
  }
  std::printf("%s: %ld wrong\n", gpu.name().c_str(), static_cast<long>(wrong));
  return wrong == 0 ? 0 : 1;
}

}  // namespace quire::bench
