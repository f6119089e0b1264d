// Rotary position embedding: pair i of a head is rotated by position * frequency i.
//
// Frequencies, with d rotated dims, base theta, factor s, original length L0:
//   none     theta^(-2i/d)
//   linear   theta^(-2i/d) / s
//   dynamic  the base grows with the length L = position + 1 once L > L0:
//            theta * (s L / L0 - (s - 1))^(d / (d - 2)). L is a row's own length, so that a row's
//            angle depends on nothing but its own position; implementations that take the length of
//            the whole prompt instead give the same row other angles when the prompt is longer, and
//            agree with this one on the last row of every prompt.
//   llama3   by wavelength 2 pi / f: below L0 / high_factor unchanged, above L0 / low_factor
//            divided by s, between them the two blended by where L0 / wavelength lies.
//   yarn     Peng et al. 2023 (arXiv 2309.00071), section 3.2: unchanged for pairs that turn more
//            than beta_fast times in L0 tokens, divided by s for those that turn fewer than
//            beta_slow times, a linear ramp over the pair's index between.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>
#include <vector>

#include "ir/reference/kernels.h"

namespace quire::reference {
namespace {

double BlendByWavelength(double frequency, const Op& op) {
  const double factor = op.Float(AttrKind::kScaleFactor);
  const double low = op.Float(AttrKind::kLowFactor), high = op.Float(AttrKind::kHighFactor);
  const auto original = static_cast<double>(op.Int(AttrKind::kOriginalTokens));
  const double turns = original * frequency / (2 * std::numbers::pi);
  if (turns > high) return frequency;
  if (turns < low) return frequency / factor;
  const double smooth = (turns - low) / (high - low);
  return (1 - smooth) * frequency / factor + smooth * frequency;
}

// The ramp of yarn over pair indices: 0 keeps the frequency, 1 divides it by the factor.
class YarnRamp {
 public:
  YarnRamp(const Op& op, double dims) {
    const double theta = op.Float(AttrKind::kTheta);
    const auto original = static_cast<double>(op.Int(AttrKind::kOriginalTokens));
    // The (fractional) pair that turns `turns` times in the original length.
    auto pair_of = [&](double turns) {
      return dims * std::log(original / (turns * 2 * std::numbers::pi)) / (2 * std::log(theta));
    };
    begin_ = pair_of(op.Float(AttrKind::kBetaFast));
    end_ = pair_of(op.Float(AttrKind::kBetaSlow));
    if (op.Int(AttrKind::kTruncate) != 0) {
      begin_ = std::floor(begin_);
      end_ = std::ceil(end_);
    }
    begin_ = std::max(begin_, 0.0);
    end_ = std::min(end_, dims - 1);
    // Published definitions widen an empty ramp by this much.
    if (begin_ == end_) end_ += 0.001;
  }

  double At(int64_t pair) const {
    return std::clamp((static_cast<double>(pair) - begin_) / (end_ - begin_), 0.0, 1.0);
  }

 private:
  double begin_, end_;
};

// Frequency of every pair for a row at `position`; only dynamic scaling looks at the position.
std::vector<double> Frequencies(const Call& call, int64_t dims, double position) {
  const Op& op = call.op;
  const std::string& scaling = op.Text(AttrKind::kScaling);
  const double factor = op.Float(AttrKind::kScaleFactor);
  const auto width = static_cast<double>(dims);
  double theta = op.Float(AttrKind::kTheta);
  if (scaling == "dynamic") {
    const auto original = static_cast<double>(op.Int(AttrKind::kOriginalTokens));
    const double length = std::max(position + 1, original);
    theta *= std::pow(factor * length / original - (factor - 1), width / (width - 2));
  }
  std::vector<double> frequencies(static_cast<size_t>(dims / 2));
  for (int64_t i = 0; i < dims / 2; ++i) {
    double frequency = std::pow(theta, -2 * static_cast<double>(i) / width);
    if (scaling == "linear") frequency /= factor;
    if (scaling == "llama3") frequency = BlendByWavelength(frequency, op);
    if (scaling == "yarn") {
      const double share = YarnRamp(op, width).At(i);
      frequency = frequency / factor * share + frequency * (1 - share);
    }
    const Tensor* factors = call.optional(2);
    if (factors != nullptr) frequency /= factors->values[static_cast<size_t>(i)];
    frequencies[static_cast<size_t>(i)] = frequency;
  }
  return frequencies;
}

}  // namespace

absl::Status Rope(const Call& call) {
  const Tensor& x = call.in(0);
  const Tensor& positions = call.in(1);
  const int64_t heads = x.extent(1);
  int64_t dims = call.op.Int(AttrKind::kDims);
  if (dims == 0) dims = x.last();
  // half pairs elements i and i + dims/2, interleave elements 2i and 2i + 1.
  const bool half = call.op.Text(AttrKind::kStyle) == "half";
  const double magnitude = call.op.Float(AttrKind::kMagnitude);
  call.out->values = x.values;
  for (int64_t t = 0; t < x.extent(0); ++t) {
    const double position = positions.values[static_cast<size_t>(t)];
    const std::vector<double> frequencies = Frequencies(call, dims, position);
    for (int64_t h = 0; h < heads; ++h) {
      const double* in = x.row(t * heads + h);
      double* out = call.out->row(t * heads + h);
      for (int64_t i = 0; i < dims / 2; ++i) {
        const double angle = position * frequencies[static_cast<size_t>(i)];
        const double cosine = magnitude * std::cos(angle), sine = magnitude * std::sin(angle);
        const int64_t first = half ? i : 2 * i;
        const int64_t second = half ? i + dims / 2 : 2 * i + 1;
        out[first] = in[first] * cosine - in[second] * sine;
        out[second] = in[second] * cosine + in[first] * sine;
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace quire::reference
