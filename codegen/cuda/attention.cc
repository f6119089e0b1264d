#include "codegen/cuda/attention.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "codegen/cuda/attention_config.h"
#include "codegen/cuda/attention_source.h"

namespace quire {
namespace {

using cuda_attention::FewRows, cuda_attention::IsNarrow, cuda_attention::IsWide,
    cuda_attention::KvBytes, cuda_attention::ManyRows;
using cuda_attention::kChunkTokens, cuda_attention::kStepTokens, cuda_attention::kWideRows;
using cuda_attention::RoundUp;

// Constants of codegen/cuda/kernels/attention*.cuh.
constexpr int kFewRowsMost = 32, kShortTokens = kStepTokens;
constexpr int64_t kTileBytes = 48, kHeaderBytes = 48, kStartBytes = 112;
constexpr int64_t kMaxPageUnits = int64_t{1} << 28;
// More than a layer's pages are; how many there are is not known here.
constexpr int64_t kMostLayerBytes = int64_t{1} << 38;
constexpr int64_t kMostMapRows = int64_t{1} << 31;  // rows are numbered by an int

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
             (spec.window > 0 || spec.alibi_max > 0 || CudaAttentionDistances(spec) > 0)) {
    // Their distances would be those of the tree's branches, which are not known here.
    allowed = "tree with neither window, alibi nor bias";
  }
  if (allowed == nullptr) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat("cuda: ", SpecText(spec), "\n  allowed: ", allowed));
}

class CudaAttention : public CudaKernel {
 public:
  CudaAttention(const AttentionSpec& spec, const CudaLimits& limits)
      : spec_(spec),
        multiprocessors_(limits.multiprocessors),
        few_(CudaAttentionForFew(spec, limits)),
        short_(CudaAttentionForShort(spec)),
        many_(CudaAttentionForMany(spec, limits)) {
    entries_ = {CudaAttentionEntry(spec, few_, many_rows()),
                CudaAttentionEntry(spec, many_, many_rows()),
                CudaAttentionPlanEntry(spec, few_, many_rows())};
    if (has_short()) entries_.push_back(CudaAttentionEntry(spec, short_, many_rows()));
  }

  bool fits() const { return few_.stages >= 2 && many_.stages > 0; }

  // Sequences of many rows where the step may have any, and beside them those of few, long ones and
  // then short ones.
  CudaLaunches Launches(int64_t rows) const override {
    const int64_t few_most = kFewRowsMost / group();
    CudaLaunches step;
    const auto add = [&](size_t entry, const CudaAttentionConfig& config, const CudaWork& work) {
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

  CudaLaunch Launch(size_t entry, const CudaAttentionConfig& config, int64_t rows) const {
    using Kind = CudaArgument::Kind;
    CudaLaunch launch;
    launch.entry = entry;
    launch.grid = multiprocessors_ * config.resident;
    if (config.by_warpgroups()) {
      // Keys and values alike, in runs of tokens that lie in one page and one step.
      const auto run = static_cast<int>(std::gcd(int64_t{kStepTokens}, spec_.page_tokens));
      // Two bytes are an element to the map.
      const int64_t row_bytes = KvBytes(spec_) * spec_.d;
      const int64_t layer_rows = std::min(kMostLayerBytes / row_bytes, kMostMapRows);
      const bool grouped = !IsNarrow(spec_) && spec_.d % 64 == 0;
      launch.tensor_maps = {{{Kind::kOperand, 1}, layer_rows, row_bytes / 2, run, grouped}};
      launch.arguments = {{Kind::kTensorMap, 0}};
    }
    if (CudaAttentionHasQueryBoxes(spec_, config)) {
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
    const int64_t operands = 3 + spec_.k_scale + spec_.v_scale +
                             (CudaAttentionDistances(spec_) > 0) + spec_.sinks +
                             (spec_.tree_words > 0);
    for (int64_t i = 0; i < operands; ++i) launch.arguments.push_back({Kind::kOperand, i});
    launch.arguments.push_back({Kind::kPages, 0});
    launch.arguments.push_back({Kind::kPlan, 0});
    return launch;
  }

  const AttentionSpec spec_;
  const int multiprocessors_;
  const CudaAttentionConfig few_, short_, many_;
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
