#include "codegen/rope.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "ir/status.h"
#include "ir/text.h"

namespace quire {
namespace {

constexpr double kTurn = 6.283185307179586;

// llama3: long waves are divided by the factor, short ones kept, those between blended.
double Llama3(double frequency, const Op& op) {
  const double factor = op.Float(AttrKind::kScaleFactor);
  const double low = op.Float(AttrKind::kLowFactor), high = op.Float(AttrKind::kHighFactor);
  const double waves = static_cast<double>(op.Int(AttrKind::kOriginalTokens)) * frequency / kTurn;
  if (waves > high) return frequency;
  if (waves < low) return frequency / factor;
  const double kept = (waves - low) / (high - low);
  return frequency * (kept + (1 - kept) / factor);
}

// yarn: a ramp over the pair's number from kept to divided.
double Yarn(double frequency, int64_t pair, int64_t dims, const Op& op) {
  const double tokens = static_cast<double>(op.Int(AttrKind::kOriginalTokens));
  const auto pair_with_turns = [&](double turns) {
    return static_cast<double>(dims) / 2 * std::log(tokens / (turns * kTurn)) /
           std::log(op.Float(AttrKind::kTheta));
  };
  double first = pair_with_turns(op.Float(AttrKind::kBetaFast));
  double last = pair_with_turns(op.Float(AttrKind::kBetaSlow));
  if (op.Int(AttrKind::kTruncate) != 0) {
    first = std::floor(first);
    last = std::ceil(last);
  }
  first = std::max(first, 0.0);
  last = std::min(last, static_cast<double>(dims - 1));
  if (first == last) last += 0.001;
  const double divided = std::clamp((static_cast<double>(pair) - first) / (last - first), 0.0, 1.0);
  return frequency * (1 - divided + divided / op.Float(AttrKind::kScaleFactor));
}

}  // namespace

std::vector<double> RopeFrequencies(const Op& rope, int64_t dims) {
  const std::string& scaling = rope.Text(AttrKind::kScaling);
  std::vector<double> frequencies;
  for (int64_t pair = 0; pair < dims / 2; ++pair) {
    double frequency = std::pow(rope.Float(AttrKind::kTheta),
                                -2.0 * static_cast<double>(pair) / static_cast<double>(dims));
    if (scaling == "linear") frequency /= rope.Float(AttrKind::kScaleFactor);
    if (scaling == "llama3") frequency = Llama3(frequency, rope);
    if (scaling == "yarn") frequency = Yarn(frequency, pair, dims, rope);
    frequencies.push_back(frequency);
  }
  return frequencies;
}

std::vector<double> RopeGrowthExponents(int64_t dims) {
  std::vector<double> exponents;
  for (int64_t pair = 0; pair < dims / 2; ++pair) {
    exponents.push_back(2.0 * static_cast<double>(pair) / static_cast<double>(dims - 2));
  }
  return exponents;
}

std::string RopeAttributes(const Op& rope) {
  const std::string text = Print(rope);
  const size_t begin = text.find('{') + 1;
  return absl::StrReplaceAll(text.substr(begin, text.find('}') - begin), {{" ", ""}});
}

absl::StatusOr<RopeOp> ParseRopeOp(absl::string_view attributes, int64_t d) {
  const std::string type = absl::StrCat("f32[T,1,", d, "]");
  RopeOp rope;
  QUIRE_ASSIGN_OR_RETURN(
      rope.module,
      Parse(absl::StrCat("func @rope(%x: ", type, ", %pos: i32[T]) {\n", "  %y = rope %x, %pos {",
                         absl::StrJoin(absl::StrSplit(attributes, ','), ", "), "} : ", type,
                         "\n  return %y\n}\n")));
  const Func& func = *rope.module.funcs[0];
  if (rope.module.funcs.size() != 1 || func.ops().size() != 1) {
    return absl::InvalidArgumentError(absl::StrCat(attributes, ": not the attributes of a rope"));
  }
  rope.op = func.ops()[0].get();
  return rope;
}

std::string AllowedRope(absl::string_view attributes, int64_t d, int64_t columns) {
  const absl::StatusOr<RopeOp> parsed = ParseRopeOp(attributes, d);
  if (!parsed.ok() || RopeAttributes(*parsed->op) != attributes) {
    return "the attributes of a rope, as its text has them, by commas";
  }
  const int64_t dims = parsed->op->Int(AttrKind::kDims);
  if (dims != 0 && dims != d) return absl::StrCat("whole heads of d=", d);
  const bool is_half = parsed->op->Text(AttrKind::kStyle) == "half";
  if ((!is_half || d % 16 == 0) && columns % d == 0) return "";
  return absl::StrCat(is_half ? "d that is a multiple of 16, " : "",
                      "columns before K that are heads of d=", d);
}

}  // namespace quire
