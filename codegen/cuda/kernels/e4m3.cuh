// Numbers of f8e4m3 (ir/dtype.def), and what they are as 16-bit elements: the same numbers, NaN as
// NaN. From sm_89 on instructions convert; before, bits do.
#ifndef QUIRE_E4M3_CUH_
#define QUIRE_E4M3_CUH_

#include "prelude.cuh"

struct E4m3 {
  uint8_t bits;
};

#if __CUDA_ARCH__ >= 890

// Two numbers in the low 16 bits of `word`, the lower byte first.
template <typename T>
DEVICE uint32_t WidenPair(uint32_t word);
template <>
DEVICE uint32_t WidenPair<F16>(uint32_t word) {
  uint32_t pair;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"(static_cast<uint16_t>(word)));
  return pair;
}
template <>
DEVICE uint32_t WidenPair<Bf16>(uint32_t word) {
  const uint32_t pair = WidenPair<F16>(word);
  return Pack<Bf16>(ToFloat(F16{static_cast<uint16_t>(pair)}),
                    ToFloat(F16{static_cast<uint16_t>(pair >> 16)}));
}
// Of four numbers of a word the first two, and the others.
template <typename T>
DEVICE void WidenHalves(uint32_t word, uint32_t& low, uint32_t& high) {
  low = WidenPair<T>(word);
  high = WidenPair<T>(word >> 16);
}
// Of four numbers of a word the first and the third, and the others.
template <typename T>
DEVICE void WidenInTurn(uint32_t word, uint32_t& even, uint32_t& odd) {
  WidenHalves<T>(PermuteBytes(word, 0, 0x3120), even, odd);
}

// Four f32 in a word, the first in its lowest byte: rounded to nearest even, at most the largest.
DEVICE uint32_t PackFours(float a, float b, float c, float d) {
  uint16_t low, high;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(low) : "f"(b), "f"(a));
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(high) : "f"(d), "f"(c));
  return low | static_cast<uint32_t>(high) << 16;
}

#else

// As an element whose exponent is kBias less it has the same digits, subnormal or not.
template <typename T>
struct E4m3Form;
template <>
struct E4m3Form<Bf16> {
  static constexpr int kShift = 4;
  static constexpr uint32_t kFactor = 0x7b807b80u;  // 2^120, twice
};
template <>
struct E4m3Form<F16> {
  static constexpr int kShift = 1;
  static constexpr uint32_t kFactor = 0x5c005c00u;  // 2^8, twice
};
// The numbers in bytes 1 and 3 of `word`.
template <typename T>
DEVICE uint32_t WidenUpper(uint32_t word) {
  const uint32_t magnitudes = word & 0x7f007f00u;
  const uint32_t none = (magnitudes + 0x01000100u) & 0x80008000u;  // of NaN alone
  const uint32_t digits = magnitudes >> E4m3Form<T>::kShift | (none - (none >> 8));
  return MulPairs<T>((word & 0x80008000u) | digits, E4m3Form<T>::kFactor);
}
template <typename T>
DEVICE void WidenInTurn(uint32_t word, uint32_t& even, uint32_t& odd) {
  even = WidenUpper<T>(word << 8);
  odd = WidenUpper<T>(word);
}
template <typename T>
DEVICE void WidenHalves(uint32_t word, uint32_t& low, uint32_t& high) {
  WidenInTurn<T>(PermuteBytes(word, 0, 0x3120), low, high);
}

DEVICE uint32_t E4m3Bits(float x) {
  const uint32_t sign = Bits(x) >> 24 & 0x80u, magnitude = Bits(x) & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return 0x7f;
  if (magnitude >= 0x43e00000u) return sign | 0x7eu;  // 448 and more
  if (magnitude < 0x3c800000u) {
    // Subnormal: adding 2^14 rounds at the last digit.
    return sign | (Bits(Add(FromBits(magnitude), 16384.0f)) - 0x46800000u);
  }
  return sign | (magnitude - 0x3c000000u + 0x7ffffu + (magnitude >> 20 & 1u)) >> 20;
}
DEVICE uint32_t PackFours(float a, float b, float c, float d) {
  return E4m3Bits(a) | E4m3Bits(b) << 8 | E4m3Bits(c) << 16 | E4m3Bits(d) << 24;
}

#endif

// The scale of numbers by the greatest magnitude among them, with most > 0 at most that; 0: they are
// zeros, and what is divided by 1 instead.
DEVICE float ScaleOf(float greatest, float most) {
  if (most > 0 && most < greatest) greatest = most;
  return greatest < 0x1p-100f ? 0.0f : Divide(greatest, 448.0f);
}

#endif  // QUIRE_E4M3_CUH_
