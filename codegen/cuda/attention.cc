#include "codegen/cuda/attention.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "codegen/relative_bias.h"

namespace quire {
namespace {

// Constants of codegen/cuda/kernels/attention*.cuh; static_asserts there compare the bytes.
constexpr int kFewThreads = 128, kWarpThreads = 32;
constexpr int kWarpgroupThreads = 384, kWarpgroupRows = 128, kWideRows = 64, kOnesBytes = 1024;
constexpr int64_t kTileNoteBytes = 96, kSharedWeightsBytes = kWideRows * 128 + 1024;
constexpr int kChunkTokens = 256, kStepTokens = 64, kTileTokens = 16;
constexpr int kFewRowsMost = 32, kShortTokens = kStepTokens;
constexpr int64_t kTileBytes = 48, kHeaderBytes = 48, kStartBytes = 112, kOpenPairBytes = 40;
constexpr int kCountsBytes = 24;
constexpr int64_t kNoteBytes = 6 * 16, kPlaceTables = 3;
constexpr int kMostStages = 6;       // of many rows
constexpr int kMostTileStages = 12;  // of few
// So many that a block may share a chunk, and that two blocks' copies keep a multiprocessor busy.
constexpr int kGoodTileStages = 5;
constexpr int64_t kMaxPageUnits = int64_t{1} << 28;
// More than a layer's pages are; how many there are is not known here.
constexpr int64_t kMostLayerBytes = int64_t{1} << 38;
constexpr int64_t kMostMapRows = int64_t{1} << 31;  // rows are numbered by an int

constexpr int64_t DivideUp(int64_t a, int64_t b) { return (a + b - 1) / b; }
constexpr int64_t RoundUp(int64_t a, int64_t b) { return DivideUp(a, b) * b; }

// Bytes of a row of `elements` of 16 bits, or of bytes, in shared memory.
int64_t SharedRowBytes(int64_t elements, int64_t element_bytes = 2) {
  const int64_t units = DivideUp(elements, 16) * element_bytes;
  return (units % 8 == 0 ? units : units | 1) * 16;
}

enum class Body {
  kFew,         // for tiles of few rows
  kShort,       // likewise, over a context of one step
  kMany,        // of many
  kWarpgroups,  // of many, by products of warpgroups
  kWide,        // likewise, of wide heads
};

// How an entry fits a device.
struct Config {
  Body body = Body::kFew;
  int threads = kFewThreads;
  int stages = 0;
  int resident = 1;      // blocks a multiprocessor
  int shared_bytes = 0;  // so many that no more blocks fit
  // Of kMany, whose keys and values in bytes become elements first: room for both at once.
  bool both_wide = true;
};

bool ByWarpgroups(const Config& config) {
  return config.body == Body::kWarpgroups || config.body == Body::kWide;
}

int64_t KvBytes(const AttentionSpec& spec) { return InfoOf(spec.kv).block_bytes; }
bool IsNarrow(const AttentionSpec& spec) { return KvBytes(spec) == 1; }

bool IsWide(const AttentionSpec& spec) { return std::max(spec.d, spec.dv) > 128; }

// Rows of a tile of many.
int64_t ManyRows(const AttentionSpec& spec, const Config& many) {
  if (many.body == Body::kWarpgroups) return kWarpgroupRows;
  if (many.body == Body::kWide) return kWideRows;
  return many.threads / 2 / (IsWide(spec) ? 2 : 1);
}
// Rows of a tile of few that a warp has, and the warps that share it.
int64_t WarpRows(const AttentionSpec& spec) { return IsWide(spec) ? 8 : 16; }
int64_t SharingWarps(const AttentionSpec& spec) {
  return spec.hq / spec.hkv > WarpRows(spec) ? 2 : 1;
}
int64_t FewRows(const AttentionSpec& spec) { return WarpRows(spec) * SharingWarps(spec); }

// Dynamic shared memory of an attention entry.
int64_t FewSharedBytes(const AttentionSpec& spec, int64_t threads, int64_t stages) {
  const int64_t warps = threads / kWarpThreads, teams = warps / SharingWarps(spec);
  const int64_t row =
      std::max(SharedRowBytes(spec.d, KvBytes(spec)), SharedRowBytes(spec.dv, KvBytes(spec)));
  const int64_t slot = RoundUp(kTileTokens * row, 128);
  const bool may_share = stages / SharingWarps(spec) > kChunkTokens / kTileTokens / warps;
  const int64_t of_chunk =
      FewRows(spec) * (SharedRowBytes(kChunkTokens) + kChunkTokens / kTileTokens * 4);
  const int64_t sums = FewRows(spec) / 8 * (DivideUp(spec.dv, 16) + 1) * 32 * 16;
  return teams * stages * slot + (may_share ? std::max(of_chunk, sums) : sums) + 2 * kOpenPairBytes;
}
int64_t SharedBytes(const AttentionSpec& spec, const Config& config, int64_t stages) {
  if (config.body == Body::kFew) return FewSharedBytes(spec, config.threads, stages);
  if (ByWarpgroups(config)) {
    const bool wide = config.body == Body::kWide;
    const int64_t row = RoundUp(spec.d, 64) * 2, tiles = wide ? 1 : 2, halves = wide ? 1 : 2;
    const int64_t byte_stages = IsNarrow(spec) ? DivideUp(stages, 2) : 0;
    const int64_t barriers = 2 * (halves * stages + byte_stages) + 3 * tiles + (wide ? 4 : 0);
    const int64_t of_bytes = byte_stages * 2 * kStepTokens * 128;
    return tiles * ManyRows(spec, config) * row + stages * halves * kStepTokens * row + of_bytes +
           (wide ? 2 * kSharedWeightsBytes : 0) + kOnesBytes + RoundUp(8 * barriers, 16) +
           tiles * kTileNoteBytes;
  }
  const int64_t key_row = SharedRowBytes(spec.d, KvBytes(spec));
  const int64_t value_row = SharedRowBytes(spec.dv, KvBytes(spec));
  const int64_t query = ManyRows(spec, config) * SharedRowBytes(spec.d);
  const int64_t wide_key = SharedRowBytes(spec.d), wide_value = SharedRowBytes(spec.dv);
  const int64_t wide_row = !IsNarrow(spec)    ? 0
                           : config.both_wide ? wide_key + wide_value
                                              : std::max(wide_key, wide_value);
  const int64_t runs = kStepTokens / std::gcd(int64_t{kStepTokens}, spec.page_tokens);
  return RoundUp(query, 128) + stages * kStepTokens * (key_row + value_row) +
         kStepTokens * wide_row + kNoteBytes +
         kPlaceTables * runs * 4 * (spec.d == spec.dv ? 1 : 2);
}

// `config` with as many stages as fit where `resident` blocks do.
Config Fitted(const AttentionSpec& spec, const CudaLimits& limits, Config config) {
  constexpr int kReserved = 1024;  // of every block
  const int all = limits.shared_bytes + kReserved;
  const int most = all / config.resident - kReserved;
  const int most_stages = config.body == Body::kFew ? kMostTileStages : kMostStages;
  while (config.stages < most_stages && SharedBytes(spec, config, config.stages + 1) <= most) {
    ++config.stages;
  }
  config.shared_bytes =
      std::max(static_cast<int>(SharedBytes(spec, config, config.stages)),
               static_cast<int>(RoundUp(all / (config.resident + 1) - kReserved + 1, 128)));
  return config;
}

// Of few rows two blocks a multiprocessor, or one of twice as many warps where so many rows that
// warps share them want these for their products and would have merges of half the blocks; where
// stages are enough. Otherwise one block.
Config FewConfig(const AttentionSpec& spec, const CudaLimits& limits) {
  const Config two = Fitted(spec, limits,
                            SharingWarps(spec) == 1 ? Config{Body::kFew, kFewThreads, 0, 2, 0}
                                                    : Config{Body::kFew, 2 * kFewThreads, 0, 1, 0});
  if (two.stages >= kGoodTileStages) return two;
  return Fitted(spec, limits, {Body::kFew, kFewThreads, 0, 1, 0});
}
// A tile's keys and values in registers.
Config ShortConfig(const AttentionSpec& spec) {
  const int64_t most = std::max(spec.d, spec.dv);
  const int resident = most > 96 ? 2 : most > 64 || spec.tree_words > 0 ? 3 : 4;
  return {Body::kShort, kFewThreads, 0, resident, 0};
}
// Whether tensor copies bring whole runs of tokens, and warpgroups' registers hold 64 rows' sums.
// Of wide heads there is no room for bytes beside the elements that they become.
bool HasWarpgroups(const AttentionSpec& spec, const CudaLimits& limits) {
  return limits.major == 9 && spec.d == spec.dv && spec.page_tokens % 8 == 0 &&
         (!IsWide(spec) || (!IsNarrow(spec) && (spec.d == 192 || spec.d == 256)));
}
// As many rows as fit.
Config ManyConfig(const AttentionSpec& spec, const CudaLimits& limits) {
  if (HasWarpgroups(spec, limits)) {
    const Body body = IsWide(spec) ? Body::kWide : Body::kWarpgroups;
    return Fitted(spec, limits, {body, kWarpgroupThreads, 0, 1, 0});
  }
  for (const int threads : {256, 128}) {
    for (const bool both_wide : {true, false}) {
      const Config config = Fitted(spec, limits, {Body::kMany, threads, 0, 1, 0, both_wide});
      if (config.stages >= 1) return config;
    }
  }
  return {Body::kMany, 128, 0, 1, 0};
}

// Of the table of biases that the kernel reads. One by buckets was unrolled when it was loaded.
int64_t DistancesOf(const AttentionSpec& spec) {
  return spec.buckets > 0 ? BiasDistances(spec) : spec.bias_distances;
}

absl::Status CheckSpec(const AttentionSpec& spec) {
  const char* allowed = nullptr;
  if (spec.x != DType::kBF16 && spec.x != DType::kF16) {
    allowed = "x=f16, bf16";
  } else if (spec.kv != spec.x && !IsNarrow(spec)) {
    allowed = "kv=f8e4m3, or of x's type";
  } else if (IsNarrow(spec) && (spec.d % 16 != 0 || spec.dv % 16 != 0)) {
    allowed = "with kv=f8e4m3 d and dv multiples of 16";
  } else if (spec.d < 8 || spec.dv < 8 || spec.d > 256 || spec.dv > 256 || spec.d % 8 != 0 ||
             spec.dv % 8 != 0) {
    allowed = "d and dv multiples of 8, 8 .. 256";
  } else if (spec.hkv < 1 || spec.hq % spec.hkv != 0 || spec.page_tokens < 1) {
    allowed = "hq a multiple of hkv, page at least 1";
  } else if (spec.hkv * spec.page_tokens * (spec.d + spec.dv) / 8 > kMaxPageUnits) {
    allowed = "pages of up to 4 GiB";
  } else if (spec.tree_words > 0 &&
             (spec.window > 0 || spec.alibi_max > 0 || DistancesOf(spec) > 0)) {
    // Their distances would be those of the tree's branches, which are not known here.
    allowed = "tree with neither window, alibi nor bias";
  }
  if (allowed == nullptr) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat("cuda: ", SpecText(spec), "\n  allowed: ", allowed));
}

// As in ir/ops.def's alibi, times log2 e.
std::string AlibiSlopes(const AttentionSpec& spec) {
  if (spec.alibi_max == 0) return "0";
  const auto lower = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(spec.hq)));
  std::string text;
  for (int64_t head = 0; head < spec.hq; ++head) {
    const double step = spec.alibi_max / static_cast<double>(lower);
    const double power = head < lower ? step * static_cast<double>(head + 1)
                                      : step / 2 * static_cast<double>(2 * (head - lower) + 1);
    absl::StrAppend(&text, head == 0 ? "" : ", ",
                    absl::StrFormat("%.9ef", std::exp2(-power) * 1.4426950408889634));
  }
  return text;
}

const char* BoolText(bool value) { return value ? "true" : "false"; }

std::string Constants(const AttentionSpec& spec, const Config& config, int64_t many_rows) {
  return absl::StrCat(
      "// ", SpecText(spec),
      "\n#include \"e4m3.cuh\"\nusing Element = ", spec.x == DType::kBF16 ? "Bf16" : "F16",
      ";\nusing KvElement = ", IsNarrow(spec) ? "E4m3" : "Element",
      ";\nconstexpr bool kIsBf16 = ", BoolText(spec.x == DType::kBF16),
      ", kKeyScales = ", BoolText(spec.k_scale), ", kValueScales = ", BoolText(spec.v_scale),
      ";\nconstexpr int kHq = ", spec.hq, ", kHkv = ", spec.hkv, ", kD = ", spec.d,
      ", kDv = ", spec.dv, ", kPageTokens = ", spec.page_tokens,
      ";\nconstexpr bool kCausal = ", BoolText(spec.causal),
      ", kAlibi = ", BoolText(spec.alibi_max > 0), ", kSinks = ", BoolText(spec.sinks),
      ";\nconstexpr int kWindow = ", spec.window, ", kBiasDistances = ", DistancesOf(spec),
      ", kTreeWords = ", spec.tree_words,
      ";\nconstexpr double kScale = ", absl::StrFormat("%.17g", spec.scale),
      ", kCap = ", absl::StrFormat("%.17g", spec.cap),
      ";\n__device__ constexpr float kAlibiSlopes[] = {", AlibiSlopes(spec),
      "};\nconstexpr bool kFew = ", BoolText(config.body == Body::kFew),
      ";\nconstexpr int kThreads = ", config.threads, ", kManyRows = ", many_rows,
      ", kStages = ", config.stages, ", kResident = ", config.resident,
      ", kSharedBytes = ", config.shared_bytes, ";\n");
}

// Whether tensor copies bring q, too: 64 rows of a tile are all heads of some tokens.
bool HasQueryBoxes(const AttentionSpec& spec, const Config& config) {
  return ByWarpgroups(config) && kWideRows % (spec.hq / spec.hkv) == 0;
}

CudaEntry AttentionEntry(const AttentionSpec& spec, const Config& config, int64_t many_rows) {
  CudaEntry entry;
  const bool is_short = config.body == Body::kShort;
  entry.entry = config.body == Body::kFew ? "attention_few"
                : is_short                ? "attention_short"
                                          : "attention_many";
  entry.block_threads = config.threads;
  entry.shared_bytes = config.shared_bytes;
  const auto parameter = [](bool present, const char* text) { return present ? text : ""; };
  const auto argument = [](bool present, const char* text) { return present ? text : "nullptr"; };
  const bool bias = DistancesOf(spec) > 0, tree = spec.tree_words > 0;
  const bool warpgroups = ByWarpgroups(config), wide = config.body == Body::kWide;
  const bool boxes = HasQueryBoxes(spec, config);
  entry.source = absl::StrCat(
      Constants(spec, config, many_rows), "#include \"",
      wide                        ? "attention_wide.cuh"
      : warpgroups                ? "attention_warpgroup.cuh"
      : config.body == Body::kFew ? "attention_few.cuh"
      : is_short                  ? "attention_short.cuh"
                                  : "attention_body.cuh",
      "\"\n"
      "extern \"C\" __global__ void __launch_bounds__(kThreads, kResident)\n",
      entry.entry, "(", parameter(warpgroups, "const __grid_constant__ TensorMap layer_map, "),
      parameter(boxes, "const __grid_constant__ TensorMap query_map, "),
      "const Element* q, const KvElement* layer, ",
      parameter(spec.k_scale, "const float* key_scales, "),
      parameter(spec.v_scale, "const float* value_scales, "),
      parameter(bias, "const float* bias, "), parameter(spec.sinks, "const float* sinks, "),
      parameter(tree, "const uint32_t* tree, "),
      "Element* y,\n    const int* pages, uint8_t* plan) {\n  Attention",
      wide         ? "Wide"
      : warpgroups ? "Warpgroup"
                   : parameter(is_short, "Short"),
      "::Run({q, layer, ", argument(spec.k_scale, "key_scales"), ", ",
      argument(spec.v_scale, "value_scales"), ", ", argument(bias, "bias"), ", ",
      argument(spec.sinks, "sinks"), ", ", argument(tree, "tree"), ", y, pages, plan}",
      parameter(warpgroups, ", layer_map"),
      boxes ? ", query_map" : parameter(warpgroups, ", layer_map"), ");\n}\n");
  return entry;
}

CudaEntry PlanEntry(const AttentionSpec& spec, const Config& config, int64_t many_rows) {
  CudaEntry entry;
  entry.entry = "attention_plan";
  entry.block_threads = config.threads;
  entry.shared_bytes = config.threads * kCountsBytes;
  entry.source = absl::StrCat(
      Constants(spec, config, many_rows),
      "#include \"attention_plan.cuh\"\n"
      "extern \"C\" __global__ void __launch_bounds__(kThreads)\n"
      "attention_plan(const StepHeader* header, const StepSequence* sequences, uint8_t* plan,\n"
      "    int few_tiles, int many_tiles, int blocks, int multiprocessors) {\n"
      "  AttentionPlan::Run(header, sequences, plan, {few_tiles, many_tiles, blocks, "
      "multiprocessors});\n}\n");
  return entry;
}

class CudaAttention : public CudaKernel {
 public:
  CudaAttention(const AttentionSpec& spec, const CudaLimits& limits)
      : spec_(spec),
        multiprocessors_(limits.multiprocessors),
        few_(FewConfig(spec, limits)),
        short_(ShortConfig(spec)),
        many_(ManyConfig(spec, limits)) {
    entries_ = {AttentionEntry(spec, few_, many_rows()), AttentionEntry(spec, many_, many_rows()),
                PlanEntry(spec, few_, many_rows())};
    if (has_short()) entries_.push_back(AttentionEntry(spec, short_, many_rows()));
  }

  bool fits() const { return few_.stages >= 2 && many_.stages > 0; }

  // Sequences of many rows where the step may have any, and beside them those of few, long ones and
  // then short ones.
  CudaLaunches Launches(int64_t rows) const override {
    const int64_t few_most = kFewRowsMost / group();
    CudaLaunches step;
    const auto add = [&](size_t entry, const Config& config, const CudaWork& work) {
      step.launches.push_back(Launch(entry, config, rows));
      step.launches.back().work = work;
    };
    if (rows > few_most) add(kManyEntry, many_, {.least_rows = few_most + 1});
    add(kFewEntry, few_,
        {.most_rows = few_most, .least_tokens = has_short() ? kShortTokens + 1 : 0});
    if (has_short()) add(kShortEntry, short_, {.most_rows = few_most, .most_tokens = kShortTokens});
    return step;
  }

  Preparation Prepare(int64_t max_rows, int64_t max_sequences, int64_t max_pages) const override {
    using Kind = CudaArgument::Kind;
    const int64_t tiles_each = kFewRowsMost / FewRows(spec_);
    const int64_t few_tiles = tiles_each * max_sequences;
    const int64_t many_tiles = max_rows * group() / many_rows() + max_sequences;
    const int64_t chunks = max_pages * spec_.page_tokens / kChunkTokens + max_sequences;
    const int64_t partial_bytes = FewRows(spec_) * (RoundUp(spec_.dv, 16) + 4) * 4;
    const int blocks = multiprocessors_ * few_.resident;
    Preparation preparation;
    preparation.plan_bytes = kHeaderBytes + blocks * kStartBytes +
                             (few_tiles + many_tiles) * kTileBytes +
                             RoundUp((few_tiles * spec_.hkv + 1) * 4, 16) +
                             tiles_each * chunks * spec_.hkv * partial_bytes;
    CudaLaunch launch;
    launch.entry = kPlanEntry;
    launch.arguments = {{Kind::kHeader, 0},
                        {Kind::kSequences, 0},
                        {Kind::kPlan, 0},
                        {Kind::kInt32, few_tiles},
                        {Kind::kInt32, many_tiles},
                        {Kind::kInt32, blocks},
                        {Kind::kInt32, multiprocessors_}};
    preparation.launches = {launch};
    return preparation;
  }

 private:
  static constexpr size_t kFewEntry = 0, kManyEntry = 1, kPlanEntry = 2, kShortEntry = 3;

  // Its sums and queries are in registers.
  bool has_short() const { return !IsWide(spec_); }
  int64_t group() const { return spec_.hq / spec_.hkv; }
  int64_t many_rows() const { return ManyRows(spec_, many_); }

  CudaLaunch Launch(size_t entry, const Config& config, int64_t rows) const {
    using Kind = CudaArgument::Kind;
    CudaLaunch launch;
    launch.entry = entry;
    launch.grid = multiprocessors_ * config.resident;
    if (ByWarpgroups(config)) {
      // Keys and values alike, in runs of tokens that lie in one page and one step.
      const auto run = static_cast<int>(std::gcd(int64_t{kStepTokens}, spec_.page_tokens));
      // Two bytes are an element to the map.
      const int64_t row_bytes = KvBytes(spec_) * spec_.d;
      const int64_t layer_rows = std::min(kMostLayerBytes / row_bytes, kMostMapRows);
      const bool grouped = !IsNarrow(spec_) && spec_.d % 64 == 0;
      launch.tensor_maps = {{{Kind::kOperand, 1}, layer_rows, row_bytes / 2, run, grouped}};
      launch.arguments = {{Kind::kTensorMap, 0}};
    }
    if (HasQueryBoxes(spec_, config)) {
      launch.tensor_maps.push_back({{Kind::kOperand, 0},
                                    rows * spec_.hq,
                                    spec_.d,
                                    kWideRows,
                                    /*grouped=*/false,
                                    /*paired=*/false,
                                    spec_.hq,
                                    static_cast<int>(group())});
      launch.arguments.push_back({Kind::kTensorMap, 1});
    }
    const int64_t operands = 3 + spec_.k_scale + spec_.v_scale + (DistancesOf(spec_) > 0) +
                             spec_.sinks + (spec_.tree_words > 0);
    for (int64_t i = 0; i < operands; ++i) launch.arguments.push_back({Kind::kOperand, i});
    launch.arguments.push_back({Kind::kPages, 0});
    launch.arguments.push_back({Kind::kPlan, 0});
    return launch;
  }

  const AttentionSpec spec_;
  const int multiprocessors_;
  const Config few_, short_, many_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<CudaKernel>> MakeCudaAttention(const AttentionSpec& spec,
                                                              const CudaLimits& limits) {
  if (absl::Status status = CheckSpec(spec); !status.ok()) return status;
  auto kernel = std::make_unique<CudaAttention>(spec, limits);
  if (!kernel->fits()) {
    return absl::UnimplementedError(absl::StrCat("cuda: ", SpecText(spec), " in ",
                                                 limits.shared_bytes, " bytes of shared memory"));
  }
  return std::unique_ptr<CudaKernel>(std::move(kernel));
}

}  // namespace quire
