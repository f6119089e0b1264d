#include "codegen/cuda/tensor_core_model.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace quire {
namespace {

constexpr int kNoExponent = std::numeric_limits<int>::min();
// Places below the largest exponent that a sum has, and its digits.
constexpr int kKeptBits = 25, kDigits = 24;
constexpr int kE4m3KeptBits = 13, kE4m3Digits = 14;

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
constexpr Format kE4m3Format{3, 4};  // of finite numbers

Term Product(const Term& a, const Term& b) {
  Term product;
  product.significand = a.significand * b.significand;
  product.exponent = a.exponent + b.exponent;
  if (product.significand != 0) product.top = a.top + b.top;
  product.negative = a.negative != b.negative;
  return product;
}

// significand * 2^exponent cut to so many digits and to f32 toward zero, infinite from 2^128 on.
float Truncate(uint64_t significand, int exponent, bool negative, int digits) {
  const int width = 64 - std::countl_zero(significand);
  if (const int more = width - digits; more > 0) significand = significand >> more << more;
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

// The terms' sum; of none that is not zero, 0.
float SumOf(const Term* terms, int count, int kept_bits, int digits) {
  int top = kNoExponent;
  for (int i = 0; i < count; ++i) top = std::max(top, terms[i].top);
  if (top == kNoExponent) return 0;
  const int unit = top - kept_bits;
  int64_t sum = 0;  // in units of 2^unit; terms are below 2^(kept_bits + 2) each
  for (int i = 0; i < count; ++i) {
    if (terms[i].significand == 0) continue;
    const int shift = terms[i].exponent - unit;
    const int64_t aligned = shift >= 0    ? terms[i].significand << shift
                            : shift > -63 ? terms[i].significand >> -shift
                                          : 0;
    sum += terms[i].negative ? -aligned : aligned;
  }
  return Truncate(static_cast<uint64_t>(sum < 0 ? -sum : sum), unit, sum < 0, digits);
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
  return SumOf(terms, kTensorCoreStep + 1, kKeptBits, kDigits);
}

float TensorCoreE4m3Step(const uint8_t* a, const uint8_t* b, float c) {
  const uint32_t c_bits = std::bit_cast<uint32_t>(c);
  bool nan = kF32Format.IsNan(c_bits);
  Term terms[kE4m3Step + 1];
  for (int i = 0; i < kE4m3Step; ++i) {
    nan |= (a[i] & 0x7f) == 0x7f || (b[i] & 0x7f) == 0x7f;
    terms[i] = Product(kE4m3Format.Decode(a[i]), kE4m3Format.Decode(b[i]));
  }
  if (nan) return std::bit_cast<float>(0x7fffffffu);
  if (kF32Format.IsInf(c_bits)) return c;
  terms[kE4m3Step] = kF32Format.Decode(c_bits);
  return SumOf(terms, kE4m3Step + 1, kE4m3KeptBits, kE4m3Digits);
}

float TensorCoreChain(DType dtype, const uint16_t* a, const uint16_t* b, int64_t k, float c) {
  for (int64_t i = 0; i < k; i += kTensorCoreStep) c = TensorCoreStep(dtype, a + i, b + i, c);
  return c;
}

}  // namespace quire
