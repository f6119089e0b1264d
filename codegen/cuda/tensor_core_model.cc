#include "codegen/cuda/tensor_core_model.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace quire {
namespace {

constexpr int kNoExponent = std::numeric_limits<int>::min();
constexpr int kKeptBits = 25;  // below the largest exponent

// A finite number as +-significand * 2^exponent; `top` is the exponent that alignment goes by.
struct Term {
  int64_t significand = 0;
  int exponent = 0;
  int top = kNoExponent;
  bool negative = false;
};

// A binary format: sign, exponent field, fraction.
struct Format {
  int fraction_bits, exponent_bits;

  uint32_t ExponentMask() const { return (1u << exponent_bits) - 1; }
  uint32_t Fraction(uint32_t bits) const { return bits & ((1u << fraction_bits) - 1); }
  uint32_t Exponent(uint32_t bits) const { return bits >> fraction_bits & ExponentMask(); }
  bool Negative(uint32_t bits) const { return bits >> (fraction_bits + exponent_bits) & 1; }
  bool IsNan(uint32_t bits) const {
    return Exponent(bits) == ExponentMask() && Fraction(bits) != 0;
  }
  bool IsInf(uint32_t bits) const {
    return Exponent(bits) == ExponentMask() && Fraction(bits) == 0;
  }
  bool IsZero(uint32_t bits) const { return Exponent(bits) == 0 && Fraction(bits) == 0; }

  // REQUIRES: finite.
  Term Decode(uint32_t bits) const {
    const int bias = static_cast<int>(ExponentMask() >> 1);
    const uint32_t field = Exponent(bits);
    Term term;
    term.significand = Fraction(bits) | (field > 0 ? 1u << fraction_bits : 0);
    const int top = std::max(static_cast<int>(field), 1) - bias;
    term.exponent = top - fraction_bits;
    if (term.significand != 0) term.top = top;
    term.negative = Negative(bits);
    return term;
  }
};

constexpr Format kF32Format{23, 8};
constexpr Format kBf16Format{7, 8};
constexpr Format kF16Format{10, 5};

Term Product(const Term& a, const Term& b) {
  Term product;
  product.significand = a.significand * b.significand;
  product.exponent = a.exponent + b.exponent;
  if (product.significand != 0) product.top = a.top + b.top;
  product.negative = a.negative != b.negative;
  return product;
}

// significand * 2^exponent cut to f32 toward zero, infinite from 2^128 on.
float Truncate(uint64_t significand, int exponent, bool negative) {
  const int width = 64 - std::countl_zero(significand);
  // f32 keeps 24 bits, and none below 2^-149.
  const int drop = std::max(width - 24, -149 - exponent);
  if (drop >= 64) return 0;
  significand = drop >= 0 ? significand >> drop : significand << -drop;
  if (significand == 0) return 0;
  const int field = exponent + drop + 150;  // of a number with all 24 bits
  uint32_t bits;
  if (field >= 255) {
    bits = 0x7f800000;
  } else if (significand >> 23 == 0) {
    bits = static_cast<uint32_t>(significand);  // subnormal
  } else {
    bits = static_cast<uint32_t>(field) << 23 | (static_cast<uint32_t>(significand) & 0x7fffff);
  }
  return std::bit_cast<float>(bits | (negative ? 0x80000000u : 0));
}

}  // namespace

float TensorCoreStep(DType dtype, const uint16_t* a, const uint16_t* b, float c) {
  const Format& format = dtype == DType::kF16 ? kF16Format : kBf16Format;
  const uint32_t c_bits = std::bit_cast<uint32_t>(c);
  bool nan = kF32Format.IsNan(c_bits);
  bool infinite[2] = {};  // plus, minus
  if (kF32Format.IsInf(c_bits)) infinite[kF32Format.Negative(c_bits)] = true;
  for (int i = 0; i < kTensorCoreStep; ++i) {
    if (format.IsNan(a[i]) || format.IsNan(b[i])) {
      nan = true;
    } else if (format.IsInf(a[i]) || format.IsInf(b[i])) {
      if (format.IsZero(a[i]) || format.IsZero(b[i])) nan = true;
      infinite[format.Negative(a[i]) != format.Negative(b[i])] = true;
    }
  }
  if (nan || (infinite[0] && infinite[1])) return std::bit_cast<float>(0x7fffffffu);
  if (infinite[0] || infinite[1]) {
    const float infinity = std::numeric_limits<float>::infinity();
    return infinite[1] ? -infinity : infinity;
  }

  Term terms[kTensorCoreStep + 1];
  for (int i = 0; i < kTensorCoreStep; ++i) {
    terms[i] = Product(format.Decode(a[i]), format.Decode(b[i]));
  }
  terms[kTensorCoreStep] = kF32Format.Decode(c_bits);
  int top = kNoExponent;
  for (const Term& term : terms) top = std::max(top, term.top);
  if (top == kNoExponent) return 0;

  const int unit = top - kKeptBits;
  int64_t sum = 0;  // in units of 2^unit; 17 terms below 2^27 each
  for (const Term& term : terms) {
    if (term.significand == 0) continue;
    const int shift = term.exponent - unit;
    const int64_t aligned = shift >= 0    ? term.significand << shift
                            : shift > -63 ? term.significand >> -shift
                                          : 0;
    sum += term.negative ? -aligned : aligned;
  }
  return Truncate(static_cast<uint64_t>(sum < 0 ? -sum : sum), unit, sum < 0);
}

float TensorCoreChain(DType dtype, const uint16_t* a, const uint16_t* b, int64_t k, float c) {
  for (int64_t i = 0; i < k; i += kTensorCoreStep) c = TensorCoreStep(dtype, a + i, b + i, c);
  return c;
}

}  // namespace quire
