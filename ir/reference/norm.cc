#include <cmath>

#include "ir/reference/kernels.h"

namespace quire::reference {

absl::Status RmsNorm(const Call& call) {
  const Tensor& x = call.in(0);
  const Tensor* w = call.optional(1);
  const double offset = call.op.Float(AttrKind::kWeightOffset);
  const int64_t width = x.last();
  for (int64_t r = 0; r < x.elements() / width; ++r) {
    const double* in = x.row(r);
    double* out = call.out->row(r);
    double squares = 0;
    for (int64_t i = 0; i < width; ++i) squares += in[i] * in[i];
    const double root =
        std::sqrt(squares / static_cast<double>(width) + call.op.Float(AttrKind::kEps));
    for (int64_t i = 0; i < width; ++i) {
      out[i] = in[i] / root * (w == nullptr ? 1 : offset + w->values[static_cast<size_t>(i)]);
    }
  }
  return absl::OkStatus();
}

absl::Status LayerNorm(const Call& call) {
  const Tensor& x = call.in(0);
  const Tensor* w = call.optional(1);
  const Tensor* bias = call.optional(2);
  const int64_t width = x.last();
  for (int64_t r = 0; r < x.elements() / width; ++r) {
    const double* in = x.row(r);
    double* out = call.out->row(r);
    double mean = 0;
    for (int64_t i = 0; i < width; ++i) mean += in[i];
    mean /= static_cast<double>(width);
    // The biased variance, over width elements.
    double variance = 0;
    for (int64_t i = 0; i < width; ++i) variance += (in[i] - mean) * (in[i] - mean);
    variance /= static_cast<double>(width);
    const double root = std::sqrt(variance + call.op.Float(AttrKind::kEps));
    for (int64_t i = 0; i < width; ++i) {
      const auto at = static_cast<size_t>(i);
      out[i] = (in[i] - mean) / root * (w == nullptr ? 1 : w->values[at]) +
               (bias == nullptr ? 0 : bias->values[at]);
    }
  }
  return absl::OkStatus();
}

}  // namespace quire::reference
