// From a number of rows to a linear kernel and its launch, by times measured on an H200; and the
// kernels' arithmetic.
#include <algorithm>
#include <limits>

#include "codegen/cuda/linear.h"
#include "codegen/cuda/linear_parts.h"

namespace quire {
namespace {

using cuda_linear::DivideUp, cuda_linear::PaddedK, cuda_linear::PartBegin;
using cuda_linear::kParts, cuda_linear::kStageK;

constexpr int kArrivalBytes = kCudaZeroBytes;

// Reads of a block-quantised weight by the body for few rows that take less time than making
// elements of it and reading those, on an H200. The narrow body takes less than two.
constexpr int64_t kMostPasses = 3;

struct Cut {
  int64_t whole_tiles;
  int64_t time;  // of the longest block, in stages
};

// How many of `tiles` to leave whole: those of full rounds, or all, or none, by the time of the
// longest block. Merging a tile that is cut takes about as long as `merge_stages`, and filling the
// ring and storing as `round_stages`, as measured on an H200.
Cut BestCut(const LinearSpec& spec, const CudaLinearKernel& kernel, int64_t rows,
            int multiprocessors) {
  const CudaLinearConfig& config = kernel.config;
  const int64_t merge_stages =
      config.body == CudaLinearConfig::kTile
          ? 6
          : config.tile_rows * (config.body == CudaLinearConfig::kNarrow ? 3 : 4) / 32;
  const int64_t round_stages = config.body != CudaLinearConfig::kWarpgroup ? 0
                               : config.tile_rows < 128                    ? 3
                                                                           : 7;
  const int64_t tiles = CudaLinearTiles(spec, kernel, rows), pieces = CudaLinearPieces(config);
  const int64_t part_stages = DivideUp(spec.k, kParts * kStageK);
  const int64_t tile_stages = kParts * part_stages + round_stages;
  int64_t best = tiles;
  int64_t best_time = DivideUp(tiles, multiprocessors) * tile_stages;
  if (pieces == 1) return {best, best_time};
  for (int64_t whole : {tiles / multiprocessors * multiprocessors, int64_t{0}}) {
    const int64_t cut = tiles - whole;
    if (cut > 2 * multiprocessors) continue;
    // Memory is what narrow tiles wait for: more than one round of parts only merges more.
    const bool narrow = config.body == CudaLinearConfig::kNarrow && config.rows < 128;
    if (narrow && cut * pieces > multiprocessors) continue;
    const int64_t piece_stages = kParts / pieces * part_stages + merge_stages + round_stages;
    const int64_t time = DivideUp(whole, multiprocessors) * tile_stages +
                         DivideUp(cut * pieces, multiprocessors) * piece_stages;
    if (time < best_time) {
      best = whole;
      best_time = time;
    }
  }
  return {best, best_time};
}

}  // namespace

int64_t CudaLinearTiles(const LinearSpec& spec, const CudaLinearKernel& kernel, int64_t rows) {
  return DivideUp(spec.weight_rows(), kernel.config.tile_rows) * DivideUp(rows, kernel.config.rows);
}

size_t ChooseCudaLinear(const LinearSpec& spec, const std::vector<CudaLinearKernel>& kernels,
                        int64_t rows, int multiprocessors) {
  size_t first = 0;
  while (kernels[first].max_rows < rows) ++first;
  if (CudaLinearReadsDequantized(spec, kernels[first].config.body)) {
    size_t few = 0;
    while (kernels[few].config.body == CudaLinearConfig::kFew) ++few;
    if (few > 0 && rows <= kMostPasses * kernels[few - 1].max_rows) return few - 1;
  }
  if (kernels[first].config.body != CudaLinearConfig::kWarpgroup) return first;
  if (rows <= kernels[first].config.rows && kernels[first].config.tile_rows < 128) return first;
  size_t best = first;
  int64_t best_time = std::numeric_limits<int64_t>::max();
  for (size_t i = first; i < kernels.size(); ++i) {
    // As measured on an H200 that launches many in a row.
    const int tile_rows = kernels[i].config.tile_rows;
    const int64_t stage_time = tile_rows == 64    ? 150
                               : tile_rows == 96  ? 148
                               : tile_rows == 128 ? 137
                               : tile_rows == 192 ? 195
                               : tile_rows == 224 ? 226
                                                  : 258;
    const int64_t time = BestCut(spec, kernels[i], rows, multiprocessors).time * stage_time;
    if (time < best_time) {
      best = i;
      best_time = time;
    }
  }
  return best;
}

CudaLinearLaunch PlanCudaLinear(const LinearSpec& spec, const CudaLinearKernel& kernel,
                                int64_t rows, int multiprocessors) {
  if (kernel.config.body != CudaLinearConfig::kFew) {
    return PlanCudaLinearTiles(spec, kernel, rows, multiprocessors,
                               BestCut(spec, kernel, rows, multiprocessors).whole_tiles);
  }
  const int64_t tiles = DivideUp(spec.weight_rows(), kernel.config.tile_rows);
  CudaLinearLaunch launch;
  launch.grid =
      static_cast<int>(std::min<int64_t>(multiprocessors, DivideUp(tiles, kernel.config.groups)));
  return launch;
}

CudaLinearLaunch PlanCudaLinearTiles(const LinearSpec& spec, const CudaLinearKernel& kernel,
                                     int64_t rows, int multiprocessors, int64_t whole_tiles) {
  const CudaLinearConfig& config = kernel.config;
  const int64_t cut = CudaLinearTiles(spec, kernel, rows) - whole_tiles;
  CudaLinearLaunch launch;
  launch.whole_tiles = static_cast<int>(whole_tiles);
  launch.grid = static_cast<int>(
      std::min<int64_t>(multiprocessors, whole_tiles + cut * CudaLinearPieces(config)));
  if (cut > 0) {
    // Sums of pieces; of the second of two, those of its parts.
    const int64_t sums = CudaLinearPieces(config) == 2 ? 3 : kParts;
    const bool narrow = config.body == CudaLinearConfig::kNarrow;
    const int64_t tile_rows = narrow ? config.groups * 64 : config.tile_rows;
    launch.workspace_bytes = kArrivalBytes + cut * sums * config.rows * tile_rows * 4;
  }
  return launch;
}

float CudaLinearSum(DType dtype, const uint16_t* x, const uint16_t* weight, int64_t k,
                    int64_t grain) {
  std::vector<uint16_t> padded;  // both rows, where k ends within a step
  if (k % kTensorCoreStep != 0) {
    padded.resize(static_cast<size_t>(2 * PaddedK(k)));
    std::copy_n(x, k, padded.data());
    std::copy_n(weight, k, padded.data() + PaddedK(k));
    x = padded.data();
    weight = padded.data() + PaddedK(k);
  }
  float sum = 0;
  for (int64_t part = 0; part < kParts; ++part) {
    const int64_t begin = PartBegin(k, grain, part), end = PartBegin(k, grain, part + 1);
    const float chain = TensorCoreChain(dtype, x + begin, weight + begin, end - begin);
    sum = part == 0 ? chain : sum + chain;
  }
  return sum;
}

}  // namespace quire
