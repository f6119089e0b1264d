#include "tools/bench/cuda_linear_kernels.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace quire::bench {

std::string Name(const CudaLinearConfig& config) {
  if (config.body == CudaLinearConfig::kWarpgroup) {
    return absl::StrCat("warpgroup", config.tile_rows, "/", config.stages,
                        config.chained ? "c" : "");
  }
  if (config.body == CudaLinearConfig::kNarrow) {
    return absl::StrCat("narrow", config.rows, "x", config.tile_rows, "/", config.stages);
  }
  return absl::StrCat(config.body == CudaLinearConfig::kFew ? "few" : "tile", config.rows, "/",
                      config.groups, "/", config.stages);
}

LinearSpec Spec(int64_t n, int64_t k, DType element, DType y, bool bias, bool residual) {
  LinearSpec spec;
  spec.n = n;
  spec.k = k;
  spec.weight = spec.x = element;
  spec.y = y;
  spec.bias = bias;
  spec.residual = residual;
  spec.layout = WeightLayout::kRows;
  return spec;
}

std::vector<CudaLinearConfig> OtherConfigs(const LinearSpec& spec, const CudaLimits& limits) {
  using Config = CudaLinearConfig;
  std::vector<Config> configs = {Config{Config::kFew, 16, 2, 5}, Config{Config::kTile, 16, 1, 10},
                                 Config{Config::kTile, 32, 1, 10}, Config{Config::kTile, 64, 2, 8}};
  configs[0].tile_rows = 16;
  if (limits.major == 9 && spec.k % 256 == 0) {
    for (int tokens : {16, 32, 64}) {
      for (int groups : {1, 2, 3, 4}) {
        configs.push_back({Config::kNarrow, tokens, groups, 12, 64 * groups});
      }
    }
    for (int groups : {1, 2}) configs.push_back({Config::kNarrow, 128, groups, 12, 64 * groups});
    for (const auto& [tile_rows, stages] :
         {std::pair(64, 8), std::pair(96, 7), std::pair(256, 4)}) {
      configs.push_back({Config::kWarpgroup, 128, 2, stages, tile_rows});
    }
    configs.push_back(configs.back());
    configs.back().chained = true;
  }
  std::vector<Config> possible;
  for (Config& config : configs) {
    while (config.stages >= 3 &&
           MakeCudaLinearKernel(spec, config).shared_bytes > limits.shared_bytes) {
      --config.stages;
    }
    if (config.stages >= 3) possible.push_back(config);
  }
  return possible;
}

void Enqueue(const Gpu& gpu, const LinearSpec& spec, const Compiled& compiled,
             const Operands& operands, int64_t rows, const CudaLinearLaunch& launch,
             bool dependent) {
  const CudaLinearConfig& config = compiled.kernel.config;
  KernelArguments arguments;
  if (CudaLinearTakesMaps(config.body)) {
    arguments.Add(gpu.Encode({{}, rows, spec.k, CudaLinearBoxRows(config, rows)}, operands.x));
    arguments.Add(gpu.Encode({{}, spec.n, spec.k, config.tile_rows}, operands.weight));
  } else {
    arguments.Add(operands.x);
    arguments.Add(operands.weight);
  }
  for (CuDevicePtr pointer : {operands.bias, operands.residual, operands.y, operands.workspace}) {
    arguments.Add(pointer);
  }
  arguments.Add(static_cast<int>(rows));
  arguments.Add(launch.whole_tiles);
  if (config.body != CudaLinearConfig::kFew) {
    arguments.Add(static_cast<int>(spec.n));
    arguments.Add(static_cast<int>(spec.k));
    arguments.Add(static_cast<int>(CudaLinearYIsF32(spec, config)));
  }
  gpu.Launch(compiled.function, launch.grid, compiled.kernel.block_threads,
             compiled.kernel.shared_bytes, dependent, arguments);
}

std::vector<CudaLinearLaunch> Launches(const LinearSpec& spec, const CudaLinearKernel& kernel,
                                       int64_t rows, int multiprocessors) {
  if (kernel.config.body == CudaLinearConfig::kFew) {
    return {PlanCudaLinear(spec, kernel, rows, multiprocessors)};
  }
  const int64_t tiles = CudaLinearTiles(spec, kernel, rows);
  const int64_t full = tiles / multiprocessors * multiprocessors;
  std::vector<CudaLinearLaunch> launches;
  for (int64_t whole : {tiles, full, int64_t{0}}) {
    if (!launches.empty() && whole == launches.back().whole_tiles) continue;
    if (tiles - whole > (CudaLinearPieces(kernel.config) > 1 ? 4096 : 0)) continue;
    launches.push_back(PlanCudaLinearTiles(spec, kernel, rows, multiprocessors, whole));
    if (static_cast<size_t>(launches.back().workspace_bytes) > kWorkspaceBytes) launches.pop_back();
  }
  return launches;
}

}  // namespace quire::bench
