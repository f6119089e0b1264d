// Rotary embedding. Angles are position * frequency in double precision, so that cosines and sines
// are good to 1.5e-7 at any position; a lane computes those of its pairs once for all its heads,
// and before the wait, where its places in a head are fixed.
#include <algorithm>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "codegen/cuda/row_emit.h"
#include "codegen/rope.h"
#include "codegen/row_func.h"

namespace quire {
namespace {

constexpr int kWarp = 32;

// The i32 argument that a rope's positions are, or null.
const Op* PositionsOf(const Op& rope) {
  const Op* op = rope.operand(1);
  while (op->Is(OpKind::kReshape)) op = op->operand(0);
  return op->Is(OpKind::kArg) ? op : nullptr;
}

}  // namespace

std::string DoubleText(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.17g", value);
  const bool is_whole = std::string(text).find_first_of(".e") == std::string::npos;
  return absl::StrCat(text, is_whole ? ".0" : "");
}

// A table of the kernel's text, found again by its numbers.
std::string CudaRowEmitter::Table(const std::vector<double>& numbers) {
  std::vector<std::string> texts;
  for (double number : numbers) texts.push_back(DoubleText(number));
  const std::string text = absl::StrJoin(texts, ", ");
  std::string& name = scopes_.front().texts[absl::StrCat("table ", text)];
  if (name.empty()) {
    name = NewName("kTable");
    absl::StrAppend(&declarations_, "__device__ const double ", name, "[] = {", text, "};\n");
  }
  return name;
}

// Radians per position of `count` pairs from `pair` on, for this position.
std::string CudaRowEmitter::FrequenciesAt(const Op& op, const std::string& pair, int64_t dims,
                                          int count, const std::string& position) {
  const std::string load = absl::StrCat("Frequencies<", count, ">(");
  std::string frequencies = absl::StrCat(load, Table(RopeFrequencies(op, dims)), " + ", pair, ")");
  if (op.Text(AttrKind::kScaling) == "dynamic") {
    const std::string growth = Define(
        "double",
        absl::StrCat("LogGrowth(", position, ", ", DoubleText(op.Float(AttrKind::kScaleFactor)),
                     ", ", DoubleText(static_cast<double>(op.Int(AttrKind::kOriginalTokens))), ")"),
        true);
    frequencies = absl::StrCat("Shrink(", frequencies, ", ", load, Table(RopeGrowthExponents(dims)),
                               " + ", pair, "), ", growth, ")");
  }
  if (op.num_operands() > 2) {
    const Op& factors = *op.operand(2);
    if (!factors.Is(OpKind::kArg)) {
      status_ = absl::UnimplementedError(
          absl::StrCat("cuda: row kernel: %", op.name, ": rope: factors that are no argument's"));
      return "none";
    }
    frequencies = absl::StrCat("Divide(", frequencies, ", Load<", count, ">(a",
                               argument_of_.at(&factors), " + ", pair, "))");
  }
  return frequencies;
}

// Cosines and sines of `vector` pairs from `pair` on, which `place` has; ropes that turn alike
// share them, and lanes that have the same pairs share the work.
std::string CudaRowEmitter::TurnsAt(const Op& op, const std::string& pair, int64_t dims, int vector,
                                    const Place& place) {
  const Op* positions = PositionsOf(op);
  if (positions == nullptr) {
    status_ = absl::UnimplementedError(
        absl::StrCat("cuda: row kernel: %", op.name, ": rope: positions that are no argument's"));
    return "none";
  }
  const std::string position =
      Define("int", absl::StrCat("LoadGlobal(a", argument_of_.at(positions), " + row)"), true);
  const auto turns_of = [&](const std::string& first, int count) {
    return absl::StrCat("TurnsOf(", position, ", ", FrequenciesAt(op, first, dims, count, position),
                        ", ", FloatText(op.Float(AttrKind::kMagnitude)), ")");
  };
  const std::string type = absl::StrCat("Turns<", vector, ">");
  if (!place.fixed || place.lanes == kWarp || vector == 1) {
    return Define(type, turns_of(pair, vector), place.fixed);
  }
  const int own = std::max(1, vector * place.lanes / kWarp);
  const std::string sharing = absl::StrCat(vector, ", ", place.lanes);
  const std::string first =
      Define("int", absl::StrCat(pair, " + Sharing<", sharing, ">::First()"), true);
  return Define(
      type,
      absl::StrCat("Gather<", sharing, ">(",
                   Define(absl::StrCat("Turns<", own, ">"), turns_of(first, own), true), ")"),
      true);
}

std::string CudaRowEmitter::EvaluateRope(const Op& op, const Place& place) {
  const Op& x = *op.operand(0);
  const int64_t width = op.type.extents.back().value();
  const int64_t dims = op.Int(AttrKind::kDims) == 0 ? width : op.Int(AttrKind::kDims);
  const bool is_half = op.Text(AttrKind::kStyle) == "half";
  const Place own = Rebase(place, width, ElementsOf(op));
  const int vector = plan_.vector;
  const std::string value = Evaluate(x, own);
  const auto partner_at = [&](const std::string& offset) {
    Place partner = own;
    partner.offset = offset;
    partner.half = 0;
    return Evaluate(x, partner);
  };
  std::string turned;
  if (is_half && own.half != 0 && dims == width) {
    // Both halves of a pair are the lane's.
    const std::string other =
        own.half == 1 ? Define("int", absl::StrCat(own.pair, " + ", width / 2), own.fixed)
                      : own.pair;
    turned = Define("Vec", absl::StrCat("Turn(", value, ", ", partner_at(other), ", ",
                                        TurnsAt(op, own.pair, dims, vector, own), ", ",
                                        own.half == 1 ? "true" : "false", ")"));
  } else if (is_half || vector == 1) {
    // The partner is `distance` away; elements past dims look at the last pair, in vain.
    const int64_t distance = is_half ? dims / 2 : 1;
    const std::string inside =
        dims == width
            ? own.offset
            : Define("int",
                     absl::StrCat(own.offset, " < ", dims, " ? ", own.offset, " : ", dims - vector),
                     own.fixed);
    const std::string is_first = Define(
        "bool", is_half ? absl::StrCat(inside, " < ", distance) : absl::StrCat(inside, " % 2 == 0"),
        own.fixed);
    const std::string other = Define(
        "int",
        absl::StrCat(is_first, " ? ", inside, " + ", distance, " : ", inside, " - ", distance),
        own.fixed);
    const std::string pair =
        is_half ? Define("int", absl::StrCat(is_first, " ? ", inside, " : ", other), own.fixed)
                : Define("int", absl::StrCat(inside, " / 2"), own.fixed);
    turned = Define("Vec", absl::StrCat("Turn(", value, ", ", partner_at(other), ", ",
                                        TurnsAt(op, pair, dims, vector, own), ", ", is_first, ")"));
  } else {
    const std::string inside = dims == width ? own.offset
                                             : absl::StrCat("(", own.offset, " < ", dims, " ? ",
                                                            own.offset, " : ", dims - vector, ")");
    const std::string pair = Define("int", absl::StrCat(inside, " / 2"), own.fixed);
    turned = Define("Vec", absl::StrCat("TurnNeighbours(", value, ", ",
                                        TurnsAt(op, pair, dims, vector / 2, own), ")"));
  }
  if (dims != width) {
    turned = Define(
        "Vec", absl::StrCat("Select(", own.offset, " < ", dims, ", ", turned, ", ", value, ")"));
  }
  return RoundedTo(op, turned, false);
}

}  // namespace quire
