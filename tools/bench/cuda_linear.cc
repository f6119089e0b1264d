// CUDA linear kernels on this machine's GPU:
//
//   bench_cuda_linear check [quick]   every body's bits, over awkward sizes, against the CPU model
//                                     and against each other; quick: every body at small sizes,
//                                     for a sanitizer (tools/bench/cuda.py --only sanitize)
//   bench_cuda_linear record          results of this GPU as a fixture of the model's test
//   bench_cuda_linear check-fused     the part of check that is of norms and activations
//   bench_cuda_linear fused           those of a Llama 7B: which, rows, us fused and in parts
//   bench_cuda_linear chain ROWS...   all linears of its layers in turn: us a layer
//   bench_cuda_linear blocks          block-quantised weights: n k rows type us, TB/s of weights
//   bench_cuda_linear time [all | portable] [sustained] [BODY...] [NxK[f32]...] [ROWS...]
//                                     one line a measurement: n k rows body us, and * where a plan
//                                     would choose it; -cut, -mixed: tiles in parts of K, all or
//                                     some; -alone: without dependent launch; all: other
//                                     configurations, too; portable: those of a device that has
//                                     neither products of warpgroups nor tensor copies; sustained:
//                                     back to back, without rests; of bodies whose names have this,
//                                     of these shapes, f32: with y in f32, and of these numbers of
//                                     rows
//
// tools/bench/cuda_linear.py runs it beside cuBLAS.
#include <algorithm>
#include <atomic>
#include <bit>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tools/bench/cuda_linear_kernels.h"

namespace quire::bench {
namespace {

const char* CutText(const LinearSpec& spec, const CudaLinearKernel& kernel, int64_t rows,
                    const CudaLinearLaunch& launch) {
  if (launch.workspace_bytes == 0) return "";
  if (launch.whole_tiles == 0) return "-cut";
  return launch.whole_tiles < CudaLinearTiles(spec, kernel, rows) ? "-mixed" : "";
}

struct Shape {
  int64_t n, k;
  DType y = DType::kBF16;
};

// `what`: arguments of the command line.
int Time(const Gpu& gpu, const std::vector<std::string>& what) {
  using Config = CudaLinearConfig;
  constexpr size_t kPoolBytes = size_t{3} << 30;
  bool all = false, sustained = false;
  CudaLimits limits = gpu.limits();
  std::vector<Shape> shapes;
  std::vector<int64_t> timed_rows;
  std::vector<std::string> bodies;
  for (const std::string& word : what) {
    const size_t by = word.find('x');
    if (word == "all") {
      all = true;
    } else if (word == "portable") {
      limits = limits.Portable();
    } else if (word == "sustained") {
      sustained = true;
    } else if (by == std::string::npos && std::isalpha(static_cast<unsigned char>(word[0]))) {
      bodies.push_back(word);
    } else if (by == std::string::npos) {
      timed_rows.push_back(std::atoll(word.c_str()));
    } else {
      shapes.push_back({std::atoll(word.c_str()), std::atoll(word.c_str() + by + 1),
                        word.ends_with("f32") ? DType::kF32 : DType::kBF16});
    }
  }
  if (timed_rows.empty()) timed_rows = {1, 8, 16, 32, 64, 128, 512, 4096, 16384};
  if (shapes.empty()) {
    shapes = {{4096, 4096},  {6144, 4096},  {12288, 4096}, {22016, 4096},
              {28672, 4096}, {4096, 11008}, {4096, 14336}, {32000, 4096}};
  }
  int64_t most_n = 0, most_k = 0, most_rows = 0;
  for (const Shape& shape : shapes) {
    most_n = std::max(most_n, shape.n);
    most_k = std::max(most_k, shape.k);
  }
  for (int64_t rows : timed_rows) most_rows = std::max(most_rows, rows);
  Linears linears(gpu);
  for (const Shape& shape : shapes) {
    const LinearSpec spec = Spec(shape.n, shape.k, DType::kBF16, shape.y, false, false);
    std::vector<Config> configs = OrDie(CudaLinearConfigs(spec, limits));
    if (all) {
      for (const Config& config : OtherConfigs(spec, limits)) configs.push_back(config);
    }
    linears.Add(spec, configs);
  }
  linears.Compile();

  const CuDevicePtr pool = gpu.Allocate(kPoolBytes);
  constexpr size_t kBlock = size_t{64} << 20;
  std::vector<uint16_t> values(kBlock / 2);
  Random random{7};
  for (uint16_t& value : values) value = F32ToBF16(random.Value());
  gpu.Upload(pool, values.data(), kBlock);
  for (size_t at = kBlock; at < kPoolBytes; at += kBlock) gpu.Copy(pool + at, pool, kBlock);
  const auto x_bytes = static_cast<size_t>(most_rows * most_k * 2);
  const CuDevicePtr x = gpu.Allocate(x_bytes);
  const CuDevicePtr y = gpu.Allocate(static_cast<size_t>(most_rows * most_n * 4));
  const CuDevicePtr workspace = gpu.Allocate(kWorkspaceBytes);
  gpu.Copy(x, pool, x_bytes);

  for (size_t s = 0; s < shapes.size(); ++s) {
    const LinearSpec& spec = linears.spec(s);
    const size_t bytes = static_cast<size_t>(spec.n * spec.k * 2);
    for (int64_t rows : timed_rows) {
      const size_t weights = kPoolBytes / bytes;
      // Few enough products of many rows that clocks do not fall before they end.
      const double flops = 2.0 * static_cast<double>(spec.n * spec.k * rows);
      const size_t calls = rows >= 512
                               ? static_cast<size_t>(std::clamp(3e12 / flops, 1.0, 6.0))
                               : std::min(weights, std::max<size_t>(20, 2'000'000'000 / bytes));
      std::vector<CudaLinearKernel> rule_kernels = OrDie(CudaLinearKernels(spec, limits));
      const size_t rule = ChooseCudaLinear(spec, rule_kernels, rows, gpu.multiprocessors());
      for (size_t i = 0; i < linears.kernels(s).size(); ++i) {
        const Compiled& c = linears.kernels(s)[i];
        const auto is_it = [&](const std::string& body) {
          return absl::StrContains(Name(c.kernel.config), body);
        };
        if (!bodies.empty() && std::none_of(bodies.begin(), bodies.end(), is_it)) continue;
        // Tiles for few rows are not for many, nor those for many for a few.
        if (rows > c.kernel.max_rows) continue;
        if (c.kernel.config.body == Config::kWarpgroup &&
            (rows < 64 || (rows > 2048 && c.kernel.config.tile_rows < 128))) {
          continue;
        }
        const CudaLinearLaunch by_rule =
            PlanCudaLinear(spec, c.kernel, rows, gpu.multiprocessors());
        for (const CudaLinearLaunch& launch :
             Launches(spec, c.kernel, rows, gpu.multiprocessors())) {
          for (bool dependent : {true, false}) {
            if (!dependent && (rows > 8 || i != rule)) continue;
            const double us = gpu.TimeGraph(rows >= 512 ? 5 : 9, sustained, [&] {
              for (size_t call = 0; call < calls; ++call) {
                Enqueue(gpu, spec, c, {x, pool + call % weights * bytes, 0, 0, y, workspace}, rows,
                        launch, dependent);
              }
            });
            const bool is_chosen = i == rule && launch.whole_tiles == by_rule.whole_tiles;
            std::printf("%ld %ld %ld %s%s%s %.2f%s\n", static_cast<long>(spec.n),
                        static_cast<long>(spec.k), static_cast<long>(rows),
                        Name(c.kernel.config).c_str(), CutText(spec, c.kernel, rows, launch),
                        dependent ? "" : "-alone", us / static_cast<double>(calls),
                        is_chosen && dependent ? " *" : "");
          }
        }
      }
    }
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace quire::bench

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "", how = argc > 2 ? argv[2] : "";
  if (mode == "check") {
    const quire::bench::Gpu gpu(how != "quick");
    return quire::bench::CheckLinears(gpu, how == "quick") |
           quire::bench::CheckBlocks(gpu, how == "quick") | quire::bench::CheckE4m3(gpu) |
           quire::bench::CheckFused(gpu, how == "quick");
  }
  if (mode == "check-fused") return quire::bench::CheckFused(quire::bench::Gpu(), how == "quick");
  if (mode == "fused") return quire::bench::TimeFused(quire::bench::Gpu());
  if (mode == "chain") {
    std::vector<int64_t> rows;
    for (int i = 2; i < argc; ++i) rows.push_back(std::atoll(argv[i]));
    return quire::bench::TimeChain(quire::bench::Gpu(), rows);
  }
  if (mode == "blocks") return quire::bench::TimeBlocks(quire::bench::Gpu());
  if (mode == "check-e4m3") return quire::bench::CheckE4m3(quire::bench::Gpu());
  if (mode == "e4m3") return quire::bench::TimeE4m3(quire::bench::Gpu());
  if (mode == "record") return quire::bench::RecordSteps(quire::bench::Gpu());
  if (mode == "time") return quire::bench::Time(quire::bench::Gpu(), {argv + 2, argv + argc});
  std::fprintf(
      stderr,
      "usage: bench_cuda_linear check [quick] | check-fused [quick] | check-e4m3 | record | "
      "blocks | e4m3 | fused |\n       chain ROWS... |\n"
      "       time [all | portable] [sustained] [BODY...] [NxK[f32]...] [ROWS...]\n");
  return 2;
}
