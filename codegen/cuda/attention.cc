#include "codegen/cuda/attention.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace quire {
namespace {

// Constants of codegen/cuda/kernels/attention*.cuh; static_asserts there compare the bytes.
constexpr int kThreads = 128, kWarps = 4;
constexpr int kChunkTokens = 256, kStepTokens = 64;
constexpr int kFewRows = 16, kFewRowsMost = 32;
constexpr int64_t kTileBytes = 48, kHeaderBytes = 32;
constexpr int kMostStages = 6;
constexpr int64_t kMaxGroupedRows = int64_t{1} << 24;  // of 32-bit arithmetic
constexpr int64_t kMaxPageUnits = int64_t{1} << 28;

constexpr int64_t DivideUp(int64_t a, int64_t b) { return (a + b - 1) / b; }
constexpr int64_t RoundUp(int64_t a, int64_t b) { return DivideUp(a, b) * b; }

// Bytes of a row of `elements` in shared memory.
int64_t SharedRowBytes(int64_t elements) {
  const int64_t units = DivideUp(elements, 16) * 2;
  return (units % 8 == 0 ? units : units | 1) * 16;
}

int64_t ManyRows(const AttentionSpec& spec) { return 16 * kWarps / (spec.dv > 128 ? 2 : 1); }

// Dynamic shared memory of the attention entry.
int64_t SharedBytes(const AttentionSpec& spec, int64_t stages) {
  const int64_t key_row = SharedRowBytes(spec.d), value_row = SharedRowBytes(spec.dv);
  const int64_t few = kFewRows * (key_row + SharedRowBytes(kStepTokens)) + kWarps * kFewRows * 4;
  const int64_t query = RoundUp(std::max(ManyRows(spec) * key_row, few + 16), 128);
  const int64_t tables = spec.d == spec.dv ? 1 : 2;
  return query + stages * kStepTokens * (key_row + value_row) + 2 * tables * kStepTokens * 4;
}

// How the entry fits a device.
struct Config {
  int stages = 0;
  int resident = 1;      // blocks a multiprocessor
  int shared_bytes = 0;  // so many that no more blocks fit
};

Config ConfigFor(const AttentionSpec& spec, const CudaLimits& limits) {
  constexpr int kReserved = 1024;  // of every block
  const int all = limits.shared_bytes + kReserved;
  Config config;
  for (int resident : {2, 1}) {
    const int most = all / resident - kReserved;
    config.resident = resident;
    config.stages = 0;
    while (config.stages < kMostStages && SharedBytes(spec, config.stages + 1) <= most) {
      ++config.stages;
    }
    config.shared_bytes =
        std::max(static_cast<int>(SharedBytes(spec, config.stages)),
                 static_cast<int>(RoundUp(all / (resident + 1) - kReserved + 1, 128)));
    if (config.stages >= 3) break;
  }
  return config;
}

absl::Status CheckSpec(const AttentionSpec& spec) {
  const char* allowed = nullptr;
  if (spec.kv != DType::kBF16 && spec.kv != DType::kF16) {
    allowed = "kv=f16, bf16";
  } else if (spec.x != spec.kv) {
    allowed = "x of kv's type";
  } else if (spec.d < 8 || spec.dv < 8 || spec.d > 256 || spec.dv > 256 || spec.d % 8 != 0 ||
             spec.dv % 8 != 0) {
    allowed = "d and dv multiples of 8, 8 .. 256";
  } else if (spec.hkv < 1 || spec.hq % spec.hkv != 0 || spec.page_tokens < 1) {
    allowed = "hq a multiple of hkv, page at least 1";
  } else if (spec.hkv * spec.page_tokens * (spec.d + spec.dv) / 8 > kMaxPageUnits) {
    allowed = "pages of up to 4 GiB";
  } else if (spec.tree_words > 0 &&
             (spec.window > 0 || spec.alibi_max > 0 || spec.bias_distances > 0)) {
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

std::string Constants(const AttentionSpec& spec, const Config& config) {
  return absl::StrCat(
      "// ", SpecText(spec),
      "\n#include \"prelude.cuh\"\nusing Element = ", spec.kv == DType::kBF16 ? "Bf16" : "F16",
      ";\nconstexpr bool kIsBf16 = ", BoolText(spec.kv == DType::kBF16),
      ";\nconstexpr int kHq = ", spec.hq, ", kHkv = ", spec.hkv, ", kD = ", spec.d,
      ", kDv = ", spec.dv, ", kPageTokens = ", spec.page_tokens,
      ";\nconstexpr bool kCausal = ", BoolText(spec.causal),
      ", kAlibi = ", BoolText(spec.alibi_max > 0), ", kSinks = ", BoolText(spec.sinks),
      ";\nconstexpr int kWindow = ", spec.window, ", kBiasDistances = ", spec.bias_distances,
      ", kTreeWords = ", spec.tree_words,
      ";\nconstexpr double kScale = ", absl::StrFormat("%.17g", spec.scale),
      ", kCap = ", absl::StrFormat("%.17g", spec.cap),
      ";\n__device__ constexpr float kAlibiSlopes[] = {", AlibiSlopes(spec),
      "};\nconstexpr int kStages = ", config.stages, ", kResident = ", config.resident,
      ", kSharedBytes = ", config.shared_bytes, ";\n");
}

CudaEntry AttentionEntry(const AttentionSpec& spec, const Config& config) {
  CudaEntry entry;
  entry.entry = "attention";
  entry.block_threads = kThreads;
  entry.shared_bytes = config.shared_bytes;
  const auto parameter = [](bool present, const char* text) { return present ? text : ""; };
  const auto argument = [](bool present, const char* text) { return present ? text : "nullptr"; };
  const bool bias = spec.bias_distances > 0, tree = spec.tree_words > 0;
  entry.source = absl::StrCat(
      Constants(spec, config),
      "#include \"attention_body.cuh\"\n"
      "extern \"C\" __global__ void __launch_bounds__(kThreads, kResident)\n"
      "attention(const Element* q, const Element* layer, ",
      parameter(bias, "const float* bias, "), parameter(spec.sinks, "const float* sinks, "),
      parameter(tree, "const uint32_t* tree, "),
      "Element* y,\n    const int* pages, uint8_t* plan) {\n"
      "  Attention::Run({q, layer, ",
      argument(bias, "bias"), ", ", argument(spec.sinks, "sinks"), ", ", argument(tree, "tree"),
      ", y, pages, plan});\n}\n");
  return entry;
}

CudaEntry PlanEntry(const AttentionSpec& spec, const Config& config) {
  CudaEntry entry;
  entry.entry = "attention_plan";
  entry.block_threads = kThreads;
  entry.shared_bytes = 2 * kThreads * 4;
  entry.source = absl::StrCat(
      Constants(spec, config),
      "#include \"attention_plan.cuh\"\n"
      "extern \"C\" __global__ void __launch_bounds__(kThreads)\n"
      "attention_plan(const StepHeader* header, const StepSequence* sequences, uint8_t* plan,\n"
      "    int few_tiles, int many_tiles, int blocks) {\n"
      "  AttentionPlan::Run(header, sequences, plan, {few_tiles, many_tiles, blocks});\n}\n");
  return entry;
}

class CudaAttention : public CudaKernel {
 public:
  CudaAttention(const AttentionSpec& spec, const CudaLimits& limits)
      : spec_(spec),
        config_(ConfigFor(spec, limits)),
        blocks_(limits.multiprocessors * config_.resident) {
    entries_ = {AttentionEntry(spec, config_), PlanEntry(spec, config_)};
  }

  const Config& config() const { return config_; }

  CudaLaunches Launches(int64_t) const override {
    using Kind = CudaArgument::Kind;
    CudaLaunch launch;
    launch.grid = blocks_;
    const int64_t operands = 3 + (spec_.bias_distances > 0) + spec_.sinks + (spec_.tree_words > 0);
    for (int64_t i = 0; i < operands; ++i) launch.arguments.push_back({Kind::kOperand, i});
    launch.arguments.push_back({Kind::kPages, 0});
    launch.arguments.push_back({Kind::kPlan, 0});
    return {{launch}, 0};
  }

  Preparation Prepare(int64_t max_rows, int64_t max_sequences, int64_t max_pages) const override {
    using Kind = CudaArgument::Kind;
    const int64_t group = spec_.hq / spec_.hkv, tiles_each = kFewRowsMost / kFewRows;
    const int64_t few_tiles = tiles_each * max_sequences;
    const int64_t many_tiles = max_rows * group / ManyRows(spec_) + max_sequences;
    const int64_t chunks = max_pages * spec_.page_tokens / kChunkTokens + max_sequences;
    const int64_t partial_bytes = kFewRows * (RoundUp(spec_.dv, 16) + 4) * 4;
    Preparation preparation;
    preparation.plan_bytes = kHeaderBytes + (few_tiles + many_tiles) * kTileBytes +
                             RoundUp(blocks_ * 4, 16) + RoundUp(few_tiles * spec_.hkv * 4, 16) +
                             tiles_each * chunks * spec_.hkv * partial_bytes;
    CudaLaunch launch;
    launch.entry = 1;
    launch.arguments = {{Kind::kHeader, 0},         {Kind::kSequences, 0},
                        {Kind::kPlan, 0},           {Kind::kInt32, few_tiles},
                        {Kind::kInt32, many_tiles}, {Kind::kInt32, blocks_}};
    preparation.launches = {launch};
    return preparation;
  }

 private:
  const AttentionSpec spec_;
  const Config config_;
  const int blocks_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<CudaKernel>> MakeCudaAttention(const AttentionSpec& spec,
                                                              const CudaLimits& limits) {
  if (absl::Status status = CheckSpec(spec); !status.ok()) return status;
  auto kernel = std::make_unique<CudaAttention>(spec, limits);
  if (kernel->config().stages < 1) {
    return absl::UnimplementedError(absl::StrCat("cuda: ", SpecText(spec), " in ",
                                                 limits.shared_bytes, " bytes of shared memory"));
  }
  return std::unique_ptr<CudaKernel>(std::move(kernel));
}

}  // namespace quire
