#include "codegen/cpu/emit_math.h"

#include <cmath>
#include <vector>

namespace quire {
namespace {

using V = LlvmValue;

V Integers(LlvmWriter& w, const V& like, int64_t value) {
  return w.SplatConstant(I32(value), LanesOf(like.type));
}

std::string IntegerType(const V& like) { return VectorOf(LanesOf(like.type), "i32"); }

// coefficients[0] + x * (coefficients[1] + ...).
V Polynomial(LlvmWriter& w, const V& x, const std::vector<double>& coefficients) {
  V sum = Constant(w, x, coefficients.back());
  for (size_t i = coefficients.size() - 1; i-- > 0;) {
    sum = w.Fma(sum, x, Constant(w, x, coefficients[i]));
  }
  return sum;
}

V Abs(LlvmWriter& w, const V& x) { return w.Intrinsic("fabs", x.type, {x}); }

V CopySign(LlvmWriter& w, const V& magnitude, const V& sign) {
  return w.Intrinsic("copysign", magnitude.type, {magnitude, sign});
}

}  // namespace

V Constant(LlvmWriter& w, const V& like, double value) {
  const bool wide = ElementOf(like.type) == "double";
  return w.SplatConstant(wide ? F64(value) : F32(static_cast<float>(value)), LanesOf(like.type));
}

// x = n ln 2 + r, |r| <= ln 2 / 2; 1 + r + r^2 q(r), q the minimax polynomial of relative error
// 3e-9; then n is added to the exponent.
V EmitExp(LlvmWriter& w, const V& x) {
  constexpr double kLow = -87.33, kHigh = 88.37;
  const V low = Constant(w, x, kLow), high = Constant(w, x, kHigh);
  const V below = w.Compare("fcmp olt", x, low), above = w.Compare("fcmp ogt", x, high);
  const V inside = w.Select(below, low, w.Select(above, high, x));
  const V n = w.Intrinsic("rint", x.type, {w.FMul(inside, Constant(w, x, 1 / std::log(2.0)))});
  // ln 2 in two parts; the first has few enough bits that n times it is exact.
  const double first = 0x1.62e4p-1, second = std::log(2.0) - first;
  const V minus_n = w.FNeg(n);
  const V r = w.Fma(minus_n, Constant(w, x, second), w.Fma(minus_n, Constant(w, x, first), inside));
  const V q = Polynomial(w, r,
                         {0.4999999403953552, 0.1666652113199234, 0.04166838899254799,
                          0.008368710055947304, 0.0013814610429108143});
  const V p = w.FAdd(w.Fma(q, w.FMul(r, r), r), Constant(w, x, 1));
  const V shift = w.Binary("shl", w.Convert("fptosi", n, IntegerType(x)), Integers(w, x, 23));
  const V scaled = w.Bitcast(w.Add(w.Bitcast(p, IntegerType(x)), shift), x.type);
  const V infinity = Constant(w, x, HUGE_VAL);
  const V result = w.Select(below, w.Zero(x.type), w.Select(above, infinity, scaled));
  return w.Select(w.Compare("fcmp uno", x, x), x, result);
}

V EmitSigmoid(LlvmWriter& w, const V& x) {
  const V one = Constant(w, x, 1);
  return w.FDiv(one, w.FAdd(one, EmitExp(w, w.FNeg(x))));
}

// Small: x + x^3 p(x^2), relative error 4e-9. Otherwise 1 - 2 / (exp(2|x|) + 1).
V EmitTanh(LlvmWriter& w, const V& x) {
  const V a = Abs(w, x), square = w.FMul(x, x), one = Constant(w, x, 1);
  const V p = Polynomial(w, square,
                         {-0.3333328366279602, 0.13331490755081177, -0.05374349653720856,
                          0.020650578662753105, -0.005717036779969931});
  const V small = w.Fma(w.FMul(p, square), x, x);
  const V e = EmitExp(w, w.FAdd(a, a));
  const V large = w.FSub(one, w.FDiv(Constant(w, x, 2), w.FAdd(e, one)));
  return w.Select(w.Compare("fcmp olt", a, Constant(w, x, 0.625)), small, CopySign(w, large, x));
}

// |x| < 1: x p(x^2), relative error 1.3e-9. Otherwise 1 - exp(-x^2) r(1 / (1 + |x|/2)), where r is
// a polynomial for exp(x^2) erfc(x) on [1, 4], absolute error of the result 3e-11; 1 beyond.
V EmitErf(LlvmWriter& w, const V& x) {
  const V a = Abs(w, x), square = w.FMul(x, x), one = Constant(w, x, 1);
  const V p = Polynomial(
      w, square,
      {1.1283791065216064, -0.3761262595653534, 0.1128358542919159, -0.026853810995817184,
       0.005188327748328447, -0.0008010192541405559, 7.853857823647559e-05});
  const V t = w.FDiv(one, w.Fma(a, Constant(w, x, 0.5), one));
  const V r = Polynomial(
      w, t,
      {0.0020736430305987597, 0.25707924365997314, 0.4081661105155945, -0.09065589308738708,
       0.6705459952354431, -0.2540864050388336, 0.006652350537478924});
  const V large = w.FSub(one, w.FMul(r, EmitExp(w, w.FNeg(square))));
  const V is_one = w.Compare("fcmp ogt", a, Constant(w, x, 4));
  const V outer = CopySign(w, w.Select(is_one, one, large), x);
  return w.Select(w.Compare("fcmp olt", a, one), w.FMul(x, p), outer);
}

// The angle less the nearest multiple of pi/2, in double; then Taylor series on [-pi/4, pi/4].
SinCos EmitSinCos(LlvmWriter& w, const V& angle) {
  const int lanes = LanesOf(angle.type);
  const V n = w.Intrinsic("rint", angle.type, {w.FMul(angle, Constant(w, angle, 2 / M_PI))});
  // pi/2 in two parts.
  const V minus_n = w.FNeg(n);
  const V r = w.Convert("fptrunc",
                        w.Fma(minus_n, Constant(w, angle, 6.123233995736766e-17),
                              w.Fma(minus_n, Constant(w, angle, M_PI_2), angle)),
                        VectorOf(lanes, "float"));
  const V square = w.FMul(r, r);
  const V s = Polynomial(w, square, {-1.0 / 6, 1.0 / 120, -1.0 / 5040, 1.0 / 362880});
  const V sine = w.Fma(w.FMul(s, square), r, r);
  const V c = Polynomial(w, square, {-0.5, 1.0 / 24, -1.0 / 720, 1.0 / 40320, -1.0 / 3628800});
  const V cosine = w.Fma(c, square, Constant(w, r, 1));
  const V quadrant = w.Convert("fptosi", n, VectorOf(lanes, "i32"));
  const V one = Integers(w, r, 1), two = Integers(w, r, 2);
  const auto bit = [&](const V& value, const V& mask) {
    return w.Compare("icmp ne", w.Binary("and", value, mask), w.Zero(value.type));
  };
  const V swapped = bit(quadrant, one);
  const auto negated = [&](const V& value, const V& condition) {
    return w.Select(condition, w.FNeg(value), value);
  };
  return {negated(w.Select(swapped, cosine, sine), bit(quadrant, two)),
          negated(w.Select(swapped, sine, cosine), bit(w.Add(quadrant, one), two))};
}

namespace {

// As F32ToF8E4M3 (ir/dtype.h), lane by lane.
V EmitF8E4M3(LlvmWriter& w, const V& x) {
  const int lanes = LanesOf(x.type);
  const V a = Abs(w, x), largest = Constant(w, x, 448), magic = Constant(w, x, 16384);
  const V sign = w.Binary("and", w.Binary("lshr", w.Bitcast(x, IntegerType(x)), Integers(w, x, 24)),
                          Integers(w, x, 0x80));
  const V kept = w.Select(w.Compare("fcmp olt", a, largest), a, largest);
  const V bits = w.Bitcast(kept, IntegerType(x));
  const V odd = w.Binary("and", w.Binary("lshr", bits, Integers(w, x, 20)), Integers(w, x, 1));
  const V rounded = w.Add(w.Add(bits, odd), Integers(w, x, 0x7ffff - 0x3c000000));
  const V normal = w.Binary("lshr", rounded, Integers(w, x, 20));
  const V small =
      w.Sub(w.Bitcast(w.FAdd(kept, magic), IntegerType(x)), w.Bitcast(magic, IntegerType(x)));
  const V is_small = w.Compare("fcmp olt", kept, Constant(w, x, 0x1p-6));
  const V number = w.Binary("or", sign, w.Select(is_small, small, normal));
  const V result = w.Select(w.Compare("fcmp uno", x, x), Integers(w, x, 0x7f), number);
  return w.Convert("trunc", result, VectorOf(lanes, "i8"));
}

// Bits of an f8e4m3 in the low bytes of i32.
V EmitFromF8E4M3(LlvmWriter& w, const V& bits, const std::string& type) {
  const auto integers = [&](int64_t value) { return w.SplatConstant(I32(value), LanesOf(type)); };
  const V magnitude = w.Binary("and", bits, integers(0x7f));
  // As f32 it is 2^120 too small, a subnormal where it is one, too.
  const V number = w.Bitcast(w.Binary("shl", magnitude, integers(20)), type);
  const V scaled = w.Bitcast(w.FMul(number, Constant(w, number, 0x1p120)), bits.type);
  const V is_nan = w.Compare("icmp eq", magnitude, integers(0x7f));
  const V sign = w.Binary("shl", w.Binary("and", bits, integers(0x80)), integers(24));
  return w.Bitcast(w.Binary("or", w.Select(is_nan, integers(0x7fc00000), scaled), sign), type);
}

}  // namespace

V EmitNarrow(LlvmWriter& w, DType dtype, const V& x) {
  const int lanes = LanesOf(x.type);
  if (dtype == DType::kF8E4M3) return EmitF8E4M3(w, x);
  if (dtype == DType::kF16) return w.Convert("fptrunc", x, VectorOf(lanes, "half"));
  if (dtype != DType::kBF16) return x;
  // In integers: the conversion instructions of some machines drop subnormal numbers.
  const V bits = w.Bitcast(x, IntegerType(x));
  const V high = w.Binary("lshr", bits, Integers(w, x, 16));
  const V odd = w.Binary("and", high, Integers(w, x, 1));
  const V rounded =
      w.Binary("lshr", w.Add(bits, w.Add(odd, Integers(w, x, 0x7fff))), Integers(w, x, 16));
  const V quiet = w.Binary("or", high, Integers(w, x, 0x40));
  const V result = w.Select(w.Compare("fcmp uno", x, x), quiet, rounded);
  return w.Convert("trunc", result, VectorOf(lanes, "i16"));
}

V EmitRound(LlvmWriter& w, DType dtype, const V& x) {
  if (dtype == DType::kF32) return x;
  const V narrow = EmitNarrow(w, dtype, x);
  if (dtype == DType::kF16) return w.Convert("fpext", narrow, x.type);
  if (dtype == DType::kF8E4M3) {
    return EmitFromF8E4M3(w, w.Convert("zext", narrow, IntegerType(x)), x.type);
  }
  const V wide = w.Convert("zext", narrow, IntegerType(x));
  return w.Bitcast(w.Binary("shl", wide, Integers(w, x, 16)), x.type);
}

V EmitLoad(LlvmWriter& w, DType dtype, const V& pointer, int lanes) {
  const std::string f32 = VectorOf(lanes, "float"), i32 = VectorOf(lanes, "i32");
  if (dtype == DType::kF8E4M3) {
    return EmitFromF8E4M3(w, w.Convert("zext", w.Load(VectorOf(lanes, "i8"), pointer, 1), i32),
                          f32);
  }
  if (dtype == DType::kF16) {
    return w.Convert("fpext", w.Load(VectorOf(lanes, "half"), pointer, 2), f32);
  }
  if (dtype != DType::kBF16) return w.Load(f32, pointer, 4);
  const V wide = w.Convert("zext", w.Load(VectorOf(lanes, "i16"), pointer, 2), i32);
  return w.Bitcast(w.Binary("shl", wide, w.SplatConstant(I32(16), lanes)), f32);
}

}  // namespace quire
