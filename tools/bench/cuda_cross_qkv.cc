// What split-cross-qkv saves on this machine's GPU, by the linears that a plan launches: the packed
// projection of queries, keys and values over decoder rows and encoder rows, and what is left of it
// where queries are computed of the former and keys and values of the latter.
//
//   bench_cuda_cross_qkv     Mllama 11B's geometry, 16 images of 4 x 1601 tokens; one line a number
//                            of decoder rows: rows, ms packed, ms split, their ratio, and ms of
//                            queries alone, which is all that a step has once `encode` ran
#include <cstdio>
#include <cstring>
#include <vector>

#include "ir/dtype.h"
#include "tools/bench/cuda_linear_kernels.h"

namespace quire::bench {
namespace {

constexpr int64_t kWidth = 4096, kQueries = 32 * 128, kKeysAndValues = 2 * 8 * 128;
constexpr int64_t kBatch = 16, kEncoderRows = kBatch * 4 * 1601;

class Projection {
 public:
  Projection(const Gpu& gpu, int64_t columns)
      : gpu_(gpu),
        linears_(gpu),
        spec_(Spec(columns, kWidth, DType::kBF16, DType::kBF16, false, false)) {
    linears_.Add(spec_, OrDie(CudaLinearConfigs(spec_, gpu.limits())));
    linears_.Compile();
    kernels_ = OrDie(CudaLinearKernels(spec_, gpu.limits()));
  }
  // As a plan launches it.
  void Run(CuDevicePtr x, CuDevicePtr weight, CuDevicePtr y, CuDevicePtr workspace,
           int64_t rows) const {
    const size_t chosen = ChooseCudaLinear(spec_, kernels_, rows, gpu_.multiprocessors());
    const CudaLinearLaunch launch =
        PlanCudaLinear(spec_, kernels_[chosen], rows, gpu_.multiprocessors());
    Enqueue(gpu_, spec_, linears_.kernels(0)[chosen], {x, weight, 0, 0, y, workspace}, rows, launch,
            /*dependent=*/true);
  }

 private:
  const Gpu& gpu_;
  Linears linears_;
  const LinearSpec spec_;
  std::vector<CudaLinearKernel> kernels_;
};

CuDevicePtr Drawn(const Gpu& gpu, int64_t elements, uint64_t seed) {
  constexpr int64_t kBlock = int64_t{1} << 24;
  std::vector<uint16_t> values(static_cast<size_t>(std::min(elements, kBlock)));
  Random random{seed};
  for (uint16_t& value : values) value = F32ToBF16(random.Value());
  const CuDevicePtr memory = gpu.Allocate(static_cast<size_t>(elements) * 2);
  for (int64_t at = 0; at < elements; at += kBlock) {
    gpu.Upload(memory + static_cast<uint64_t>(at) * 2, values.data(),
               static_cast<size_t>(std::min(kBlock, elements - at)) * 2);
  }
  return memory;
}

// The first rows' columns [begin, begin + count) of y, which has `columns`.
std::vector<uint16_t> Columns(const Gpu& gpu, CuDevicePtr y, int64_t columns, int64_t begin,
                              int64_t count) {
  constexpr int64_t kRows = 16;
  std::vector<uint16_t> all(static_cast<size_t>(kRows * columns)), some;
  gpu.Download(all.data(), y, all.size() * 2);
  for (int64_t row = 0; row < kRows; ++row) {
    const auto from = all.begin() + row * columns + begin;
    some.insert(some.end(), from, from + count);
  }
  return some;
}

int Main() {
  const Gpu gpu;
  constexpr int64_t kPacked = kQueries + kKeysAndValues, kMostRows = kBatch * 512;
  const Projection packed(gpu, kPacked), queries(gpu, kQueries), keys_values(gpu, kKeysAndValues);
  const CuDevicePtr weight = Drawn(gpu, kPacked * kWidth, 1);
  const CuDevicePtr kv_weight = weight + static_cast<uint64_t>(kQueries * kWidth) * 2;
  const CuDevicePtr x = Drawn(gpu, kMostRows * kWidth, 2);
  const CuDevicePtr memory = Drawn(gpu, kEncoderRows * kWidth, 3);
  const CuDevicePtr y = gpu.Allocate(static_cast<size_t>(kMostRows * kPacked) * 2);
  const CuDevicePtr encoded = gpu.Allocate(static_cast<size_t>(kEncoderRows * kPacked) * 2);
  const CuDevicePtr workspace = gpu.Allocate(kWorkspaceBytes);

  const auto run_packed = [&](int64_t rows) {
    packed.Run(x, weight, y, workspace, rows);
    packed.Run(memory, weight, encoded, workspace, kEncoderRows);
  };
  const auto run_split = [&](int64_t rows) {
    queries.Run(x, weight, y, workspace, rows);
    keys_values.Run(memory, kv_weight, encoded, workspace, kEncoderRows);
  };
  run_packed(kBatch);
  const auto q = Columns(gpu, y, kPacked, 0, kQueries);
  const auto kv = Columns(gpu, encoded, kPacked, kQueries, kKeysAndValues);
  run_split(kBatch);
  const bool same = q == Columns(gpu, y, kQueries, 0, kQueries) &&
                    kv == Columns(gpu, encoded, kKeysAndValues, 0, kKeysAndValues);
  std::printf("%s; %ld encoder rows; bits %s\n", gpu.name().c_str(),
              static_cast<long>(kEncoderRows), same ? "equal" : "DIFFER");
  for (const int64_t tokens : {1, 32, 512}) {
    const int64_t rows = kBatch * tokens;
    const double all = gpu.TimeGraph(9, [&] { run_packed(rows); });
    const double parts = gpu.TimeGraph(9, [&] { run_split(rows); });
    const double alone = gpu.TimeGraph(9, [&] {
      for (int i = 0; i < 10; ++i) queries.Run(x, weight, y, workspace, rows);
    });
    std::printf("%ld %.3f %.3f %.2f %.4f\n", static_cast<long>(rows), all / 1e3, parts / 1e3,
                all / parts, alone / 1e4);
    std::fflush(stdout);
  }
  return same ? 0 : 1;
}

}  // namespace
}  // namespace quire::bench

int main() { return quire::bench::Main(); }
