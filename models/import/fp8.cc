#include "models/import/fp8.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "ir/status.h"
#include "ir/weight_scales.h"
#include "models/import/config_reader.h"

namespace quire {
namespace {

constexpr absl::string_view kKey = "quantization_config";

// A key that may be absent, null or one of these texts.
absl::Status Only(const ConfigReader& config, absl::string_view key,
                  std::initializer_list<absl::string_view> texts) {
  config.Ignore({key});
  if (!config.Has(key)) return absl::OkStatus();
  QUIRE_ASSIGN_OR_RETURN(const std::string text, config.GetString(key));
  if (std::find(texts.begin(), texts.end(), text) != texts.end()) return absl::OkStatus();
  std::string allowed;
  for (absl::string_view other : texts) {
    absl::StrAppend(&allowed, allowed.empty() ? "" : ", ", other);
  }
  return config.Refuse(key, "is not supported", allowed);
}
absl::Status OnlyBool(const ConfigReader& config, absl::string_view key, bool wanted) {
  QUIRE_ASSIGN_OR_RETURN(const bool value, config.GetBoolOr(key, wanted));
  return value == wanted ? absl::OkStatus()
                         : config.Refuse(key, "is not supported", wanted ? "true" : "false");
}
// Keys that are absent or null, else another arithmetic is asked for.
absl::Status OnlyNull(const ConfigReader& config, std::initializer_list<absl::string_view> keys) {
  for (absl::string_view key : keys) {
    if (config.Has(key)) return config.Refuse(key, "is not supported", "null");
    config.Ignore({key});
  }
  return absl::OkStatus();
}
absl::Status OnlyBlocksOf128(const ConfigReader& config, absl::string_view key) {
  config.Ignore({key});
  if (!config.Has(key)) return absl::OkStatus();
  QUIRE_ASSIGN_OR_RETURN(const std::vector<int64_t> sizes, config.GetInts(key));
  return sizes == std::vector<int64_t>{kScaleBlock, kScaleBlock}
             ? absl::OkStatus()
             : config.Refuse(key, "is not supported", "[128, 128], null");
}

// compressed-tensors: one group of its config_groups.
absl::Status CheckGroup(const ConfigReader& group) {
  group.Ignore({"targets", "input_activations", "format"});
  QUIRE_RETURN_IF_ERROR(OnlyNull(group, {"output_activations"}));
  QUIRE_ASSIGN_OR_RETURN(const ConfigReader weights, group.GetObject("weights"));
  weights.Ignore({"observer", "observer_kwargs", "scale_dtype", "zp_dtype"});
  QUIRE_ASSIGN_OR_RETURN(const int64_t bits, weights.GetInt("num_bits"));
  if (bits != 8) return weights.Refuse("num_bits", "is not supported", "8");
  QUIRE_RETURN_IF_ERROR(Only(weights, "type", {"float"}));
  QUIRE_RETURN_IF_ERROR(Only(weights, "strategy", {"tensor", "channel", "block"}));
  QUIRE_RETURN_IF_ERROR(OnlyBool(weights, "symmetric", true));
  QUIRE_RETURN_IF_ERROR(OnlyBool(weights, "dynamic", false));
  QUIRE_RETURN_IF_ERROR(OnlyBlocksOf128(weights, "block_structure"));
  return OnlyNull(weights, {"group_size", "actorder"});
}

// Of a cache in 8-bit floats: its scales are tensors of the checkpoint (models/weights_map.h),
// which
// --kv-dtype=f8e4m3 has a use for.
absl::Status CheckKvScheme(const ConfigReader& config) {
  constexpr absl::string_view kScheme = "kv_cache_scheme";
  if (!config.Has(kScheme)) return OnlyNull(config, {kScheme});
  QUIRE_ASSIGN_OR_RETURN(const ConfigReader scheme, config.GetObject(kScheme));
  scheme.Ignore({"observer", "observer_kwargs", "scale_dtype", "zp_dtype"});
  QUIRE_ASSIGN_OR_RETURN(const int64_t bits, scheme.GetInt("num_bits"));
  if (bits != 8) return scheme.Refuse("num_bits", "is not supported", "8");
  QUIRE_RETURN_IF_ERROR(Only(scheme, "type", {"float"}));
  QUIRE_RETURN_IF_ERROR(Only(scheme, "strategy", {"tensor", "attn_head"}));
  QUIRE_RETURN_IF_ERROR(OnlyBool(scheme, "symmetric", true));
  QUIRE_RETURN_IF_ERROR(OnlyBool(scheme, "dynamic", false));
  return OnlyNull(scheme, {"group_size", "actorder", "block_structure"});
}

absl::Status CheckCompressedTensors(const ConfigReader& config, const nlohmann::json& json) {
  config.Ignore({"ignore", "global_compression_ratio", "version", "provider"});
  QUIRE_RETURN_IF_ERROR(Only(config, "format", {"float-quantized", "naive-quantized"}));
  QUIRE_RETURN_IF_ERROR(Only(config, "quantization_status", {"compressed", "frozen"}));
  QUIRE_RETURN_IF_ERROR(CheckKvScheme(config));
  for (absl::string_view key : {"sparsity_config", "transform_config"}) {
    const auto found = json.find(key);
    const bool is_empty = found == json.end() || found->is_null() || found->empty();
    if (!is_empty) return config.Refuse(key, "is not supported", "{}, null");
    config.Ignore({key});
  }
  QUIRE_ASSIGN_OR_RETURN(const ConfigReader groups, config.GetObject("config_groups"));
  for (const auto& item : json.at("config_groups").items()) {
    QUIRE_ASSIGN_OR_RETURN(const ConfigReader group, groups.GetObject(item.key()));
    QUIRE_RETURN_IF_ERROR(CheckGroup(group));
  }
  return absl::OkStatus();
}

using Kind = ActivationRounding::Kind;

absl::StatusOr<ActivationRounding> RoundingOfGroup(const ConfigReader& group) {
  ActivationRounding rounding;
  constexpr absl::string_view kActivations = "input_activations";
  if (!group.Has(kActivations)) return rounding;
  QUIRE_ASSIGN_OR_RETURN(const ConfigReader x, group.GetObject(kActivations));
  QUIRE_ASSIGN_OR_RETURN(const int64_t bits, x.GetInt("num_bits"));
  if (bits != 8) return x.Refuse("num_bits", "is not supported", "8");
  QUIRE_RETURN_IF_ERROR(Only(x, "type", {"float"}));
  QUIRE_RETURN_IF_ERROR(OnlyBool(x, "symmetric", true));
  QUIRE_ASSIGN_OR_RETURN(const std::string strategy, x.GetStringOr("strategy", "tensor"));
  QUIRE_ASSIGN_OR_RETURN(const bool is_dynamic, x.GetBoolOr("dynamic", false));
  if (!is_dynamic) {
    if (strategy != "tensor") return x.Refuse("strategy", "with dynamic=false", "tensor");
    rounding.kind = Kind::kGiven;
    return rounding;
  }
  rounding.kind = Kind::kComputed;
  if (strategy == "group") {
    QUIRE_ASSIGN_OR_RETURN(rounding.columns, x.GetInt("group_size"));
    if (rounding.columns != kScaleBlock) return x.Refuse("group_size", "is not supported", "128");
  } else if (strategy != "token") {
    // Of all rows of a step: a row's result would depend on the others.
    return x.Refuse("strategy", "with dynamic=true", "token, group");
  }
  return rounding;
}

absl::StatusOr<ActivationRounding> RoundingOfGroups(const ConfigReader& config,
                                                    const nlohmann::json& json) {
  QUIRE_ASSIGN_OR_RETURN(const ConfigReader groups, config.GetObject("config_groups"));
  std::optional<ActivationRounding> all;
  for (const auto& item : json.at("config_groups").items()) {
    QUIRE_ASSIGN_OR_RETURN(const ConfigReader group, groups.GetObject(item.key()));
    QUIRE_ASSIGN_OR_RETURN(const ActivationRounding one, RoundingOfGroup(group));
    if (all.has_value() && (all->kind != one.kind || all->columns != one.columns)) {
      return config.Refuse("config_groups", "round activations in different ways", "one way");
    }
    all = one;
  }
  return all.value_or(ActivationRounding());
}

absl::StatusOr<ActivationRounding> WithKeepFix(absl::StatusOr<ActivationRounding> rounding) {
  if (rounding.ok()) return rounding;
  return WithLine(rounding.status(), "fix", "--activations=keep leaves them as they are");
}

absl::Status CheckMethod(const ConfigReader& config, const nlohmann::json& json) {
  QUIRE_ASSIGN_OR_RETURN(const std::string method, config.GetString("quant_method"));
  if (method == "compressed-tensors") return CheckCompressedTensors(config, json);
  config.Ignore({"modules_to_not_convert", "modules_to_convert", "ignored_layers"});
  if (method == "fbgemm_fp8") {
    config.Ignore({"activation_scale_ub"});
    return absl::OkStatus();
  }
  if (method != "fp8") {
    return config.Refuse("quant_method", "is not supported",
                         "fp8, fbgemm_fp8, compressed-tensors (of 8-bit floats), or GGUF");
  }
  config.Ignore({"dequantize", "is_checkpoint_fp8_serialized"});
  QUIRE_RETURN_IF_ERROR(Only(config, "activation_scheme", {"dynamic", "static"}));
  QUIRE_RETURN_IF_ERROR(Only(config, "fmt", {"e4m3"}));
  QUIRE_RETURN_IF_ERROR(Only(config, "scale_fmt", {"float", "ue8m0"}));
  QUIRE_RETURN_IF_ERROR(Only(config, "expert_dtype", {"fp8"}));
  QUIRE_RETURN_IF_ERROR(CheckKvScheme(config));
  return OnlyBlocksOf128(config, "weight_block_size");
}

}  // namespace

absl::Status CheckFp8Config(const nlohmann::json& config, absl::string_view file,
                            absl::Span<const std::string> allowed) {
  const ConfigReader root(config, file);
  QUIRE_ASSIGN_OR_RETURN(const ConfigReader quantization, root.GetObject(kKey));
  QUIRE_RETURN_IF_ERROR(CheckMethod(quantization, config.at(kKey)));
  for (const std::string& key : root.UnreadKeys()) {
    if (!absl::StartsWith(key, absl::StrCat(kKey, "."))) continue;
    if (std::find(allowed.begin(), allowed.end(), key) != allowed.end()) continue;
    return WithLine(
        WithLine(absl::UnimplementedError(absl::StrCat(
                     "config.json key ", key, " is not known; it may change the mathematics")),
                 "from", file),
        "fix", absl::StrCat("if it does not, pass --allow-config-key=", key));
  }
  return absl::OkStatus();
}

absl::StatusOr<ActivationRounding> ActivationRoundingOf(const nlohmann::json& config,
                                                        absl::string_view file) {
  const ConfigReader root(config, file);
  QUIRE_ASSIGN_OR_RETURN(const ConfigReader quantization, root.GetObject(kKey));
  QUIRE_ASSIGN_OR_RETURN(const std::string method, quantization.GetString("quant_method"));
  if (method == "compressed-tensors") {
    return WithKeepFix(RoundingOfGroups(quantization, config.at(kKey)));
  }
  ActivationRounding rounding;
  rounding.kind = Kind::kComputed;
  if (method == "fbgemm_fp8") {
    constexpr absl::string_view kMost = "activation_scale_ub";
    QUIRE_ASSIGN_OR_RETURN(rounding.most, quantization.GetFloatOr(kMost, 1200));
    if (rounding.most >= 1e-6 && rounding.most <= 1e6) return rounding;
    return WithKeepFix(quantization.Refuse(kMost, "is out of range", "1e-06 .. 1e+06"));
  }
  QUIRE_ASSIGN_OR_RETURN(const std::string scheme,
                         quantization.GetStringOr("activation_scheme", "dynamic"));
  if (scheme == "static") {
    rounding.kind = Kind::kGiven;
  } else if (quantization.Has("weight_block_size")) {
    rounding.columns = kScaleBlock;
  }
  return rounding;
}

absl::Status PairScales(TensorIndex* index) {
  absl::flat_hash_map<absl::string_view, const TensorInfo*> by_name;
  for (const TensorInfo& tensor : index->tensors) by_name[tensor.name] = &tensor;
  for (TensorInfo& tensor : index->tensors) {
    if (tensor.dtype != DType::kF8E4M3 || tensor.extents.size() != 2) continue;
    const TensorInfo* scales = nullptr;
    for (absl::string_view suffix : {"_scale_inv", "_scale"}) {
      const auto found = by_name.find(absl::StrCat(tensor.name, suffix));
      if (found != by_name.end()) scales = found->second;
    }
    if (scales == nullptr) continue;
    const int64_t rows = tensor.extents[0], columns = tensor.extents[1];
    const std::string& from = index->files[static_cast<size_t>(tensor.file)];
    if (columns % kScaleBlock != 0) {
      return WithLine(WithLine(absl::UnimplementedError(absl::StrCat(
                                   "tensor ", tensor.name, ": rows of ", columns, " 8-bit floats")),
                               "from", from),
                      "allowed", "a multiple of 128");
    }
    if (!scales->dtype.has_value() || !IsFloat(*scales->dtype)) {
      return WithLine(
          WithLine(absl::UnimplementedError(absl::StrCat("tensor ", scales->name,
                                                         ": scales of type ", scales->dtype_text)),
                   "from", from),
          "allowed", "F32, F16, BF16");
    }
    if (!WeightScalesOf(scales->extents, rows, columns).has_value()) {
      return WithLine(
          WithLine(absl::InvalidArgumentError(absl::StrCat("tensor ", scales->name, " has extents ",
                                                           ExtentsText(scales->extents))),
                   "from", from),
          "allowed",
          absl::StrCat("[1], [", rows, ", 1], [", (rows - 1) / kScaleBlock + 1, ", ",
                       columns / kScaleBlock, "], for ", ExtentsText(tensor.extents)));
    }
    tensor.dtype = DType::kF8E4M3_128;
    tensor.scale = scales->name;
  }
  return absl::OkStatus();
}

}  // namespace quire
