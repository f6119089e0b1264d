#include "codegen/cuda/linear_e4m3.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "codegen/cuda/linear_parts.h"
#include "codegen/cuda/linear_source.h"
#include "codegen/cuda/row_emit.h"
#include "codegen/cuda/tensor_core_model.h"
#include "ir/weight_scales.h"

namespace quire {
namespace {

using cuda_linear::DivideUp;

constexpr int64_t kMostRowsK = 32768;  // of registers of a block that has a row
constexpr int64_t kMostN = int64_t{1} << 28;

int64_t InEights(int64_t rows) { return DivideUp(rows, 8) * 8; }

// The narrow body's tiles: as high as lets them go round once, with one warpgroup for each 64 rows.
CudaLinearConfig NarrowConfig(const LinearSpec& product, int rows, const CudaLimits& limits) {
  constexpr int kGrain = 32, kGroupRows = 64, kMostStages = 32;
  const int most = rows > 64 || (rows == 64 && !product.row_scales) ? 128 : 192;
  const int64_t once =
      DivideUp(product.weight_rows(), int64_t{kGrain} * limits.multiprocessors) * kGrain;
  const int tile_rows = once <= most ? static_cast<int>(once) : 128;
  CudaLinearConfig config{CudaLinearConfig::kNarrow, rows,
                          static_cast<int>(DivideUp(tile_rows, kGroupRows)), kMostStages,
                          tile_rows};
  config.act = product.gated && product.n % 8 == 0;
  config.whole = true;
  while (CudaLinearSharedBytes(product, config) > limits.shared_bytes) --config.stages;
  return config;
}

}  // namespace

bool CudaLinearIsE4m3(const LinearSpec& spec, const CudaLimits& limits) {
  if (limits.major != 9 || !spec.quantize.has_value()) return false;
  const bool by_blocks = spec.quantize->columns == kScaleBlock;
  const bool by_rows = spec.quantize->columns == 0 && spec.row_scales;
  const bool is_float = spec.x == DType::kBF16 || spec.x == DType::kF16;
  return spec.weight == DType::kF8E4M3_128 && (by_blocks || by_rows) && is_float &&
         spec.layout == WeightLayout::kRows && spec.k % kScaleBlock == 0 && spec.k <= kMostRowsK &&
         spec.weight_rows() <= kMostN && !(spec.act != LinearAct::kNone && spec.residual);
}

LinearSpec CudaE4m3Product(const LinearSpec& spec) {
  LinearSpec product = spec;
  product.norm.reset();
  product.row_scales = spec.quantize->columns == 0;
  product.quantize.reset();
  product.x = product.weight = DType::kF8E4M3;
  product.k = spec.k / 2;
  return product;
}

std::vector<CudaLinearConfig> CudaE4m3Configs(const LinearSpec& product, const CudaLimits& limits) {
  std::vector<CudaLinearConfig> configs;
  for (int rows : {16, 32, 64}) configs.push_back(NarrowConfig(product, rows, limits));
  // For 128 rows and more than one warpgroup, or scales of blocks, registers are lacking, and tiles
  // of x as rows take less time.
  const CudaLinearConfig narrow = NarrowConfig(product, 128, limits);
  if (narrow.groups == 1 && product.row_scales) configs.push_back(narrow);
  for (const auto& [tile_rows, stages] : {std::pair(128, 6), std::pair(192, 5)}) {
    // Scales of blocks are a tile's where it is as high as they are.
    if (!product.row_scales && tile_rows != kScaleBlock) continue;
    CudaLinearConfig config{CudaLinearConfig::kWarpgroup, 128, 2, stages, tile_rows};
    config.act = product.act != LinearAct::kNone && (!product.gated || product.n % 8 == 0);
    config.whole = true;
    configs.push_back(config);
  }
  return configs;
}

CudaEntry CudaE4m3Rows(const LinearSpec& spec) {
  const QuantizeSpec& quantize = *spec.quantize;
  const int64_t chunks = spec.k / 8, groups = DivideUp(chunks, 32);
  CudaEntry entry;
  entry.entry = "linear_quantize";
  entry.block_threads = static_cast<int>(std::clamp<int64_t>(DivideUp(chunks, 64) * 32, 32, 512));
  entry.shared_bytes = static_cast<int>(2 * groups * 4);
  entry.source = absl::StrCat(
      "// ", SpecText(spec),
      "\n#include \"prelude.cuh\"\nusing Element = ", spec.x == DType::kF16 ? "F16" : "Bf16",
      ";\nconstexpr int kK = ", spec.k, ", kColumns = ", quantize.columns,
      ", kSharedBytes = ", entry.shared_bytes,
      ";\nconstexpr float kMost = ", FloatText(quantize.most),
      ";\nconstexpr bool kHasScale = ", quantize.has_scale ? "true" : "false",
      ", kHasNorm = ", spec.norm.has_value() ? "true" : "false", ";\n", CudaNormText(spec),
      "#include \"linear_quantize.cuh\"\n", "extern \"C\" __global__ void __launch_bounds__(",
      entry.block_threads, ")\n", entry.entry,
      "(const Element* x, const void* norm_weight, const void* norm_bias, const float* given,\n"
      "    E4m3* out, float* scales, int x_rows) {\n  QuantizeRows<",
      entry.block_threads, ">::Run(x, norm_weight, norm_bias, given, out, scales, x_rows);\n}\n");
  return entry;
}

int64_t CudaE4m3RowBytes(const LinearSpec& spec, int64_t rows) { return rows * spec.k; }

int64_t CudaE4m3ScaleBytes(const LinearSpec& spec, int64_t rows) {
  return InEights(rows) * (spec.quantize->columns == 0 ? 1 : spec.k / kScaleBlock) * 4;
}

float CudaE4m3Sum(const uint8_t* x, const float* x_scales, const uint8_t* weight,
                  const float* weight_scales, int64_t k, bool row_scales) {
  float sum = 0;
  for (int64_t block = 0; block < k / kScaleBlock; ++block) {
    float chain = 0;
    for (int64_t step = 0; step < kScaleBlock; step += kE4m3Step) {
      const int64_t at = block * kScaleBlock + step;
      chain = TensorCoreE4m3Step(x + at, weight + at, chain);
    }
    if (row_scales) {
      sum += chain;
    } else {
      const float scale = x_scales[block] * weight_scales[block];
      sum = std::fma(chain, scale, sum);
    }
  }
  if (!row_scales) return sum;
  const float scale = x_scales[0] * weight_scales[0];
  return sum * scale;
}

}  // namespace quire
