#include "codegen/cuda/linear.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "codegen/cuda/linear_e4m3.h"
#include "codegen/cuda/linear_parts.h"
#include "codegen/cuda/linear_rope.h"
#include "codegen/cuda/linear_source.h"
#include "ir/status.h"

namespace quire {
namespace {

using cuda_linear::DivideUp, cuda_linear::PaddedK, cuda_linear::PartBegin;
using cuda_linear::kParts;

constexpr int64_t kMaxN = int64_t{1} << 28, kMaxK = int64_t{1} << 22;  // of 32-bit arithmetic
constexpr int kStageRowBytes = 128;
constexpr int kFewTileRows = 16;
constexpr int kTileRows = 128;
constexpr int kNarrowGroupRows = 64;
// Of x, for which reading blocks in each tile takes less time on an H200 than making elements of
// them once and reading those: 0.97 to 0.74 of it for 256, 1.04 to 1.4 for 512.
constexpr int kMostNarrowRows = 256;

// A row of a stage of linear_few_blocks.cuh.
int64_t FewBlocksRowBytes(const LinearSpec& spec) {
  const int64_t data = RowBytes(spec.weight, 256);
  bool aligned = RowBytes(spec.weight, spec.k) % 16 == 0 && data % 16 == 0;
  for (int part = 1; part < kParts; ++part) {
    aligned &=
        RowBytes(spec.weight, PartBegin(spec.k, CudaLinearGrain(spec.weight), part)) % 16 == 0;
  }
  const int64_t chunks = aligned ? data / 16 : (data + 14 + 15) / 16;
  return (chunks | 1) * 16;
}

// Shared memory of the bodies, as the maps in their .cuh files have it; a static_assert there
// compares.
int64_t FewSharedBytes(const LinearSpec& spec, const CudaLinearConfig& config) {
  const int tile_rows = config.tile_rows;
  const int64_t stage_bytes =
      tile_rows * (IsBlockType(spec.weight) ? FewBlocksRowBytes(spec) : kStageRowBytes);
  const int64_t ring = int64_t{config.groups} * kParts * config.stages * stage_bytes;
  const int64_t sums =
      int64_t{config.groups} * kParts * DivideUp(config.rows, 8) * 8 * (tile_rows + 4) * 4;
  const int64_t norm_sums = config.norm ? 2 * config.rows * (DivideUp(spec.k, 256) + 1) * 4 : 0;
  return ring + sums + config.rows * (2 * PaddedK(spec.k) + 16) + 16 + DivideUp(norm_sums, 16) * 16;
}

int64_t TileStageBytes(int rows) { return int64_t{rows + kTileRows} * kStageRowBytes; }

int64_t WarpgroupSharedBytes(const LinearSpec& spec, const CudaLinearConfig& config) {
  constexpr int kBarriers = 3, kConsumers = 2, kWarps = 8, kKeptSums = 96;
  const int64_t stage = int64_t{config.rows + config.tile_rows} * kStageRowBytes;
  const int64_t ring = config.stages * (stage + 8 * kBarriers) + 4 * kConsumers;
  const int64_t shared_sums = 32 * std::max(0, config.tile_rows / 2 - kKeptSums) * 4;
  const LinearSpec body = CudaLinearBodySpec(spec, config);
  const int columns = body.gated ? config.tile_rows / 2 : config.tile_rows;
  const bool stores_lines = body.n % 8 == 0 && body.y != DType::kF32 && columns % 128 == 0;
  const int64_t run = 16 * RowBytes(body.y, stores_lines ? 64 : columns % 32 == 0 ? 32 : 16);
  return DivideUp(ring, 16) * 16 + kWarps * std::max(run, shared_sums);
}

int64_t NarrowSharedBytes(const LinearSpec& spec, const CudaLinearConfig& config) {
  constexpr int kTurnBytes = 4 * 16 * 20 * 4;
  const int64_t own = config.groups * (kTurnBytes + 4);
  if (IsBlockType(spec.weight)) {
    constexpr int kBarriers = 2, kWarps = 4, kWarpRows = 16;
    const int64_t stage = int64_t{config.rows} * kStageRowBytes + 8 * kBarriers;
    const int64_t copy_k = CudaLinearCopyK(spec);
    const int64_t chunks = (RowBytes(spec.weight, copy_k) + 14 + 15) / 16;
    return DivideUp(config.stages * stage, 16) * 16 +
           config.groups * kWarps * (2 + 256 / copy_k) * kWarpRows * (chunks | 1) * 16 + own;
  }
  constexpr int kBarriers = 3;
  const int64_t stage = int64_t{config.rows + config.tile_rows} * kStageRowBytes + 8 * kBarriers;
  return DivideUp(config.stages * stage, 16) * 16 + own;
}

}  // namespace

int64_t CudaLinearSharedBytes(const LinearSpec& spec, const CudaLinearConfig& config) {
  switch (config.body) {
    case CudaLinearConfig::kFew:
      return FewSharedBytes(spec, config);
    case CudaLinearConfig::kTile:
      return config.stages * TileStageBytes(config.rows) + 16;
    case CudaLinearConfig::kNarrow:
      return NarrowSharedBytes(spec, config);
    case CudaLinearConfig::kWarpgroup:
      return WarpgroupSharedBytes(spec, config);
  }
  return 0;
}

namespace {

int BlockThreads(const CudaLinearConfig& config) {
  constexpr int kWarpgroupThreads = 128;
  const int copying = CudaLinearTakesMaps(config.body) ? 1 : 0;
  return (config.groups + copying) * kWarpgroupThreads;
}

// What the few-row body for config->rows computes beside the product. Every block norms all rows of
// x: of more than four, a kernel before it takes less time.
void SetFused(const LinearSpec& spec, CudaLinearConfig* config) {
  config->norm = spec.norm.has_value() && !spec.quantize.has_value() && config->rows <= 4;
  config->act = spec.act != LinearAct::kNone;
}

// The few-row body for up to `rows`, with the deepest ring that fits; no stages where that is too
// shallow. Two groups of 8 stages keep 112 KB in flight, what an H200 wants in the middle of a
// linear, and of 12 what it wants between one and the next; 5 stages, 64 KB, are the fewest that
// keep up with it.
CudaLinearConfig FewConfig(const LinearSpec& spec, int rows, int shared_bytes) {
  constexpr int kGroups = 2, kMostStages = 12;
  // Smaller devices want as many bytes in flight as their shared memory is smaller.
  const int64_t least_flight = int64_t{64} * 1024 * shared_bytes / (227 * 1024);
  CudaLinearConfig config{CudaLinearConfig::kFew, rows, kGroups, kMostStages, kFewTileRows};
  SetFused(spec, &config);
  while (config.stages >= 3 && FewSharedBytes(spec, config) > shared_bytes) --config.stages;
  const int64_t flight =
      int64_t{kGroups} * kParts * (config.stages - 1) * kFewTileRows * kStageRowBytes;
  if (config.stages < 3 || flight < least_flight) config.stages = 0;
  return config;
}

// That body for as many rows up to four as leave room for a deep ring, if any do.
CudaLinearConfig DeepFewConfig(const LinearSpec& spec, int shared_bytes) {
  constexpr int kDeepStages = 10;
  CudaLinearConfig best;
  for (int rows : {4, 2, 1}) {
    const CudaLinearConfig config = FewConfig(spec, rows, shared_bytes);
    if (config.stages >= kDeepStages) return config;
    if (best.stages == 0) best = config;
  }
  return best;
}

// The few-row body of a block-quantised weight: four groups at most, as its arithmetic wants many
// warps.
CudaLinearConfig FewBlocksConfig(const LinearSpec& spec, int rows, const CudaLimits& limits) {
  constexpr int kMostStages = 8;
  CudaLinearConfig config{CudaLinearConfig::kFew, rows, 4, kMostStages, 16};
  SetFused(spec, &config);
  // Tiles of 16 rows, of 8 unless pairs of a rope lie farther apart, fewer groups: until most
  // groups have a tile.
  const auto idle = [&] {
    return 4 * DivideUp(spec.weight_rows(), config.tile_rows) <
           int64_t{3} * limits.multiprocessors * config.groups;
  };
  if (idle() && CudaPairDistance(spec) < 8) config.tile_rows = 8;
  while (config.groups > 1 && idle()) config.groups /= 2;
  for (; config.groups > 0; config.groups /= 2) {
    for (config.stages = kMostStages; config.stages >= 3; --config.stages) {
      if (FewSharedBytes(spec, config) <= limits.shared_bytes) return config;
    }
  }
  config.stages = 0;
  return config;
}

CudaLinearConfig TileConfig(int rows, int groups, int max_stages, int shared_bytes) {
  const int64_t stages = (shared_bytes - 16) / TileStageBytes(rows);
  return {CudaLinearConfig::kTile, rows, groups,
          static_cast<int>(std::min<int64_t>(max_stages, stages))};
}

// The height of tiles of the narrow body, as measured on an H200 in a layer's linears in turn: cut
// in parts that go round once; else as high as lets tiles go round once.
int NarrowTileRows(const LinearSpec& spec, int multiprocessors) {
  constexpr int kCutRows = 128, kGrain = 32, kMost = 192;
  if (DivideUp(spec.weight_rows(), kCutRows) * kParts <= multiprocessors) return kCutRows;
  const int64_t once = DivideUp(spec.weight_rows(), int64_t{kGrain} * multiprocessors) * kGrain;
  return once <= kMost ? static_cast<int>(once) : kCutRows;
}

// The narrow body, with the activation of a gated linear where copies bring its rows in pairs.
CudaLinearConfig NarrowConfig(const LinearSpec& spec, int rows, const CudaLimits& limits) {
  const int kMostStages = IsBlockType(spec.weight) ? 8 : 32;
  const int tile_rows = rows > 64 ? kTileRows : NarrowTileRows(spec, limits.multiprocessors);
  CudaLinearConfig config{CudaLinearConfig::kNarrow, rows,
                          static_cast<int>(DivideUp(tile_rows, kNarrowGroupRows)), kMostStages,
                          tile_rows};
  config.act = spec.gated && spec.n % 8 == 0;
  while (NarrowSharedBytes(spec, config) > limits.shared_bytes) --config.stages;
  return config;
}

absl::Status CheckSpec(const LinearSpec& spec) {
  absl::string_view allowed;
  const bool blocks = IsBlockType(spec.weight);
  if (spec.x != DType::kBF16 && spec.x != DType::kF16) {
    allowed = "x=bf16, f16";
  } else if (spec.x != spec.weight && !blocks) {
    allowed = "w of x's type or of blocks";
  } else if (!IsFloat(spec.y)) {
    allowed = "y=f32, f16, bf16";
  } else if (spec.layout != WeightLayout::kRows) {
    allowed = "layout=rows";
  } else if (spec.act != LinearAct::kNone && spec.residual) {
    allowed = "act or residual";
  } else if (spec.append.has_value() && spec.y == DType::kF32) {
    allowed = "append with y=f16, bf16";
  } else if (spec.k < 8 || spec.k % 8 != 0 || spec.k > kMaxK ||
             spec.k % InfoOf(spec.weight).block_elements != 0) {
    allowed = "k a multiple of 8 and of w's block, up to 2^22";
  } else if (spec.n < 1 || spec.weight_rows() > kMaxN) {
    allowed = "n up to 2^28";
  } else {
    return absl::OkStatus();
  }
  return absl::UnimplementedError(absl::StrCat("cuda: ", SpecText(spec), "\n  allowed: ", allowed));
}

// Whether rounds of tiles of so many rows of the weight take much less time than those of 192 and
// 256 for prompts of 512 tokens, which a text of their own has to be worth.
bool FillsRoundsBetter(int tile_rows, int64_t n, int64_t multiprocessors) {
  constexpr int64_t kTokenTiles = 512 / 128;
  const auto time = [&](int64_t rows) {
    return DivideUp(DivideUp(n, rows) * kTokenTiles, multiprocessors) * rows;
  };
  return 10 * time(tile_rows) <= 9 * std::min(time(192), time(256));
}

void AppendForManyRows(const LinearSpec& spec, const CudaLimits& limits,
                       std::vector<CudaLinearConfig>* configs) {
  if (limits.major == 9 && CudaLinearHasWholeStages(spec)) {
    if (IsBlockType(spec.weight)) configs->push_back(NarrowConfig(spec, 128, limits));
    const auto add = [&](int tile_rows, int stages) {
      CudaLinearConfig config{CudaLinearConfig::kWarpgroup, 128, 2, stages, tile_rows};
      config.act = spec.act != LinearAct::kNone && (!spec.gated || spec.n % 8 == 0);
      config.chained = tile_rows == 192;
      configs->push_back(config);
    };
    // The least rows that tiles are for: one round of them, or of their halves, that is as full as
    // it can be.
    const int64_t least_tiles = IsBlockType(spec.weight) ? DivideUp(kMostNarrowRows + 1, 128) : 1;
    const int64_t n = spec.weight_rows(), multiprocessors = limits.multiprocessors;
    if (DivideUp(n, 64) * least_tiles <= multiprocessors) {
      add(64, 8);
    } else if (DivideUp(n, 96) <= multiprocessors && least_tiles == 1 && !spec.gated) {
      add(96, 7);
    }
    // Logits are of few rows. An activation takes less time beside the other warpgroup's products,
    // and a text that has one takes long to compile.
    const bool has_act = spec.act != LinearAct::kNone, is_logits = spec.y == DType::kF32;
    if (!has_act || is_logits) add(128, 6);
    if (is_logits) return;
    add(192, 5);
    if (FillsRoundsBetter(224, n, multiprocessors)) add(224, 4);
    if (!has_act) add(256, 4);
  } else {
    configs->push_back(TileConfig(128, 2, 6, limits.shared_bytes));
  }
}

}  // namespace

absl::StatusOr<std::vector<CudaLinearConfig>> CudaLinearConfigs(const LinearSpec& spec,
                                                                const CudaLimits& limits) {
  QUIRE_RETURN_IF_ERROR(CheckSpec(spec));
  const int shared_bytes = limits.shared_bytes;
  const bool narrow = limits.major == 9 && CudaLinearHasWholeStages(spec);
  std::vector<CudaLinearConfig> configs;
  if (IsBlockType(spec.weight)) {
    for (int rows : {8, 4, 1}) {
      const CudaLinearConfig config = FewBlocksConfig(spec, rows, limits);
      if (config.stages == 0) continue;
      configs.push_back(config);
      break;
    }
    const CudaLinearConfig config = FewBlocksConfig(spec, 16, limits);
    if (config.stages > 0) configs.push_back(config);
    configs.push_back(narrow ? NarrowConfig(spec, 64, limits) : TileConfig(64, 2, 8, shared_bytes));
    AppendForManyRows(spec, limits, &configs);
    return configs;
  }
  const CudaLinearConfig deep = DeepFewConfig(spec, shared_bytes);
  if (deep.stages > 0) configs.push_back(deep);
  // 8 and 16 rows: narrow tiles, but where the few-row body has an activation, 8 rows' in less time
  // and 16's where narrow tiles have none. Without narrow tiles: those for 16, where their parts go
  // round in one turn; otherwise the few-row body, whose small shares leave no blocks idle at the
  // end.
  const CudaLinearConfig few_8 = FewConfig(spec, 8, shared_bytes);
  if (few_8.stages > 0 && (!narrow || few_8.act)) configs.push_back(few_8);
  const CudaLinearConfig few_16 = FewConfig(spec, 16, shared_bytes);
  const bool one_turn = DivideUp(spec.weight_rows(), kTileRows) * kParts <= limits.multiprocessors;
  const CudaLinearConfig tile_16 =
      narrow ? NarrowConfig(spec, 16, limits) : TileConfig(16, 1, 10, shared_bytes);
  const bool prefers_few = narrow ? few_16.act && !tile_16.act : !one_turn;
  configs.push_back(few_16.stages > 0 && prefers_few ? few_16 : tile_16);
  configs.push_back(narrow ? NarrowConfig(spec, 32, limits) : TileConfig(32, 1, 10, shared_bytes));
  configs.push_back(narrow ? NarrowConfig(spec, 64, limits) : TileConfig(64, 2, 8, shared_bytes));
  AppendForManyRows(spec, limits, &configs);
  for (const CudaLinearConfig& config : configs) {
    if (config.stages < 3) {
      return absl::UnimplementedError(
          absl::StrCat("cuda: ", SpecText(spec), " in ", shared_bytes, " bytes of shared memory"));
    }
  }
  return configs;
}

bool CudaLinearYIsF32(const LinearSpec& spec, const CudaLinearConfig& config) {
  if (spec.y != DType::kF32 || spec.residual || config.act || IsE4m3Product(spec)) return false;
  return config.body == CudaLinearConfig::kWarpgroup ? config.tile_rows <= 128
                                                     : config.body != CudaLinearConfig::kFew;
}

LinearSpec CudaLinearBodySpec(const LinearSpec& spec, const CudaLinearConfig& config) {
  LinearSpec body = spec;
  if (!config.norm) body.norm.reset();
  body.quantize.reset();
  body.row_scales &= IsE4m3Product(spec);
  if (!config.act) {
    body.n = spec.weight_rows();
    body.act = LinearAct::kNone;
    body.gated = false;
  }
  if (CudaLinearYIsF32(spec, config)) body.y = body.x;
  return body;
}

CudaLinearKernel MakeCudaLinearKernel(const LinearSpec& spec, const CudaLinearConfig& config) {
  CudaLinearKernel kernel;
  kernel.config = config;
  kernel.entry = absl::StrCat(
      "linear_", IsE4m3Product(spec) ? "e4m3_" : "", CudaLinearBodyText(config.body), "_",
      config.body == CudaLinearConfig::kWarpgroup ? config.tile_rows : config.rows,
      config.body == CudaLinearConfig::kNarrow ? absl::StrCat("x", config.tile_rows) : "");
  kernel.block_threads = BlockThreads(config);
  kernel.shared_bytes = static_cast<int>(CudaLinearSharedBytes(spec, config));
  const bool is_narrow = config.body == CudaLinearConfig::kNarrow;
  const bool is_last = config.rows >= 128 && !is_narrow;
  kernel.max_rows = is_last ? std::numeric_limits<int>::max() - 128
                    : is_narrow && config.rows == 128 && !config.whole ? kMostNarrowRows
                                                                       : config.rows;
  kernel.source = CudaLinearSource(CudaLinearBodySpec(spec, config), kernel);
  return kernel;
}

namespace {

// The text behind the comment that it begins with.
absl::string_view CodeOf(const CudaLinearKernel& kernel) {
  return absl::string_view(kernel.source).substr(kernel.source.find('\n'));
}

// Takes those of `others`, of a linear that appends, that serve this one.
void TakeTexts(const LinearSpec& spec, const LinearSpec& appending,
               const std::vector<CudaLinearKernel>& others,
               std::vector<CudaLinearKernel>* kernels) {
  for (CudaLinearKernel& kernel : *kernels) {
    LinearSpec body = CudaLinearBodySpec(spec, kernel.config);
    body.append = appending.append;
    body.rope = appending.rope;
    if (body.act != LinearAct::kNone || !CudaLinearMayAppend(body, kernel.config.body)) continue;
    CudaLinearKernel shared = kernel;
    shared.source = CudaLinearSource(body, kernel);
    shared.unused_pointers = body.rope.has_value() ? 4 : 3;
    const auto is_code = [&](const CudaLinearKernel& other) {
      return CodeOf(other) == CodeOf(shared);
    };
    if (std::any_of(others.begin(), others.end(), is_code)) kernel = std::move(shared);
  }
}

}  // namespace

absl::StatusOr<std::vector<CudaLinearKernel>> CudaLinearKernels(const LinearSpec& spec,
                                                                const CudaLimits& limits,
                                                                const LinearSpec* appending) {
  std::vector<CudaLinearConfig> configs;
  if (IsE4m3Product(spec)) {
    configs = CudaE4m3Configs(spec, limits);
  } else {
    QUIRE_ASSIGN_OR_RETURN(configs, CudaLinearConfigs(spec, limits));
  }
  std::vector<CudaLinearKernel> kernels;
  for (const CudaLinearConfig& config : configs) {
    kernels.push_back(MakeCudaLinearKernel(spec, config));
  }
  if (appending != nullptr && !spec.append.has_value()) {
    // One that there is no kernel for is refused where it is made itself.
    const auto others = CudaLinearKernels(*appending, limits);
    if (others.ok()) TakeTexts(spec, *appending, *others, &kernels);
  }
  return kernels;
}

}  // namespace quire
