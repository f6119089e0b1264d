#include "codegen/cuda/attention_source.h"

#include <bit>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "codegen/relative_bias.h"

namespace quire {
namespace {

using cuda_attention::IsNarrow;

constexpr int kCountsBytes = 24;  // of a thread of the plan

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

std::string Constants(const AttentionSpec& spec, const CudaAttentionConfig& config,
                      int64_t many_rows) {
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
      ";\nconstexpr int kWindow = ", spec.window,
      ", kBiasDistances = ", CudaAttentionDistances(spec), ", kTreeWords = ", spec.tree_words,
      ";\nconstexpr double kScale = ", absl::StrFormat("%.17g", spec.scale),
      ", kCap = ", absl::StrFormat("%.17g", spec.cap),
      ";\n__device__ constexpr float kAlibiSlopes[] = {", AlibiSlopes(spec),
      "};\nconstexpr bool kFew = ", BoolText(config.body == CudaAttentionConfig::Body::kFew),
      ";\nconstexpr int kThreads = ", config.threads, ", kManyRows = ", many_rows,
      ", kStages = ", config.stages, ", kResident = ", config.resident,
      ", kSharedBytes = ", config.shared_bytes, ";\n");
}

}  // namespace

int64_t CudaAttentionDistances(const AttentionSpec& spec) {
  return spec.buckets > 0 ? BiasDistances(spec) : spec.bias_distances;
}

bool CudaAttentionHasQueryBoxes(const AttentionSpec& spec, const CudaAttentionConfig& config) {
  return config.by_warpgroups() && cuda_attention::kWideRows % (spec.hq / spec.hkv) == 0;
}

CudaEntry CudaAttentionEntry(const AttentionSpec& spec, const CudaAttentionConfig& config,
                             int64_t many_rows) {
  CudaEntry entry;
  const bool is_short = config.body == CudaAttentionConfig::Body::kShort;
  entry.entry = config.body == CudaAttentionConfig::Body::kFew ? "attention_few"
                : is_short                                     ? "attention_short"
                                                               : "attention_many";
  entry.block_threads = config.threads;
  entry.shared_bytes = config.shared_bytes;
  const auto parameter = [](bool present, const char* text) { return present ? text : ""; };
  const auto argument = [](bool present, const char* text) { return present ? text : "nullptr"; };
  const bool bias = CudaAttentionDistances(spec) > 0, tree = spec.tree_words > 0;
  const bool warpgroups = config.by_warpgroups(),
             wide = config.body == CudaAttentionConfig::Body::kWide;
  const bool boxes = CudaAttentionHasQueryBoxes(spec, config);
  entry.source = absl::StrCat(
      Constants(spec, config, many_rows), "#include \"",
      wide                                             ? "attention_wide.cuh"
      : warpgroups                                     ? "attention_warpgroup.cuh"
      : config.body == CudaAttentionConfig::Body::kFew ? "attention_few.cuh"
      : is_short                                       ? "attention_short.cuh"
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

CudaEntry CudaAttentionPlanEntry(const AttentionSpec& spec, const CudaAttentionConfig& config,
                                 int64_t many_rows) {
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

}  // namespace quire
