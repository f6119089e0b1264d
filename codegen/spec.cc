#include "codegen/spec.h"

#include <cmath>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "codegen/rope.h"
#include "ir/op.h"
#include "ir/status.h"

namespace quire {
namespace {

std::string Number(double value) { return AttrText(DefOf(AttrKind::kScale), AttrValue(value)); }

// Reads "key=value" words, each key once; errors name the key.
class Fields {
 public:
  static absl::StatusOr<Fields> Split(absl::string_view text) {
    Fields fields;
    for (absl::string_view word : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
      const std::pair<absl::string_view, absl::string_view> field =
          absl::StrSplit(word, absl::MaxSplits('=', 1));
      if (!fields.values_.emplace(field.first, field.second).second) {
        return absl::InvalidArgumentError(
            absl::StrCat("kernel spec: ", field.first, " stands twice"));
      }
    }
    return fields;
  }

  absl::Status Int(absl::string_view key, int64_t low, int64_t high, int64_t* value) {
    QUIRE_ASSIGN_OR_RETURN(absl::string_view text, Take(key));
    if (!absl::SimpleAtoi(text, value) || *value < low || *value > high) {
      return Bad(key, text, absl::StrCat(low, " .. ", high));
    }
    return absl::OkStatus();
  }

  absl::Status Float(absl::string_view key, double low, double high, double* value) {
    QUIRE_ASSIGN_OR_RETURN(absl::string_view text, Take(key));
    if (!absl::SimpleAtod(text, value) || !(*value >= low && *value <= high)) {
      return Bad(key, text, absl::StrCat(Number(low), " .. ", Number(high)));
    }
    return absl::OkStatus();
  }

  absl::Status Bool(absl::string_view key, bool* value) {
    int64_t number = 0;
    QUIRE_RETURN_IF_ERROR(Int(key, 0, 1, &number));
    *value = number != 0;
    return absl::OkStatus();
  }

  absl::Status KvType(absl::string_view key, DType* value) {
    QUIRE_ASSIGN_OR_RETURN(absl::string_view text, Take(key));
    const std::optional<DType> dtype = ParseDType(text);
    if (!dtype.has_value() || !IsKvType(*dtype)) return Bad(key, text, "f32, f16, bf16, f8e4m3");
    *value = *dtype;
    return absl::OkStatus();
  }

  absl::Status Element(absl::string_view key, DType* value) {
    QUIRE_ASSIGN_OR_RETURN(absl::string_view text, Take(key));
    const std::optional<DType> dtype = ParseDType(text);
    if (!dtype.has_value() || *dtype == DType::kI32 || *dtype == DType::kF8E4M3)
      return Bad(key, text, "an element type of weights");
    *value = *dtype;
    return absl::OkStatus();
  }

  absl::Status FloatType(absl::string_view key, DType* value) {
    QUIRE_RETURN_IF_ERROR(Element(key, value));
    return IsFloat(*value) ? absl::OkStatus() : Bad(key, DTypeText(*value), "f32, f16, bf16");
  }

  bool Has(absl::string_view key) const { return values_.contains(key); }

  absl::StatusOr<absl::string_view> Take(absl::string_view key) {
    auto it = values_.find(key);
    if (it == values_.end()) {
      return absl::InvalidArgumentError(absl::StrCat("kernel spec: ", key, " is missing"));
    }
    const absl::string_view text = it->second;
    values_.erase(it);
    return text;
  }

  absl::Status Finish() const {
    if (values_.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("kernel spec: ", values_.begin()->first, " is not known"));
  }

  static absl::Status Bad(absl::string_view key, absl::string_view value,
                          absl::string_view allowed) {
    return absl::InvalidArgumentError(
        absl::StrCat("kernel spec: ", key, "=", value, " is not possible\n  allowed: ", allowed));
  }

 private:
  absl::flat_hash_map<absl::string_view, absl::string_view> values_;
};

constexpr int64_t kMaxHeads = 65536, kMaxHead = 512, kMaxPageTokens = 65536;

constexpr LinearAct kActs[] = {LinearAct::kNone,     LinearAct::kSilu,      LinearAct::kGelu,
                               LinearAct::kGeluTanh, LinearAct::kGeluQuick, LinearAct::kRelu,
                               LinearAct::kTanh,     LinearAct::kSigmoid};

std::string NormText(const NormSpec& norm) {
  auto type = [](const std::optional<DType>& dtype) {
    return dtype.has_value() ? DTypeText(*dtype) : "none";
  };
  return absl::StrCat(" norm=", norm.kind == NormSpec::Kind::kRms ? "rms" : "layer",
                      " eps=", Number(norm.eps), " offset=", Number(norm.weight_offset),
                      " norm_w=", type(norm.weight), " norm_b=", type(norm.bias));
}

absl::Status ParseParameterType(Fields& fields, absl::string_view key,
                                std::optional<DType>* dtype) {
  QUIRE_ASSIGN_OR_RETURN(absl::string_view text, fields.Take(key));
  if (text == "none") return absl::OkStatus();
  *dtype = ParseDType(text);
  return dtype->has_value() && IsFloat(**dtype) ? absl::OkStatus()
                                                : Fields::Bad(key, text, "none, f32, f16, bf16");
}

absl::Status ParseNorm(Fields& fields, std::optional<NormSpec>* parsed) {
  if (!fields.Has("norm")) return absl::OkStatus();
  NormSpec norm;
  QUIRE_ASSIGN_OR_RETURN(absl::string_view kind, fields.Take("norm"));
  if (kind != "rms" && kind != "layer") return Fields::Bad("norm", kind, "rms, layer");
  if (kind == "layer") norm.kind = NormSpec::Kind::kLayer;
  QUIRE_RETURN_IF_ERROR(fields.Float("eps", 0, 1, &norm.eps));
  QUIRE_RETURN_IF_ERROR(fields.Float("offset", -16, 16, &norm.weight_offset));
  QUIRE_RETURN_IF_ERROR(ParseParameterType(fields, "norm_w", &norm.weight));
  QUIRE_RETURN_IF_ERROR(ParseParameterType(fields, "norm_b", &norm.bias));
  const bool is_rms = norm.kind == NormSpec::Kind::kRms;
  if (norm.bias.has_value() && (is_rms || !norm.weight.has_value())) {
    return Fields::Bad("norm_b", DTypeText(*norm.bias), "none");
  }
  if (!is_rms && norm.weight_offset != 0) {
    return Fields::Bad("offset", Number(norm.weight_offset), "0");
  }
  *parsed = norm;
  return absl::OkStatus();
}

// "quantize=row", of so many columns "quantize=128", or "quantize=scale".
std::string QuantizeText(const LinearSpec& spec) {
  std::string text;
  if (spec.quantize.has_value()) {
    const QuantizeSpec& quantize = *spec.quantize;
    absl::StrAppend(&text, " quantize=",
                    quantize.has_scale      ? "scale"
                    : quantize.columns == 0 ? "row"
                                            : absl::StrCat(quantize.columns),
                    " most=", Number(quantize.most));
  }
  if (spec.row_scales) absl::StrAppend(&text, " row_scales=1");
  return text;
}

absl::Status ParseQuantize(Fields& fields, LinearSpec* spec) {
  if (fields.Has("quantize")) {
    QuantizeSpec quantize;
    QUIRE_ASSIGN_OR_RETURN(const absl::string_view of, fields.Take("quantize"));
    quantize.has_scale = of == "scale";
    if (!quantize.has_scale && of != "row" &&
        (!absl::SimpleAtoi(of, &quantize.columns) || quantize.columns < 1 ||
         spec->k % quantize.columns != 0)) {
      return Fields::Bad("quantize", of, "row, scale, or a divisor of k");
    }
    QUIRE_RETURN_IF_ERROR(fields.Float("most", 0, quantize.has_scale ? 0 : 1e6, &quantize.most));
    spec->quantize = quantize;
  }
  return fields.Has("row_scales") ? fields.Bool("row_scales", &spec->row_scales) : absl::OkStatus();
}

absl::Status ParseAct(Fields& fields, LinearSpec* spec) {
  if (!fields.Has("act")) return absl::OkStatus();
  QUIRE_ASSIGN_OR_RETURN(absl::string_view text, fields.Take("act"));
  std::string allowed;
  for (LinearAct act : kActs) {
    absl::StrAppend(&allowed, allowed.empty() ? "" : ", ", LinearActText(act));
    if (text == LinearActText(act)) spec->act = act;
  }
  if (text != LinearActText(spec->act)) return Fields::Bad("act", text, allowed);
  if (spec->act == LinearAct::kNone) return absl::OkStatus();
  if (spec->residual) return Fields::Bad("act", text, "none with residual=1");
  return fields.Has("gated") ? fields.Bool("gated", &spec->gated) : absl::OkStatus();
}

std::string AppendText(const LinearSpec& spec) {
  if (!spec.append.has_value()) return "";
  const AppendSpec& append = *spec.append;
  return absl::StrCat(" append=", append.layers, " heads=", append.heads, " d=", append.d,
                      " dv=", append.dv, " page=", append.page_tokens);
}

// Kernels count the elements of a layer's page in 31 bits.
absl::Status ParseAppend(Fields& fields, LinearSpec* spec) {
  if (!fields.Has("append")) return absl::OkStatus();
  AppendSpec append;
  QUIRE_RETURN_IF_ERROR(fields.Int("append", 1, kMaxHeads, &append.layers));
  QUIRE_RETURN_IF_ERROR(fields.Int("heads", 1, kMaxHeads, &append.heads));
  QUIRE_RETURN_IF_ERROR(fields.Int("d", 1, kMaxHead, &append.d));
  QUIRE_RETURN_IF_ERROR(fields.Int("dv", 1, kMaxHead, &append.dv));
  QUIRE_RETURN_IF_ERROR(fields.Int("page", 1, kMaxPageTokens, &append.page_tokens));
  const std::string layers = absl::StrCat(append.layers);
  if (append.d % 8 != 0 || append.dv % 8 != 0) {
    return Fields::Bad("append", layers, "d and dv that are multiples of 8");
  }
  if (append.columns() > spec->n || (spec->n - append.columns()) % 8 != 0) {
    return Fields::Bad("append", layers,
                       absl::StrCat("up to n=", spec->n, " columns, the others a multiple of 8"));
  }
  if (append.columns() / append.layers * append.page_tokens > INT32_MAX) {
    return Fields::Bad("page", absl::StrCat(append.page_tokens),
                       "fewer than 2^31 elements in a page of a layer");
  }
  if (spec->residual || spec->act != LinearAct::kNone) {
    return Fields::Bad("append", layers, "none with residual=1 or act");
  }
  spec->append = append;
  return absl::OkStatus();
}

std::string RopeText(const LinearSpec& spec) {
  if (!spec.rope.has_value()) return "";
  return absl::StrCat(" rope=", spec.rope->attributes,
                      spec.rope->factors.has_value()
                          ? absl::StrCat(" factors=", DTypeText(*spec.rope->factors))
                          : "");
}

absl::Status ParseRope(Fields& fields, LinearSpec* spec) {
  if (!fields.Has("rope")) return absl::OkStatus();
  RopeSpec rope;
  QUIRE_ASSIGN_OR_RETURN(absl::string_view text, fields.Take("rope"));
  rope.attributes = std::string(text);
  if (fields.Has("factors")) {
    DType factors = DType::kF32;
    QUIRE_RETURN_IF_ERROR(fields.FloatType("factors", &factors));
    rope.factors = factors;
  }
  if (!spec->append.has_value() || spec->append->layers != 1) {
    return Fields::Bad("rope", text, "with append=1");
  }
  const std::string allowed = AllowedRope(rope.attributes, spec->append->d, spec->y_columns());
  if (!allowed.empty()) return Fields::Bad("rope", text, allowed);
  spec->rope = std::move(rope);
  return absl::OkStatus();
}

constexpr int64_t kMaxBiasDistances = int64_t{1} << 24;
constexpr int64_t kMaxBuckets = 65536, kMaxDistance = 1 << 20;

absl::StatusOr<KernelSpec> ParseLinear(absl::string_view text) {
  QUIRE_ASSIGN_OR_RETURN(Fields fields, Fields::Split(text));
  LinearSpec spec;
  QUIRE_RETURN_IF_ERROR(fields.Int("n", 1, kMaxExtent, &spec.n));
  QUIRE_RETURN_IF_ERROR(fields.Int("k", 1, kMaxExtent, &spec.k));
  QUIRE_RETURN_IF_ERROR(fields.Element("w", &spec.weight));
  QUIRE_RETURN_IF_ERROR(fields.FloatType("x", &spec.x));
  QUIRE_RETURN_IF_ERROR(fields.FloatType("y", &spec.y));
  QUIRE_RETURN_IF_ERROR(fields.Bool("bias", &spec.bias));
  QUIRE_RETURN_IF_ERROR(fields.Bool("residual", &spec.residual));
  QUIRE_ASSIGN_OR_RETURN(absl::string_view layout, fields.Take("layout"));
  QUIRE_ASSIGN_OR_RETURN(spec.layout, ParseLayout(layout));
  QUIRE_RETURN_IF_ERROR(ParseNorm(fields, &spec.norm));
  QUIRE_RETURN_IF_ERROR(ParseQuantize(fields, &spec));
  QUIRE_RETURN_IF_ERROR(ParseAct(fields, &spec));
  QUIRE_RETURN_IF_ERROR(ParseAppend(fields, &spec));
  QUIRE_RETURN_IF_ERROR(ParseRope(fields, &spec));
  QUIRE_RETURN_IF_ERROR(fields.Finish());
  if (spec.k % InfoOf(spec.weight).block_elements != 0) {
    return Fields::Bad("k", absl::StrCat(spec.k),
                       absl::StrCat("a multiple of ", InfoOf(spec.weight).block_elements));
  }
  return KernelSpec(spec);
}

std::string BucketsText(const AttentionSpec& spec) {
  if (spec.buckets == 0) return "";
  return absl::StrCat(" buckets=", spec.buckets, " distance=", spec.max_distance,
                      " direction=", spec.both_directions ? "both" : "back");
}

absl::Status ParseBuckets(Fields& fields, AttentionSpec* spec) {
  if (!fields.Has("buckets")) return absl::OkStatus();
  QUIRE_RETURN_IF_ERROR(fields.Int("buckets", 2, kMaxBuckets, &spec->buckets));
  QUIRE_RETURN_IF_ERROR(fields.Int("distance", 2, kMaxDistance, &spec->max_distance));
  QUIRE_ASSIGN_OR_RETURN(absl::string_view direction, fields.Take("direction"));
  if (direction != "both" && direction != "back") {
    return Fields::Bad("direction", direction, "both, back");
  }
  spec->both_directions = direction == "both";
  const int64_t step = spec->both_directions ? 4 : 2;
  if (spec->buckets % step != 0 || spec->max_distance <= spec->buckets / step) {
    return Fields::Bad("buckets", absl::StrCat(spec->buckets),
                       absl::StrCat("a multiple of ", step, ", less than ", step, " distances"));
  }
  return absl::OkStatus();
}

absl::StatusOr<KernelSpec> ParseAttention(absl::string_view text) {
  QUIRE_ASSIGN_OR_RETURN(Fields fields, Fields::Split(text));
  AttentionSpec spec;
  QUIRE_RETURN_IF_ERROR(fields.Int("hq", 1, kMaxHeads, &spec.hq));
  QUIRE_RETURN_IF_ERROR(fields.Int("hkv", 1, kMaxHeads, &spec.hkv));
  QUIRE_RETURN_IF_ERROR(fields.Int("d", 1, kMaxHead, &spec.d));
  QUIRE_RETURN_IF_ERROR(fields.Int("dv", 1, kMaxHead, &spec.dv));
  QUIRE_RETURN_IF_ERROR(fields.KvType("kv", &spec.kv));
  QUIRE_RETURN_IF_ERROR(fields.Int("page", 1, kMaxPageTokens, &spec.page_tokens));
  QUIRE_ASSIGN_OR_RETURN(absl::string_view mask, fields.Take("mask"));
  if (mask != "causal" && mask != "none") return Fields::Bad("mask", mask, "causal, none");
  spec.causal = mask == "causal";
  QUIRE_RETURN_IF_ERROR(fields.Int("window", 0, kMaxExtent, &spec.window));
  QUIRE_RETURN_IF_ERROR(fields.Float("scale", 1e-6, 1e3, &spec.scale));
  QUIRE_RETURN_IF_ERROR(fields.Float("cap", 0, 1e6, &spec.cap));
  QUIRE_RETURN_IF_ERROR(fields.Float("alibi", 0, 64, &spec.alibi_max));
  if (fields.Has("x")) QUIRE_RETURN_IF_ERROR(fields.FloatType("x", &spec.x));
  if (fields.Has("k_scale")) QUIRE_RETURN_IF_ERROR(fields.Bool("k_scale", &spec.k_scale));
  if (fields.Has("v_scale")) QUIRE_RETURN_IF_ERROR(fields.Bool("v_scale", &spec.v_scale));
  if (fields.Has("bias")) {
    QUIRE_RETURN_IF_ERROR(fields.Int("bias", 1, kMaxBiasDistances, &spec.bias_distances));
  }
  if (fields.Has("sinks")) QUIRE_RETURN_IF_ERROR(fields.Bool("sinks", &spec.sinks));
  if (fields.Has("tree")) QUIRE_RETURN_IF_ERROR(fields.Int("tree", 1, 64, &spec.tree_words));
  QUIRE_RETURN_IF_ERROR(ParseBuckets(fields, &spec));
  QUIRE_RETURN_IF_ERROR(fields.Finish());
  if (spec.tree_words > 0 && !spec.causal) return Fields::Bad("tree", "1", "mask=causal");
  if (spec.hq % spec.hkv != 0) {
    return Fields::Bad("hq", absl::StrCat(spec.hq), absl::StrCat("a multiple of hkv=", spec.hkv));
  }
  for (auto [key, size] : {std::pair("d", spec.d), std::pair("dv", spec.dv)}) {
    if (size % 8 != 0) return Fields::Bad(key, absl::StrCat(size), "a multiple of 8, 8 .. 512");
  }
  return KernelSpec(spec);
}

// "func @row(...) {...}", behind "page=16 " where it has pages.
absl::StatusOr<KernelSpec> ParseRow(absl::string_view text) {
  RowSpec spec;
  const absl::string_view fields_text = text.substr(0, text.find("func "));
  QUIRE_ASSIGN_OR_RETURN(Fields fields, Fields::Split(fields_text));
  if (fields.Has("page")) {
    QUIRE_RETURN_IF_ERROR(fields.Int("page", 1, kMaxPageTokens, &spec.page_tokens));
  }
  QUIRE_RETURN_IF_ERROR(fields.Finish());
  spec.func = std::string(text.substr(fields_text.size()));
  return KernelSpec(std::move(spec));
}

}  // namespace

absl::string_view LayoutText(WeightLayout layout) {
  return layout == WeightLayout::kRows ? "rows" : "rows16";
}

absl::StatusOr<WeightLayout> ParseLayout(absl::string_view text) {
  for (WeightLayout layout : {WeightLayout::kRows, WeightLayout::kRows16}) {
    if (text == LayoutText(layout)) return layout;
  }
  return Fields::Bad("layout", text, "rows, rows16");
}

absl::string_view LinearActText(LinearAct act) {
  switch (act) {
    case LinearAct::kNone:
      return "none";
    case LinearAct::kSilu:
      return "silu";
    case LinearAct::kGelu:
      return "gelu";
    case LinearAct::kGeluTanh:
      return "gelu_tanh";
    case LinearAct::kGeluQuick:
      return "gelu_quick";
    case LinearAct::kRelu:
      return "relu";
    case LinearAct::kTanh:
      return "tanh";
    case LinearAct::kSigmoid:
      return "sigmoid";
  }
  return "";
}

std::string SpecText(const KernelSpec& spec) {
  if (const auto* linear = std::get_if<LinearSpec>(&spec)) {
    std::string act;
    if (linear->act != LinearAct::kNone) {
      act = absl::StrCat(" act=", LinearActText(linear->act), linear->gated ? " gated=1" : "");
    }
    return absl::StrCat("linear n=", linear->n, " k=", linear->k, " w=", DTypeText(linear->weight),
                        " x=", DTypeText(linear->x), " y=", DTypeText(linear->y),
                        " bias=", linear->bias ? 1 : 0, " residual=", linear->residual ? 1 : 0,
                        " layout=", LayoutText(linear->layout),
                        linear->norm.has_value() ? NormText(*linear->norm) : "",
                        QuantizeText(*linear), act, AppendText(*linear), RopeText(*linear));
  }
  if (const auto* attention = std::get_if<AttentionSpec>(&spec)) {
    std::string rest;
    if (attention->x != DType::kF32) absl::StrAppend(&rest, " x=", DTypeText(attention->x));
    if (attention->k_scale) absl::StrAppend(&rest, " k_scale=1");
    if (attention->v_scale) absl::StrAppend(&rest, " v_scale=1");
    if (attention->bias_distances > 0) absl::StrAppend(&rest, " bias=", attention->bias_distances);
    if (attention->sinks) absl::StrAppend(&rest, " sinks=1");
    if (attention->tree_words > 0) absl::StrAppend(&rest, " tree=", attention->tree_words);
    return absl::StrCat(
        "attention hq=", attention->hq, " hkv=", attention->hkv, " d=", attention->d,
        " dv=", attention->dv, " kv=", DTypeText(attention->kv), " page=", attention->page_tokens,
        " mask=", attention->causal ? "causal" : "none", " window=", attention->window,
        " scale=", Number(attention->scale), " cap=", Number(attention->cap),
        " alibi=", Number(attention->alibi_max), rest, BucketsText(*attention));
  }
  const auto& row = std::get<RowSpec>(spec);
  return absl::StrCat(
      "row ", row.page_tokens == 0 ? "" : absl::StrCat("page=", row.page_tokens, " "), row.func);
}

std::string SpecTitle(absl::string_view text) {
  const size_t func = text.find("func ");
  if (func == absl::string_view::npos) return std::string(text);
  std::vector<absl::string_view> ops;
  for (absl::string_view line : absl::StrSplit(text.substr(func), '\n')) {
    const std::vector<absl::string_view> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    if (words.size() > 2 && words[1] == "=") ops.push_back(words[2]);
  }
  return absl::StrCat("row: ", absl::StrJoin(ops, ", "));
}

absl::StatusOr<KernelSpec> ParseSpec(absl::string_view text) {
  if (absl::ConsumePrefix(&text, "linear ")) return ParseLinear(text);
  if (absl::ConsumePrefix(&text, "attention ")) return ParseAttention(text);
  if (absl::ConsumePrefix(&text, "row ")) return ParseRow(text);
  return absl::InvalidArgumentError(absl::StrCat("kernel spec: unknown kind: ", text.substr(0, 40),
                                                 "\n  allowed: linear, attention, row"));
}

}  // namespace quire
