#include "models/weights_map.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "ir/status.h"

namespace quire {
namespace {

// llama.cpp's names, the same for every family.
constexpr TensorName kGgufNames[] = {
    {TensorRole::kEmbed, "token_embd"},
    {TensorRole::kPositions, "position_embd"},
    {TensorRole::kEmbedNorm, "token_embd_norm"},
    {TensorRole::kAttnNorm, "blk.{}.attn_norm"},
    {TensorRole::kQ, "blk.{}.attn_q"},
    {TensorRole::kK, "blk.{}.attn_k"},
    {TensorRole::kV, "blk.{}.attn_v"},
    {TensorRole::kQkv, "blk.{}.attn_qkv"},
    {TensorRole::kQNorm, "blk.{}.attn_q_norm"},
    {TensorRole::kKNorm, "blk.{}.attn_k_norm"},
    {TensorRole::kAttnOut, "blk.{}.attn_output"},
    {TensorRole::kPostAttnNorm, "blk.{}.post_attention_norm"},
    {TensorRole::kMlpNorm, "blk.{}.ffn_norm"},
    {TensorRole::kGate, "blk.{}.ffn_gate"},
    {TensorRole::kUp, "blk.{}.ffn_up"},
    {TensorRole::kDown, "blk.{}.ffn_down"},
    {TensorRole::kPostMlpNorm, "blk.{}.post_ffw_norm"},
    {TensorRole::kFinalNorm, "output_norm"},
    {TensorRole::kHead, "output"},
    {TensorRole::kRopeFactors, "rope_freqs"},
};

constexpr absl::string_view kFloatTypes = "f32, f16, bf16";

// `more` goes on behind the type.
absl::Status WrongElements(const Checkpoint& checkpoint, const TensorInfo& tensor,
                           absl::string_view more, absl::string_view allowed) {
  return WithLine(
      WithLine(absl::UnimplementedError(absl::StrCat("tensor ", tensor.name, " has elements of ",
                                                     DTypeText(*tensor.dtype), more)),
               "from", checkpoint.path()),
      "allowed", allowed);
}

absl::string_view NameOf(absl::Span<const TensorName> names, TensorRole role) {
  for (const TensorName& name : names) {
    if (name.role == role) return name.name;
  }
  return "";
}

Extents ToExtents(absl::Span<const int64_t> extents) {
  return Extents(extents.begin(), extents.end());
}

// "hidden_size=32, intermediate_size=48".
std::string KeysText(absl::Span<const Dimension* const> from) {
  return absl::StrJoin(from, ", ", [](std::string* out, const Dimension* dimension) {
    absl::StrAppend(out, dimension->key, "=", dimension->value);
  });
}

}  // namespace

std::vector<std::string> WeightsMap::Names(const WeightRequest& request) const {
  const bool gguf = checkpoint_.format() == CheckpointFormat::kGguf;
  const absl::string_view pattern = NameOf(gguf              ? kGgufNames
                                           : request.encoder ? family_.encoder_names
                                                             : family_.names,
                                           request.role);
  if (pattern.empty()) return {};
  const std::string name =
      absl::StrCat(absl::StrReplaceAll(pattern, {{"{}", absl::StrCat(request.layer)}}),
                   request.part.empty() ? "" : ".", request.part);
  if (gguf || request.role == TensorRole::kHead) return {name};
  return {absl::StrCat(family_.prefix, name), name};
}

const TensorInfo* WeightsMap::Find(const WeightRequest& request) const {
  for (const std::string& name : Names(request)) {
    if (const TensorInfo* tensor = checkpoint_.Find(name)) return tensor;
  }
  return nullptr;
}

absl::Status WeightsMap::Check(const WeightRequest& request, const TensorInfo* tensor) const {
  const std::string wanted = ExtentsText(request.extents);
  const std::string from =
      absl::StrCat(config_file_, " ", KeysText(request.from), "; ", checkpoint_.path());
  if (tensor == nullptr) {
    const std::string name = Names(request).front();
    std::vector<absl::string_view> names;
    for (const TensorInfo& other : checkpoint_.tensors()) names.push_back(other.name);
    const std::string near = Nearest(name, names);
    const absl::Status missing = WithLine(
        absl::InvalidArgumentError(absl::StrCat("tensor ", name, " ", wanted, " is missing")),
        "from", from);
    if (near.empty()) return missing;
    return WithLine(missing, "fix", absl::StrCat("the nearest name is ", near));
  }
  if (tensor->extents != request.extents) {
    return WithLine(
        WithLine(absl::InvalidArgumentError(absl::StrCat("tensor ", tensor->name, " has extents ",
                                                         ExtentsText(tensor->extents))),
                 "from", from),
        "allowed", wanted);
  }
  // Names the supported types if it has none of them.
  QUIRE_RETURN_IF_ERROR(checkpoint_.Require(tensor->name).status());
  const bool vector = request.extents.size() == 1;
  const bool lacks_scales = *tensor->dtype == DType::kF8E4M3;
  if (*tensor->dtype == DType::kI32 || lacks_scales || (vector && !IsFloat(*tensor->dtype))) {
    return WrongElements(checkpoint_, *tensor, lacks_scales ? " and no scales" : "",
                         vector ? kFloatTypes : "float and block types");
  }
  return absl::OkStatus();
}

Op* WeightsMap::Get(Builder& builder, absl::string_view value, const WeightRequest& request) {
  const TensorInfo* tensor = Find(request);
  if (status_.ok()) status_ = Check(request, tensor);
  if (!status_.ok()) {
    // What was asked for, so that the definition goes on to its end, where the error is seen.
    return builder.Named(value).Weight("", Type{DType::kF32, ToExtents(request.extents)});
  }
  Op*& op = made_[tensor->name];
  if (op != nullptr) return op;
  op = builder.Named(value).Weight(tensor->name, Type{*tensor->dtype, ToExtents(request.extents)});
  const std::optional<uint64_t> elements = ElementCount(request.extents);
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  if (elements.has_value() && *elements <= static_cast<uint64_t>(kMost - parameter_count_)) {
    parameter_count_ += static_cast<int64_t>(*elements);
  }
  return op;
}

Op* WeightsMap::Rounded(Builder& builder, Op* x, const Op* w, const WeightRequest& request) {
  using Kind = ActivationRounding::Kind;
  if (rounding_.kind == Kind::kNone || w->type.dtype != DType::kF8E4M3_128) return x;
  const std::string name = absl::StrCat(x->name, ".8bit");
  if (rounding_.kind == Kind::kComputed) {
    Op*& made = rounded_[x];
    if (made != nullptr) return made;
    Builder::AttrList attrs;
    if (rounding_.columns != 0) attrs.emplace_back(AttrKind::kColumns, rounding_.columns);
    if (rounding_.most != 0) attrs.emplace_back(AttrKind::kMost, rounding_.most);
    return made = builder.Named(name).Make(OpKind::kQuantize, {x}, std::move(attrs));
  }
  WeightRequest beside = request;
  beside.part = "";
  std::vector<std::string> names;
  for (const std::string& of : Names(beside)) {
    for (const char* scale : {".input_scale", ".activation_scale"}) {
      names.push_back(absl::StrCat(of, scale));
    }
  }
  Op* scale = Scale(builder, absl::StrCat(w->name, ".x_scale"), names, 1);
  if (scale == nullptr) {
    if (status_.ok()) {
      status_ = WithLine(
          WithLine(absl::InvalidArgumentError(absl::StrCat("tensor ", names[0], " is missing")),
                   "from",
                   absl::StrCat(config_file_, " quantization_config; ", checkpoint_.path())),
          "fix", "--activations=keep leaves activations as they are");
    }
    return x;
  }
  return builder.Named(name).Make(OpKind::kQuantize, {x, scale});
}

Op* WeightsMap::KvScale(Builder& builder, absl::string_view value, const WeightRequest& projection,
                        char slot, int64_t heads) {
  if (checkpoint_.format() == CheckpointFormat::kGguf) return nullptr;
  WeightRequest request = projection;
  request.part = "";
  std::vector<std::string> names;
  for (const std::string& name : Names(request)) {
    const std::string own = absl::StrCat(std::string(1, slot), "_scale");
    names.push_back(absl::StrCat(name.substr(0, name.rfind('.') + 1), own));
    names.push_back(absl::StrCat(name, ".", own));
    names.push_back(absl::StrCat(name, ".output_scale"));
  }
  return Scale(builder, value, names, heads);
}

Op* WeightsMap::Scale(Builder& builder, absl::string_view value,
                      absl::Span<const std::string> names, int64_t heads) {
  const TensorInfo* tensor = nullptr;
  for (const std::string& name : names) {
    if (tensor == nullptr) tensor = checkpoint_.Find(name);
  }
  if (tensor == nullptr || !status_.ok()) return nullptr;
  const bool is_one = tensor->extents.empty() || tensor->extents == std::vector<int64_t>{1};
  if (!is_one && tensor->extents != std::vector<int64_t>{heads}) {
    status_ = WithLine(
        WithLine(absl::InvalidArgumentError(absl::StrCat("tensor ", tensor->name, " has extents ",
                                                         ExtentsText(tensor->extents))),
                 "from", checkpoint_.path()),
        "allowed",
        heads == 1 ? "one number"
                   : absl::StrCat("one number, or [", heads, "], one for each head"));
    return nullptr;
  }
  status_ = checkpoint_.Require(tensor->name).status();
  if (status_.ok() && !IsFloat(*tensor->dtype)) {
    status_ = WrongElements(checkpoint_, *tensor, "", kFloatTypes);
  }
  if (!status_.ok()) return nullptr;
  Op*& op = made_[tensor->name];
  if (op == nullptr) {
    op =
        builder.Named(value).Weight(tensor->name, Type{*tensor->dtype, ToExtents(tensor->extents)});
  }
  return op;
}

}  // namespace quire
