#include "codegen/cuda/linear.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "codegen/cuda/tensor_core_model.h"
#include "ir/status.h"

namespace quire {
namespace {

constexpr int64_t kMaxN = int64_t{1} << 28, kMaxK = int64_t{1} << 22;  // of 32-bit arithmetic
constexpr int kParts = 4;
constexpr int kStageK = 64;
constexpr int kStageRowBytes = 128;
constexpr int kFewTileRows = 16;
constexpr int kTileRows = 128;
constexpr int kArrivalBytes = kCudaZeroBytes;

constexpr int64_t DivideUp(int64_t a, int64_t b) { return (a + b - 1) / b; }
constexpr int64_t PaddedK(int64_t k) { return DivideUp(k, kTensorCoreStep) * kTensorCoreStep; }

// Shared memory of the bodies, as the maps in their .cuh files have it; a static_assert there
// compares.
int64_t FewSharedBytes(const LinearSpec& spec, const CudaLinearConfig& config) {
  const int64_t ring =
      int64_t{config.groups} * kParts * config.stages * kFewTileRows * kStageRowBytes;
  const int64_t sums = int64_t{config.groups} * kParts * DivideUp(config.rows, 8) * 8 * 20 * 4;
  return ring + sums + config.rows * (2 * PaddedK(spec.k) + 16) + 16;
}

int64_t TileStageBytes(int rows) { return int64_t{rows + kTileRows} * kStageRowBytes; }

int64_t SharedBytes(const LinearSpec& spec, const CudaLinearConfig& config) {
  return config.body == CudaLinearConfig::kFew ? FewSharedBytes(spec, config)
                                               : config.stages * TileStageBytes(config.rows) + 16;
}

// The few-row body for up to `rows`, with the deepest ring that fits; no stages where that is too
// shallow. Two groups of 8 stages keep 112 KB in flight, what an H200 wants; 5 stages, 64 KB, are
// the fewest that keep up with it.
CudaLinearConfig FewConfig(const LinearSpec& spec, int rows, int shared_bytes) {
  constexpr int kGroups = 2, kMostStages = 8;
  // Smaller devices want as many bytes in flight as their shared memory is smaller.
  const int64_t least_flight = int64_t{64} * 1024 * shared_bytes / (227 * 1024);
  CudaLinearConfig config{CudaLinearConfig::kFew, rows, kGroups, kMostStages};
  while (config.stages >= 3 && FewSharedBytes(spec, config) > shared_bytes) --config.stages;
  const int64_t flight =
      int64_t{kGroups} * kParts * (config.stages - 1) * kFewTileRows * kStageRowBytes;
  if (config.stages < 3 || flight < least_flight) config.stages = 0;
  return config;
}

CudaLinearConfig TileConfig(int rows, int groups, int max_stages, int shared_bytes) {
  const int64_t stages = (shared_bytes - 16) / TileStageBytes(rows);
  return {CudaLinearConfig::kTile, rows, groups,
          static_cast<int>(std::min<int64_t>(max_stages, stages))};
}

absl::string_view ElementText(DType dtype) {
  switch (dtype) {
    case DType::kBF16:
      return "Bf16";
    case DType::kF16:
      return "F16";
    default:
      return "F32";
  }
}

absl::Status CheckSpec(const LinearSpec& spec) {
  absl::string_view allowed;
  if (spec.weight != DType::kBF16 && spec.weight != DType::kF16) {
    allowed = "w=bf16, f16";
  } else if (spec.x != spec.weight) {
    allowed = "x of w's type";
  } else if (!IsFloat(spec.y)) {
    allowed = "y=f32, f16, bf16";
  } else if (spec.layout != WeightLayout::kRows) {
    allowed = "layout=rows";
  } else if (spec.norm.has_value() || spec.act != LinearAct::kNone) {
    allowed = "neither norm nor act";
  } else if (spec.k < 8 || spec.k % 8 != 0 || spec.k > kMaxK) {
    allowed = "k a multiple of 8, up to 2^22";
  } else if (spec.n < 1 || spec.n > kMaxN) {
    allowed = "n up to 2^28";
  } else {
    return absl::OkStatus();
  }
  return absl::UnimplementedError(absl::StrCat("cuda: ", SpecText(spec), "\n  allowed: ", allowed));
}

std::string Source(const LinearSpec& spec, const CudaLinearKernel& kernel) {
  const CudaLinearConfig& config = kernel.config;
  const bool few = config.body == CudaLinearConfig::kFew;
  const std::string body =
      few ? absl::StrCat("LinearFew<", config.rows, ", ", config.groups, ", ", config.stages, ">")
          : absl::StrCat("LinearTile<", config.rows, ", ", config.groups, ", ", config.stages, ">");
  return absl::StrCat(
      "// ", SpecText(spec), "\n",                                            //
      "#include \"prelude.cuh\"\n",                                           //
      "using Element = ", ElementText(spec.weight), ";\n",                    //
      "using Output = ", ElementText(spec.y), ";\n",                          //
      "constexpr int kN = ", spec.n, ", kK = ", spec.k, ";\n",                //
      "constexpr bool kHasBias = ", spec.bias ? "true" : "false",             //
      ", kHasResidual = ", spec.residual ? "true" : "false", ";\n",           //
      "constexpr int kSharedBytes = ", kernel.shared_bytes,                   //
      ", kArrivalBytes = ", kArrivalBytes, ";\n",                             //
      "#include \"", few ? "linear_few.cuh" : "linear_tile.cuh", "\"\n",      //
      "using Body = ", body, ";\n",                                           //
      "static_assert(Body::kThreads == ", kernel.block_threads, ");\n",       //
      "extern \"C\" __global__ void __launch_bounds__(Body::kThreads, 1)\n",  //
      kernel.entry,                                                           //
      "(const Element* x, const Element* weight, const float* bias,\n",       //
      "    const Output* residual, Output* y, uint8_t* workspace, int rows, int whole_tiles) {\n",
      "  Body::Run({x, weight, bias, residual, y, workspace, rows, whole_tiles});\n}\n");
}

// How many of `tiles` to leave whole: those of full rounds, or all, or none, by the time of the
// longest block. Time is in stages; merging a tile that is cut takes about as long as kMergeStages.
int64_t WholeTiles(const LinearSpec& spec, int64_t tiles, int multiprocessors) {
  constexpr int64_t kMergeStages = 6;  // 4 to 7 on an H200
  const int64_t part_stages = DivideUp(spec.k, kParts * kStageK);
  int64_t best = tiles;
  int64_t best_time = DivideUp(tiles, multiprocessors) * kParts * part_stages;
  for (int64_t whole : {tiles / multiprocessors * multiprocessors, int64_t{0}}) {
    const int64_t cut = tiles - whole;
    if (cut > kArrivalBytes / 4 || cut > 2 * multiprocessors) continue;
    const int64_t time = DivideUp(whole, multiprocessors) * kParts * part_stages +
                         DivideUp(cut * kParts, multiprocessors) * (part_stages + kMergeStages);
    if (time < best_time) {
      best = whole;
      best_time = time;
    }
  }
  return best;
}

}  // namespace

absl::StatusOr<std::vector<CudaLinearConfig>> CudaLinearConfigs(const LinearSpec& spec,
                                                                const CudaLimits& limits) {
  QUIRE_RETURN_IF_ERROR(CheckSpec(spec));
  const int shared_bytes = limits.shared_bytes;
  std::vector<CudaLinearConfig> configs;
  // Up to 8 rows, as many as leave room for a deep ring.
  for (int rows : {8, 4, 1}) {
    const CudaLinearConfig config = FewConfig(spec, rows, shared_bytes);
    if (config.stages == 0) continue;
    configs.push_back(config);
    break;
  }
  // 16 rows: tiles, where their parts go round in one turn; otherwise the few-row body, whose small
  // shares leave no blocks idle at the end.
  const CudaLinearConfig few_16 = FewConfig(spec, 16, shared_bytes);
  const bool one_turn = DivideUp(spec.n, kTileRows) * kParts <= limits.multiprocessors;
  configs.push_back(few_16.stages > 0 && !one_turn ? few_16 : TileConfig(16, 1, 10, shared_bytes));
  configs.push_back(TileConfig(32, 1, 10, shared_bytes));
  configs.push_back(TileConfig(64, 2, 8, shared_bytes));
  configs.push_back(TileConfig(128, 2, 6, shared_bytes));
  for (const CudaLinearConfig& config : configs) {
    if (config.stages < 3) {
      return absl::UnimplementedError(
          absl::StrCat("cuda: ", SpecText(spec), " in ", shared_bytes, " bytes of shared memory"));
    }
  }
  return configs;
}

CudaLinearKernel MakeCudaLinearKernel(const LinearSpec& spec, const CudaLinearConfig& config) {
  const bool few = config.body == CudaLinearConfig::kFew;
  CudaLinearKernel kernel;
  kernel.config = config;
  kernel.entry = absl::StrCat(few ? "linear_few_" : "linear_tile_", config.rows);
  kernel.block_threads = 32 * 4 * config.groups;
  kernel.shared_bytes = static_cast<int>(SharedBytes(spec, config));
  kernel.max_rows = few                 ? config.rows
                    : config.rows < 128 ? config.rows
                                        : std::numeric_limits<int>::max() - 128;
  kernel.source = Source(spec, kernel);
  return kernel;
}

absl::StatusOr<std::vector<CudaLinearKernel>> CudaLinearKernels(const LinearSpec& spec,
                                                                const CudaLimits& limits) {
  QUIRE_ASSIGN_OR_RETURN(const std::vector<CudaLinearConfig> configs,
                         CudaLinearConfigs(spec, limits));
  std::vector<CudaLinearKernel> kernels;
  for (const CudaLinearConfig& config : configs) {
    kernels.push_back(MakeCudaLinearKernel(spec, config));
  }
  return kernels;
}

int64_t CudaLinearTiles(const LinearSpec& spec, const CudaLinearKernel& kernel, int64_t rows) {
  return DivideUp(spec.n, kTileRows) * DivideUp(rows, kernel.config.rows);
}

CudaLinearLaunch PlanCudaLinear(const LinearSpec& spec, const CudaLinearKernel& kernel,
                                int64_t rows, int multiprocessors) {
  if (kernel.config.body == CudaLinearConfig::kTile) {
    const int64_t tiles = CudaLinearTiles(spec, kernel, rows);
    return PlanCudaLinearTiles(spec, kernel, rows, multiprocessors,
                               WholeTiles(spec, tiles, multiprocessors));
  }
  const int64_t tiles = DivideUp(spec.n, kFewTileRows);
  CudaLinearLaunch launch;
  launch.grid =
      static_cast<int>(std::min<int64_t>(multiprocessors, DivideUp(tiles, kernel.config.groups)));
  return launch;
}

CudaLinearLaunch PlanCudaLinearTiles(const LinearSpec& spec, const CudaLinearKernel& kernel,
                                     int64_t rows, int multiprocessors, int64_t whole_tiles) {
  const int64_t cut = CudaLinearTiles(spec, kernel, rows) - whole_tiles;
  CudaLinearLaunch launch;
  launch.whole_tiles = static_cast<int>(whole_tiles);
  launch.grid = static_cast<int>(std::min<int64_t>(multiprocessors, whole_tiles + cut * kParts));
  if (cut > 0) {
    launch.workspace_bytes =
        kArrivalBytes + cut * kParts * kernel.config.rows * kTileRows * int64_t{4};
  }
  return launch;
}

float CudaLinearSum(DType dtype, const uint16_t* x, const uint16_t* weight, int64_t k) {
  std::vector<uint16_t> padded;  // both rows, where k ends within a step
  if (k % kTensorCoreStep != 0) {
    padded.resize(static_cast<size_t>(2 * PaddedK(k)));
    std::copy_n(x, k, padded.data());
    std::copy_n(weight, k, padded.data() + PaddedK(k));
    x = padded.data();
    weight = padded.data() + PaddedK(k);
  }
  const int64_t steps = PaddedK(k) / kTensorCoreStep;
  float sum = 0;
  for (int64_t part = 0; part < kParts; ++part) {
    const int64_t begin = steps * part / kParts * kTensorCoreStep;
    const int64_t end = steps * (part + 1) / kParts * kTensorCoreStep;
    const float chain = TensorCoreChain(dtype, x + begin, weight + begin, end - begin);
    sum = part == 0 ? chain : sum + chain;
  }
  return sum;
}

}  // namespace quire
