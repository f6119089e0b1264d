// Functions of one f32, of an error below 4 ulp where nothing else is said, in one arithmetic for
// every kernel that needs them: an activation fused into another kernel has the bits of a row
// kernel's. NaN stays NaN.
//
// Nothing here depends on the compiler's fast mathematics: operators on f32 are not used.
// Polynomials: those of codegen/cpu/emit_math.cc, but for Gelu.
#ifndef QUIRE_MATH_CUH_
#define QUIRE_MATH_CUH_

#include "prelude.cuh"

DEVICE float Negate(float x) { return FromBits(Bits(x) ^ 0x80000000u); }
DEVICE float Abs(float x) { return FromBits(Bits(x) & 0x7fffffffu); }
DEVICE float CopySign(float magnitude, float sign) {
  return FromBits(Bits(magnitude) | (Bits(sign) & 0x80000000u));
}

// x log2 e is an integer n and a rest within 1/2, of which the unit for 2^x takes the power; n is
// added to the exponent. Limits: above, infinity; below, the smallest normal number.
DEVICE float Exp(float x) {
  const float kLog2E = 1.4426950216293335f, kRest = 1.925963033500e-8f;
  const float kMost = 88.7228317f;  // of a finite power
  float inside = x < -87.33f ? -87.33f : x;
  inside = inside > kMost ? kMost : inside;
  const float n = Round(Mul(inside, kLog2E));
  const float r = Fma(inside, kRest, Fma(inside, kLog2E, Negate(n)));
  const float power = FromBits(Bits(Exp2(r)) + (static_cast<uint32_t>(static_cast<int>(n)) << 23));
  return x > kMost ? FromBits(0x7f800000u) : power;
}

// 1 / x of x from 1 to infinity. Reciprocal() has a branch for others, which keeps what is computed
// for several elements apart. Large x are scaled, so that nothing is subnormal on the way.
DEVICE float ReciprocalFromOne(float x) {
  const float scale = x > 0x1p96f ? 0x1p-64f : 1.0f;
  const float near = Mul(x, scale);
  const float inverse = NearReciprocal(near);
  const float refined = Fma(Fma(Negate(near), inverse, 1.0f), inverse, inverse);
  return x > 0x1.fffffep127f ? 0.0f : Mul(refined, scale);
}

DEVICE float Sigmoid(float x) { return ReciprocalFromOne(Add(1.0f, Exp(Negate(x)))); }
DEVICE float Silu(float x) { return Mul(x, Sigmoid(x)); }
DEVICE float Relu(float x) { return x < 0.0f ? 0.0f : x; }

// Small: x + x^3 p(x^2), relative error 4e-9. Otherwise 1 - 2 / (exp(2|x|) + 1).
DEVICE float Tanh(float x) {
  const float a = Abs(x), square = Mul(x, x);
  if (a < 0.625f) {
    float p = -0.005717036779969931f;
    p = Fma(p, square, 0.020650578662753105f);
    p = Fma(p, square, -0.05374349653720856f);
    p = Fma(p, square, 0.13331490755081177f);
    p = Fma(p, square, -0.3333328366279602f);
    return Fma(Mul(p, square), x, x);
  }
  const float e = Exp(Add(a, a));
  return CopySign(Fma(-2.0f, ReciprocalFromOne(Add(e, 1.0f)), 1.0f), x);
}

// x times the normal distribution's function: exp(-x^2 / 2) r(1 / (1 + 0.345 |x|)) below zero, where
// r is a polynomial, and 1 less that above; absolute error of the function 4e-7. Without a branch:
// one would keep what is computed for several elements apart.
DEVICE float Gelu(float x) {
  const float t = NearReciprocal(Fma(Abs(x), 0.345f, 1.0f));
  float r = 0.044191837310791016f;
  r = Fma(r, t, -0.19021199643611908f);
  r = Fma(r, t, 0.2332262247800827f);
  r = Fma(r, t, -0.006745226215571165f);
  r = Fma(r, t, 0.1479177325963974f);
  r = Fma(r, t, 0.13376031816005707f);
  r = Fma(r, t, 0.13786108791828156f);
  const float tail = Mul(Mul(r, t), Exp2(Mul(Mul(x, x), -0.7213475204444817f)));
  return Mul(x, x < 0.0f ? tail : Add(1.0f, Negate(tail)));
}
// (1 + tanh(u)) / 2 is sigmoid(2u).
DEVICE float GeluTanh(float x) {
  const float u = Fma(Mul(Mul(x, x), x), 0.044715f, x);
  return Mul(x, Sigmoid(Mul(u, 1.5957691216057308f)));
}
DEVICE float GeluQuick(float x) { return Mul(x, Sigmoid(Mul(x, 1.702f))); }

// Cosine and sine of an angle in double precision, absolute error 1.5e-7: the angle less the
// nearest multiple of pi/2 (in two parts), then Taylor series on [-pi/4, pi/4].
DEVICE void CosineAndSine(double angle, float& cosine, float& sine) {
  const double n = Round(Mul(angle, 0.6366197723675814));
  const float r =
      static_cast<float>(Fma(-n, 6.123233995736766e-17, Fma(-n, 1.5707963267948966, angle)));
  const float square = Mul(r, r);
  float s = 2.755731922398589e-06f;
  s = Fma(s, square, -1.984126984126984e-04f);
  s = Fma(s, square, 8.333333333333333e-03f);
  s = Fma(s, square, -1.666666666666667e-01f);
  s = Fma(Mul(s, square), r, r);
  float c = -2.755731922398589e-07f;
  c = Fma(c, square, 2.480158730158730e-05f);
  c = Fma(c, square, -1.388888888888889e-03f);
  c = Fma(c, square, 4.166666666666666e-02f);
  c = Fma(c, square, -0.5f);
  c = Fma(c, square, 1.0f);
  const int quadrant = static_cast<int>(n);
  const float first = quadrant & 1 ? s : c, second = quadrant & 1 ? c : s;
  cosine = (quadrant + 1) & 2 ? Negate(first) : first;
  sine = quadrant & 2 ? Negate(second) : second;
}

#endif  // QUIRE_MATH_CUH_
