#include "codegen/cuda/linear_rows.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/substitute.h"

namespace quire {
namespace {

std::string Exactly(double value) { return absl::StrFormat("%.17g", value); }

// The op and its attributes.
absl::string_view OpText(LinearAct act) {
  switch (act) {
    case LinearAct::kGelu:
      return "gelu %a";
    case LinearAct::kGeluTanh:
      return "gelu %a {approximate=tanh}";
    case LinearAct::kGeluQuick:
      return "gelu %a {approximate=quick}";
    case LinearAct::kRelu:
      return "relu %a";
    case LinearAct::kTanh:
      return "tanh %a";
    case LinearAct::kSigmoid:
      return "sigmoid %a";
    case LinearAct::kSilu:
    case LinearAct::kNone:
      break;
  }
  return "silu %a";
}

// What appends the last columns of %y, of n; returns its first ones.
std::string AppendBody(const AppendSpec& append, int64_t n, absl::string_view dtype) {
  int64_t begin = n - append.columns();
  std::string text = absl::Substitute("  %q = slice %y {axis=1, begin=0, end=$0} : $1[T,$0]\n",
                                      begin > 0 ? begin : kCudaLeastReturned, dtype);
  for (int64_t i = 0; i < 2 * append.layers; ++i) {
    const int64_t dim = i % 2 == 0 ? append.d : append.dv, columns = append.heads * dim;
    absl::SubstituteAndAppend(&text,
                              "  %a$0 = slice %y {axis=1, begin=$1, end=$2} : $3[T,$4]\n"
                              "  %h$0 = reshape %a$0 : $3[T,$5,$6]\n",
                              i, begin, begin + columns, dtype, columns, append.heads, dim);
    absl::SubstituteAndAppend(&text, "  %c$0 = kv_append %h$0 {layer=$1, slot=$2} : $3[C,$4,$5]\n",
                              i, i / 2, i % 2 == 0 ? "k" : "v", dtype, append.heads, dim);
    begin += columns;
  }
  return text + "  return %q\n}\n";
}

}  // namespace

RowSpec CudaLinearHeadRows(const LinearSpec& spec) {
  const std::string rows = absl::StrCat("[T,", spec.k, "]");
  std::string parameters, body;
  if (spec.norm.has_value()) {
    const NormSpec& norm = *spec.norm;
    const bool is_rms = norm.kind == NormSpec::Kind::kRms;
    std::string operands, attributes = absl::StrCat("eps=", Exactly(norm.eps));
    for (const auto& [name, dtype] : {std::pair("w", norm.weight), std::pair("b", norm.bias)}) {
      if (!dtype.has_value()) continue;
      absl::StrAppend(&parameters, ", %", name, ": ", DTypeText(*dtype), "[", spec.k, "]");
      absl::StrAppend(&operands, ", %", name);
    }
    if (is_rms) absl::StrAppend(&attributes, ", weight_offset=", Exactly(norm.weight_offset));
    body = absl::Substitute("  %n = $0 %f$1 {$2} : f32$3\n  %y = cast %n : $4$3\n",
                            is_rms ? "rms_norm" : "layer_norm", operands, attributes, rows,
                            DTypeText(spec.x));
  }
  if (spec.quantize.has_value()) {
    const QuantizeSpec& quantize = *spec.quantize;
    if (quantize.has_scale) absl::StrAppend(&parameters, ", %s: f32[1]");
    if (spec.norm.has_value()) absl::StrAppend(&body, "  %g = cast %y : f32", rows, "\n");
    absl::SubstituteAndAppend(
        &body, "  %q = quantize $0$1 {columns=$2, most=$3} : f32$4\n  %z = cast %q : $5$4\n",
        spec.norm.has_value() ? "%g" : "%f", quantize.has_scale ? ", %s" : "", quantize.columns,
        Exactly(quantize.most), rows, DTypeText(spec.x));
  }
  return {absl::Substitute("func @row(%x: $0$1$2) {\n  %f = cast %x : f32$1\n$3  return $4\n}\n",
                           DTypeText(spec.x), rows, parameters, body,
                           spec.quantize.has_value() ? "%z" : "%y")};
}

RowSpec CudaLinearFinishRows(const LinearSpec& spec) {
  const std::string rows = absl::StrCat("[T,", spec.weight_rows(), "]");
  std::string text = absl::Substitute("func @row(%s: f32$0", rows);
  if (spec.bias) absl::StrAppend(&text, ", %b: f32[", spec.weight_rows(), "]");
  if (spec.residual) absl::SubstituteAndAppend(&text, ", %r: $0$1", DTypeText(spec.y), rows);
  absl::StrAppend(&text, ") {\n");
  if (spec.bias) absl::SubstituteAndAppend(&text, "  %c = add %s, %b : f32$0\n", rows);
  const absl::string_view sum = spec.bias ? "%c" : "%s";
  if (spec.residual) {
    absl::SubstituteAndAppend(&text,
                              "  %f = cast %r : f32$0\n"
                              "  %d = add $1, %f : f32$0\n",
                              rows, sum);
  }
  absl::SubstituteAndAppend(&text, "  %y = cast $0 : $1$2\n", spec.residual ? "%d" : sum,
                            DTypeText(spec.y), rows);
  if (!spec.append.has_value()) return {text + "  return %y\n}\n"};
  return {text + AppendBody(*spec.append, spec.n, DTypeText(spec.y)), spec.append->page_tokens};
}

RowSpec CudaLinearActRows(const LinearSpec& spec) {
  const std::string rows = absl::StrCat("[T,", spec.n, "]");
  std::string text =
      absl::Substitute("func @row(%x: $0[T,$1]) {\n  %$2 = cast %x : f32[T,$1]\n",
                       DTypeText(spec.y), spec.weight_rows(), spec.gated ? "f" : "a");
  if (spec.gated) {
    absl::SubstituteAndAppend(&text,
                              "  %a = slice %f {axis=1, begin=0, end=$0} : f32$2\n"
                              "  %b = slice %f {axis=1, begin=$0, end=$1} : f32$2\n",
                              spec.n, spec.weight_rows(), rows);
  }
  absl::SubstituteAndAppend(&text, "  %c = $0 : f32$1\n", OpText(spec.act), rows);
  if (spec.gated) absl::SubstituteAndAppend(&text, "  %d = mul %c, %b : f32$0\n", rows);
  absl::SubstituteAndAppend(&text, "  %y = cast $0 : $1$2\n  return %y\n}\n",
                            spec.gated ? "%d" : "%c", DTypeText(spec.y), rows);
  return {text};
}

}  // namespace quire
