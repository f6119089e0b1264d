// Evaluation of ops at a place.
#include <cmath>
#include <cstdio>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "codegen/cuda/row_emit.h"
#include "codegen/row_func.h"
#include "codegen/row_ops.h"

namespace quire {
namespace {

// Fused groups are far smaller; the texts of a function that reads values again and again at other
// places grow exponentially.
constexpr int kMostEvaluations = 2000;
constexpr int kMostFixedVectors = 16;  // that wait in registers

absl::string_view FunctionOf(const Op& op) {
  switch (op.kind) {
    case OpKind::kAdd:
      return "Add";
    case OpKind::kMul:
      return "Mul";
    case OpKind::kSilu:
      return "Silu";
    case OpKind::kRelu:
      return "Relu";
    case OpKind::kTanh:
      return "Tanh";
    case OpKind::kSigmoid:
      return "Sigmoid";
    case OpKind::kGelu: {
      const std::string& form = op.Text(AttrKind::kApproximate);
      return form == "tanh" ? "GeluTanh" : form == "quick" ? "GeluQuick" : "Gelu";
    }
    default:
      return "";
  }
}

}  // namespace

std::string FloatText(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", static_cast<double>(static_cast<float>(value)));
  const bool is_whole = std::string(text).find_first_of(".e") == std::string::npos;
  return absl::StrCat(text, is_whole ? ".0f" : "f");
}

std::string CudaRowEmitter::Flat(const Place& place) const {
  if (place.segment == "0") return place.offset;
  return absl::StrCat("(", place.segment, " * ", place.length, " + ", place.offset, ")");
}

CudaRowEmitter::Place CudaRowEmitter::Rebase(const Place& place, int64_t length, int64_t count) {
  if (place.length == length) return place;
  const bool fixed = place.IsFixed();
  const std::string flat = Flat(place);
  if (length == count) return {length, "0", flat, fixed, 0, ""};
  return {length,
          Define("int", absl::StrCat(flat, " / ", length), fixed),
          Define("int", absl::StrCat(flat, " % ", length), fixed),
          fixed,
          0,
          ""};
}

std::string CudaRowEmitter::Evaluate(const Op& op, const Place& place) {
  const std::string key =
      absl::StrCat(op.name, " ", place.length, " ", place.segment, " ", place.offset);
  for (const Scope& scope : scopes_) {
    auto known = scope.values.find(key);
    if (known != scope.values.end()) return known->second;
  }
  if (++evaluations_ > kMostEvaluations && status_.ok()) {
    status_ = absl::UnimplementedError("cuda: row kernel: the group reads its values too often");
  }
  if (!status_.ok()) return "none";
  const size_t depth = scopes_.size();
  std::string value;
  if (plan_.staged.count(&op) != 0 && staging_ != &op) {
    value = Define("Vec", absl::StrCat("Load<", plan_.vector, ">(staged + ", plan_.staged.at(&op),
                                       " + ", Flat(place), ")"));
  } else {
    value = EvaluateNew(op, place);
  }
  scopes_[depth - 1].values[key] = value;
  return value;
}

std::string CudaRowEmitter::EvaluateNew(const Op& op, const Place& place) {
  if (IsPointwise(op.kind)) return EvaluatePointwise(op, place);
  switch (op.kind) {
    case OpKind::kArg:
      return EvaluateArgument(op, place);
    case OpKind::kReshape:
      return Evaluate(*op.operand(0), place);
    case OpKind::kSlice: {
      const Op& x = *op.operand(0);
      const int64_t axis = op.Int(AttrKind::kAxis), inner = ElementsFrom(op, axis + 1);
      const Place own = Rebase(place, ElementsFrom(op, axis), ElementsOf(op));
      const int64_t begin = op.Int(AttrKind::kBegin) * inner;
      return Evaluate(
          x, {ElementsFrom(x, axis), own.segment,
              begin == 0 ? own.offset : absl::StrCat("(", own.offset, " + ", begin, ")"), own.fixed,
              0, ""});
    }
    case OpKind::kExpandHeads: {
      const Op& x = *op.operand(0);
      const int64_t heads = x.type.extents[1].value(), width = ElementsFrom(op, 2);
      const Place own = Rebase(place, width, ElementsOf(op));
      const bool interleave = op.Text(AttrKind::kOrder) == "interleave";
      const std::string head = interleave
                                   ? absl::StrCat(own.segment, " / ", op.Int(AttrKind::kGroup))
                                   : absl::StrCat(own.segment, " % ", heads);
      return Evaluate(x, {width, Define("int", head, own.IsFixed()), own.offset, own.fixed, 0, ""});
    }
    case OpKind::kConcat:
      return EvaluateConcat(op, place);
    case OpKind::kTake:
      return Define("Vec",
                    absl::StrCat("Load<", plan_.vector, ">(at_", op.name, " + ", Flat(place), ")"));
    case OpKind::kEmbed:
      return EvaluateEmbed(op, place);
    case OpKind::kRmsNorm:
    case OpKind::kLayerNorm:
      return EvaluateNorm(op, place);
    case OpKind::kQuantize:
      return EvaluateQuantize(op, place);
    case OpKind::kRope:
      return EvaluateRope(op, place);
    default:
      status_ = absl::InternalError(absl::StrCat("cuda: row kernel: ", op.def().mnemonic));
      return "none";
  }
}

// A vector of what no kernel of the step writes, in registers before the wait.
std::string CudaRowEmitter::DefineFixed(const std::string& value, bool fixed) {
  return Define("Vec", value, fixed && ++fixed_vectors_ <= kMostFixedVectors);
}

std::string CudaRowEmitter::EvaluateArgument(const Op& arg, const Place& place) {
  const size_t number = argument_of_.at(&arg);
  if (!IsFloat(arg.type.dtype)) {
    status_ = absl::UnimplementedError(absl::StrCat(
        "cuda: row kernel: %", arg.name, ": reads the elements of ", arg.type.ToString()));
    return "none";
  }
  if (HasRowExtent(arg.type)) {
    return Define("Vec",
                  absl::StrCat("Load<", plan_.vector, ">(x", number, " + ", Flat(place), ")"));
  }
  if (ElementsOf(arg) == 1) {
    return DefineFixed(absl::StrCat("LoadOne<", plan_.vector, ">(a", number, ")"), true);
  }
  // A right side without the leading extents is repeated over them.
  const int64_t count = ElementsOf(arg);
  std::string at = place.offset;
  bool fixed = place.fixed;
  if (place.length != count) {
    fixed = place.IsFixed();
    at = absl::StrCat(Flat(place), " % ", count);
  }
  return DefineFixed(absl::StrCat("Load<", plan_.vector, ">(a", number, " + ", at, ")"), fixed);
}

std::string CudaRowEmitter::RoundedTo(const Op& op, const std::string& value, bool fixed) {
  if (op.type.dtype == DType::kF32) return value;
  const char* element = op.type.dtype == DType::kF16 ? "F16" : "Bf16";
  return Define("Vec", absl::StrCat("Rounded<", element, ">(", value, ")"), fixed);
}

std::string CudaRowEmitter::EvaluatePointwise(const Op& op, const Place& place) {
  std::vector<std::string> operands;
  for (const Op* operand : op.operands) operands.push_back(Evaluate(*operand, place));
  const absl::string_view function = FunctionOf(op);
  std::string value = operands[0];
  if (!function.empty()) {
    value = Define("Vec", absl::StrCat(function, "(", absl::StrJoin(operands, ", "), ")"));
  } else if (op.Is(OpKind::kScale)) {
    value = Define(
        "Vec", absl::StrCat("Scale(", value, ", ", FloatText(op.Float(AttrKind::kFactor)), ")"));
  } else if (op.Is(OpKind::kSoftcap) && op.Float(AttrKind::kCap) != 0) {
    const double cap = op.Float(AttrKind::kCap);
    value = Define("Vec", absl::StrCat("Softcap(", value, ", ", FloatText(cap), ", ",
                                       FloatText(1 / cap), ")"));
  } else if (op.Is(OpKind::kCast) && op.type.dtype == op.operand(0)->type.dtype) {
    return value;
  }
  return RoundedTo(op, value, false);
}

// Centred, of an rms_norm: as it is.
std::string CudaRowEmitter::Centred(const Op& norm, const Place& place) {
  const std::string x = Evaluate(*norm.operand(0), place);
  if (!norm.Is(OpKind::kLayerNorm)) return x;
  return Define("Vec", absl::StrCat("Centred(", x, ", ", StatisticsOf(norm).mean, ")"));
}

CudaRowEmitter::Statistics CudaRowEmitter::StatisticsOf(const Op& norm) {
  for (const Scope& scope : scopes_) {
    auto known = scope.statistics.find(&norm);
    if (known != scope.statistics.end()) return known->second;
  }
  if (status_.ok()) {
    status_ = absl::InternalError(absl::StrCat("cuda: row kernel: %", norm.name,
                                               " is read before it is known\n", spec_.func));
  }
  return {};
}

std::string CudaRowEmitter::EvaluateNorm(const Op& op, const Place& place) {
  const int64_t length = op.type.extents.back().value();
  const Place own = Rebase(place, length, ElementsOf(op));
  const Place column = {length, "0", own.offset, own.fixed, 0, ""};
  std::string value = Define(
      "Vec", absl::StrCat("Scale(", Centred(op, place), ", ", StatisticsOf(op).inverse, ")"));
  if (op.num_operands() > 1) {
    std::string weight = Evaluate(*op.operand(1), column);
    const double offset = op.Is(OpKind::kRmsNorm) ? op.Float(AttrKind::kWeightOffset) : 0;
    if (offset != 0) {
      weight = Define("Vec", absl::StrCat("AddEach(", weight, ", ", FloatText(offset), ")"));
    }
    value = op.num_operands() > 2
                ? Define("Vec", absl::StrCat("MulAdd(", value, ", ", weight, ", ",
                                             Evaluate(*op.operand(2), column), ")"))
                : Define("Vec", absl::StrCat("Mul(", value, ", ", weight, ")"));
  }
  return RoundedTo(op, value, false);
}

std::string CudaRowEmitter::EvaluateQuantize(const Op& op, const Place& place) {
  const std::string scale =
      op.num_operands() > 1
          ? Define("float", absl::StrCat("LoadGlobal(a", argument_of_.at(op.operand(1)), ")"), true)
          : StatisticsOf(op).inverse;
  const std::string x = Evaluate(*op.operand(0), place);
  return RoundedTo(op, Define("Vec", absl::StrCat("Quantized(", x, ", ", scale, ")")), false);
}

std::string CudaRowEmitter::EvaluateConcat(const Op& op, const Place& place) {
  const int64_t axis = op.Int(AttrKind::kAxis);
  const Place own = Rebase(place, ElementsFrom(op, axis), ElementsOf(op));
  const std::string result = NewName("v");
  Line(absl::StrCat("Vec ", result, ";"));
  int64_t begin = 0;
  for (size_t i = 0; i < op.operands.size(); ++i) {
    const Op& part = *op.operands[i];
    const int64_t block = ElementsFrom(part, axis);
    const bool is_last = i + 1 == op.operands.size();
    Line(absl::StrCat(i == 0 ? "" : "} else ",
                      is_last ? "" : absl::StrCat("if (", own.offset, " < ", begin + block, ") "),
                      "{"));
    Scoped([&] {
      const Place at = {block, own.segment, absl::StrCat("(", own.offset, " - ", begin, ")"),
                        false, 0,           ""};
      Line(absl::StrCat(result, " = ", Evaluate(part, at), ";"));
    });
    begin += block;
  }
  Line("}");
  return result;
}

std::string CudaRowEmitter::EvaluateEmbed(const Op& op, const Place& place) {
  const DType dtype = op.operand(0)->type.dtype;
  // Tables and ids are there before the step.
  const bool fixed = place.IsFixed() && ++fixed_vectors_ <= kMostFixedVectors;
  std::string load;
  if (IsBlockType(dtype)) {
    load = absl::StrCat("LoadBlocks<", plan_.vector, ", ", absl::AsciiStrToUpper(DTypeText(dtype)),
                        ">(at_", op.name, ", ", Flat(place), ")");
  } else {
    load = absl::StrCat("Load<", plan_.vector, ">(at_", op.name, " + ", Flat(place), ")");
  }
  return RoundedTo(op, Define("Vec", load, fixed), fixed);
}

}  // namespace quire
