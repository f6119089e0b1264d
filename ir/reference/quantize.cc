// Scales and quotients are f32, as the op means them: what kernels round to 8 bits is then the same
// number, and not one on the other side of a tie.
#include <algorithm>
#include <cmath>

#include "ir/reference/kernels.h"

namespace quire::reference {
namespace {

// The greatest magnitude, of numbers.
float GreatestOf(const double* x, int64_t count) {
  float greatest = 0;
  for (int64_t i = 0; i < count; ++i) {
    greatest = std::max(greatest, static_cast<float>(std::fabs(x[i])));
  }
  return greatest;
}

}  // namespace

absl::Status Quantize(const Call& call) {
  const Tensor& x = call.in(0);
  const Tensor* given = call.optional(1);
  const int64_t width = x.last(), columns = call.op.Int(AttrKind::kColumns);
  const int64_t count = columns == 0 ? width : columns;
  const auto most = static_cast<float>(call.op.Float(AttrKind::kMost));
  for (int64_t begin = 0; begin < x.elements(); begin += count) {
    const double* in = x.values.data() + begin;
    double* out = call.out->values.data() + begin;
    float greatest = GreatestOf(in, count);
    if (most > 0) greatest = std::min(greatest, most);
    const bool is_zero = given == nullptr && greatest < 0x1p-100f;
    const float scale = given != nullptr ? static_cast<float>(given->values[0]) : greatest / 448;
    for (int64_t i = 0; i < count; ++i) {
      const float quotient = static_cast<float>(in[i]) / (is_zero ? 1 : scale);
      out[i] = (is_zero ? 0 : static_cast<double>(scale)) * RoundTo(DType::kF8E4M3, quotient);
    }
  }
  return absl::OkStatus();
}

}  // namespace quire::reference
