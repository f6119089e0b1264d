#include <algorithm>
#include <cmath>
#include <numbers>

#include "ir/reference/kernels.h"

namespace quire::reference {
namespace {

template <typename F>
absl::Status Map(const Call& call, F f) {
  const std::vector<double>& x = call.in(0).values;
  for (size_t i = 0; i < x.size(); ++i) call.out->values[i] = f(x[i]);
  return absl::OkStatus();
}

// b has the trailing extents of a, so in row-major order it simply recurs.
template <typename F>
absl::Status Combine(const Call& call, F f) {
  const std::vector<double>& a = call.in(0).values;
  const std::vector<double>& b = call.in(1).values;
  for (size_t i = 0; i < a.size(); ++i) call.out->values[i] = f(a[i], b[i % b.size()]);
  return absl::OkStatus();
}

double Logistic(double x) { return 1 / (1 + std::exp(-x)); }

}  // namespace

double CapSoftly(double x, double cap) { return cap == 0 ? x : cap * std::tanh(x / cap); }

absl::Status Add(const Call& call) {
  return Combine(call, [](double a, double b) { return a + b; });
}

absl::Status Mul(const Call& call) {
  return Combine(call, [](double a, double b) { return a * b; });
}

absl::Status Scale(const Call& call) {
  const double factor = call.op.Float(AttrKind::kFactor);
  return Map(call, [factor](double x) { return x * factor; });
}

absl::Status Softcap(const Call& call) {
  const double cap = call.op.Float(AttrKind::kCap);
  return Map(call, [cap](double x) { return CapSoftly(x, cap); });
}

absl::Status Silu(const Call& call) {
  return Map(call, [](double x) { return x / (1 + std::exp(-x)); });
}

absl::Status Gelu(const Call& call) {
  const std::string& approximate = call.op.Text(AttrKind::kApproximate);
  if (approximate == "tanh") {
    // Hendrycks and Gimpel 2016: sqrt(2/pi) and 0.044715.
    constexpr double kRate = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;
    return Map(call, [](double x) {
      return 0.5 * x * (1 + std::tanh(kRate * (x + 0.044715 * x * x * x)));
    });
  }
  if (approximate == "quick") return Map(call, [](double x) { return x * Logistic(1.702 * x); });
  return Map(call, [](double x) { return 0.5 * x * std::erfc(-x / std::numbers::sqrt2); });
}

absl::Status Relu(const Call& call) {
  return Map(call, [](double x) { return std::max(x, 0.0); });
}

absl::Status Tanh(const Call& call) {
  return Map(call, [](double x) { return std::tanh(x); });
}

absl::Status Sigmoid(const Call& call) { return Map(call, Logistic); }

// The interpreter rounds every result to its type, which is all that a cast does.
absl::Status Cast(const Call& call) {
  return Map(call, [](double x) { return x; });
}

}  // namespace quire::reference
