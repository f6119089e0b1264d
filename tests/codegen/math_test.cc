// The errors that emit_math.h states, over the ranges that it states.
#include <cmath>
#include <functional>
#include <limits>

#include "codegen/cpu/emit_math.h"
#include "tests/codegen/kernel_testing.h"

namespace quire {
namespace {

using V = LlvmValue;
using Emit = std::function<V(LlvmWriter&, const V&)>;

// y[i] = f(x[i]) by generated code, 16 lanes at a time; x is f32 or f64, y f32.
template <typename T>
std::vector<float> Apply(const Emit& f, std::vector<T> x, const Isa& isa) {
  x.resize((x.size() + 15) / 16 * 16);
  LlvmWriter w;
  const V from{"ptr", "%x"}, to{"ptr", "%y"}, count{"i64", "%count"};
  w.BeginFunction("apply", {from, to, count});
  w.For(I64(0), count, 16, [&](const V& i) {
    const V at = w.At(from, w.Mul(i, I64(sizeof(T))));
    const V value = w.Load(VectorOf(16, sizeof(T) == 8 ? "double" : "float"), at, sizeof(T));
    w.Store(f(w, value), w.At(to, w.Mul(i, I64(4))), 4);
  });
  w.EndFunction();
  const auto object = CompileObject(w.Finish(), isa);
  EXPECT_TRUE(object.ok()) << object.status();
  const auto loader = CodeLoader::Create();
  const auto code = (*loader)->Load(*object);
  EXPECT_TRUE(code.ok()) << code.status();
  std::vector<float> y(x.size());
  reinterpret_cast<void (*)(const T*, float*, int64_t)>(*code->Find("apply"))(
      x.data(), y.data(), static_cast<int64_t>(x.size()));
  return y;
}

std::vector<float> Range(float low, float high, int count) {
  std::vector<float> x;
  for (int i = 0; i <= count; ++i) {
    x.push_back(low + (high - low) * static_cast<float>(i) / static_cast<float>(count));
  }
  return x;
}

// Largest error in ulps of the result.
double WorstUlps(const Emit& f, double (*want)(double), const std::vector<float>& x) {
  const std::vector<float> y = Apply(f, x, TestedIsas()[0]);
  EXPECT_EQ(Apply(f, x, BaselineIsa()), y);
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double exact = want(static_cast<double>(x[i]));
    const float near = std::fabs(static_cast<float>(exact));
    const double ulp = static_cast<double>(std::nextafter(near, 1e38f)) - static_cast<double>(near);
    worst = std::max(worst, std::fabs(static_cast<double>(y[i]) - exact) / ulp);
  }
  return worst;
}

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

TEST(MathTest, Exp) {
  EXPECT_LE(
      WorstUlps(EmitExp, [](double x) { return std::exp(x); }, Range(-87.3f, 88.3f, 1000000)), 2);
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<float> y =
      Apply<float>(EmitExp, {0.0f, -kInfinity, kInfinity, -88, 89, std::nanf("")}, TestedIsas()[0]);
  EXPECT_EQ(y[0], 1);
  EXPECT_EQ(y[1], 0);
  EXPECT_EQ(y[2], kInfinity);
  EXPECT_EQ(y[3], 0);
  EXPECT_EQ(y[4], kInfinity);
  EXPECT_TRUE(std::isnan(y[5]));
}

TEST(MathTest, TanhAndSigmoid) {
  EXPECT_LE(WorstUlps(EmitTanh, [](double x) { return std::tanh(x); }, Range(-12, 12, 1000000)), 3);
  EXPECT_LE(WorstUlps(EmitSigmoid, Sigmoid, Range(-87, 40, 1000000)), 3);
  const std::vector<float> y = Apply<float>(EmitTanh, {100, -100, 1e-30f}, TestedIsas()[0]);
  EXPECT_EQ(y[0], 1);
  EXPECT_EQ(y[1], -1);
  EXPECT_EQ(y[2], 1e-30f);
}

TEST(MathTest, Erf) {
  const std::vector<float> x = Range(-6, 6, 1000000);
  const std::vector<float> y = Apply(EmitErf, x, TestedIsas()[0]);
  for (size_t i = 0; i < x.size(); ++i) {
    ASSERT_NEAR(static_cast<double>(y[i]), std::erf(static_cast<double>(x[i])), 2e-7) << x[i];
  }
}

TEST(MathTest, SineAndCosineOfLargeAngles) {
  std::vector<double> x;
  std::mt19937_64 random(3);
  for (double magnitude : {1.0, 100.0, 1e5, 1e7}) {
    std::uniform_real_distribution<double> uniform(-magnitude, magnitude);
    for (int i = 0; i < 200000; ++i) x.push_back(uniform(random));
  }
  const auto sine = [](LlvmWriter& w, const V& a) { return EmitSinCos(w, a).sine; };
  const auto cosine = [](LlvmWriter& w, const V& a) { return EmitSinCos(w, a).cosine; };
  const std::vector<float> s = Apply(sine, x, TestedIsas()[0]),
                           c = Apply(cosine, x, TestedIsas()[0]);
  for (size_t i = 0; i < x.size(); ++i) {
    ASSERT_NEAR(static_cast<double>(s[i]), std::sin(x[i]), 1.5e-7) << x[i];
    ASSERT_NEAR(static_cast<double>(c[i]), std::cos(x[i]), 1.5e-7) << x[i];
  }
}

TEST(MathTest, NarrowingRoundsToNearestEvenOnEveryLevel) {
  // Every 16-bit pattern as the high half of an f32, with low halves around the midpoint.
  std::vector<float> x;
  for (uint32_t high = 0; high < 65536; high += 3) {
    for (uint32_t low : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      const uint32_t bits = high << 16 | low;
      float value;
      std::memcpy(&value, &bits, 4);
      x.push_back(value);
    }
  }
  for (const Isa& isa : {TestedIsas()[0], BaselineIsa()}) {
    for (DType dtype : {DType::kF16, DType::kBF16}) {
      const auto round = [&](LlvmWriter& w, const V& v) { return EmitRound(w, dtype, v); };
      const std::vector<float> y = Apply(round, x, isa);
      for (size_t i = 0; i < x.size(); ++i) {
        const float want =
            dtype == DType::kF16 ? F16ToF32(F32ToF16(x[i])) : BF16ToF32(F32ToBF16(x[i]));
        if (std::isnan(want)) {
          ASSERT_TRUE(std::isnan(y[i])) << x[i];
        } else {
          ASSERT_EQ(y[i], want) << x[i];
        }
      }
    }
  }
}

TEST(JitTest, RefusesBadTextAndBadObjects) {
  const auto object = CompileObject("define void @f() { ret i32 0 }", *HostIsa());
  EXPECT_EQ(object.status().code(), absl::StatusCode::kInternal);
  const auto loader = CodeLoader::Create();
  ASSERT_TRUE(loader.ok());
  const auto code = (*loader)->Load("not an object");
  EXPECT_TRUE(!code.ok() || !code->Find("f").ok());
}

}  // namespace
}  // namespace quire
