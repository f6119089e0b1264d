// Linear kernels against double precision, and against themselves under every division of work.
#include <algorithm>
#include <cmath>

#include "codegen/cpu/abi.h"
#include "tests/codegen/kernel_testing.h"

namespace quire {
namespace {

struct Case {
  LinearSpec spec;
  int64_t rows;
};

std::string Name(const Case& c) {
  return absl::StrCat(SpecText(KernelSpec(c.spec)), " rows=", c.rows);
}

// A linear layer with random operands.
class Layer {
 public:
  explicit Layer(const Case& c)
      : spec(c.spec),
        rows(c.rows),
        stored(RandomRows(spec.weight, spec.n, spec.k, 7)),
        packed(
            static_cast<size_t>(PackedBytes(WeightLayout::kRows16, spec.weight, spec.n, spec.k))),
        x(RandomFloats(static_cast<size_t>(rows * spec.k), 11)),
        bias(static_cast<size_t>((spec.n + 15) / 16 * 16)),
        residual(RandomFloats(static_cast<size_t>(rows * spec.n), 17)) {
    const std::vector<float> some = RandomFloats(static_cast<size_t>(spec.n), 13);
    std::copy(some.begin(), some.end(), bias.begin());
    // A block of zeros, and one so small that it counts as zeros.
    for (int64_t i = 0; i < std::min<int64_t>(spec.k, 32); ++i) x[static_cast<size_t>(i)] = 0;
    for (int64_t i = 32; i < std::min<int64_t>(spec.k, 64); ++i) x[static_cast<size_t>(i)] = 1e-35f;
    EXPECT_TRUE(
        Pack(WeightLayout::kRows16, spec.weight, spec.k, RowPointers(stored, spec.n), packed.span())
            .ok());
  }

  // y with the given cuts of rows and strips; {} for none.
  std::vector<float> Run(const Isa& isa, std::vector<int64_t> row_cuts = {},
                         std::vector<int64_t> strip_cuts = {}) {
    const auto kernel = BuilderFor(isa).Build(SpecText(KernelSpec(spec)));
    EXPECT_TRUE(kernel.ok()) << kernel.status();
    if (!kernel.ok()) return {};
    Guarded<float> y(static_cast<size_t>(rows * spec.n));
    Guarded<ActivationBlock> blocks(static_cast<size_t>(rows * spec.k / 32));
    const void* input = x.data();
    row_cuts.insert(row_cuts.begin(), 0);
    row_cuts.push_back(rows);
    strip_cuts.insert(strip_cuts.begin(), 0);
    const int64_t strip = IsIntegerBlockType(spec.weight) ? 16 : 64;
    strip_cuts.push_back((spec.n + strip - 1) / strip);
    for (size_t i = 0; (*kernel)->quantize != nullptr && i + 1 < row_cuts.size(); ++i) {
      reinterpret_cast<QuantizeEntry>((*kernel)->quantize)(x.data(), blocks.data(), row_cuts[i],
                                                           row_cuts[i + 1]);
      input = blocks.data();
    }
    for (size_t i = 0; i + 1 < row_cuts.size(); ++i) {
      for (size_t j = 0; j + 1 < strip_cuts.size(); ++j) {
        reinterpret_cast<LinearEntry>((*kernel)->main)(
            input, packed.data(), spec.bias ? bias.data() : nullptr,
            spec.residual ? residual.data() : nullptr, y.data(), row_cuts[i], row_cuts[i + 1],
            strip_cuts[j], strip_cuts[j + 1]);
      }
    }
    EXPECT_TRUE(y.GuardsHold());
    EXPECT_TRUE(blocks.GuardsHold());
    return std::vector<float>(y.data(), y.data() + y.size());
  }

  const LinearSpec spec;
  const int64_t rows;
  std::vector<uint8_t> stored;
  Guarded<uint8_t> packed;
  std::vector<float> x, bias, residual;
};

// What the 8-bit activations stand for, and half a step of each.
void Quantized(const float* x, int64_t k, std::vector<double>* values, std::vector<double>* half) {
  for (int64_t block = 0; block < k; block += 32) {
    float largest = 0;
    for (int64_t i = 0; i < 32; ++i) largest = std::max(largest, std::fabs(x[block + i]));
    const float scale = largest < 0x1p-100f ? 0 : largest * (1.0f / 127);
    for (int64_t i = 0; i < 32; ++i) {
      const float inverse = scale == 0 ? 0 : 127 / largest;
      values->push_back(static_cast<double>(scale) * std::nearbyint(x[block + i] * inverse));
      half->push_back(scale == 0 ? 0x1p-100 : static_cast<double>(scale) * 0.5001);
    }
  }
}

void ExpectMatchesReference(const Case& c) {
  SCOPED_TRACE(Name(c));
  Layer layer(c);
  const LinearSpec& spec = c.spec;
  const std::vector<float> y = layer.Run(TestedIsas()[0]);
  ASSERT_EQ(static_cast<int64_t>(y.size()), c.rows * spec.n);
  const bool quantized = IsIntegerBlockType(spec.weight);
  constexpr double kEpsilon = 0x1p-24;
  for (int64_t n = 0; n < spec.n; ++n) {
    const std::vector<double> w = DequantizedRow(spec.weight, layer.stored, spec.k, n);
    for (int64_t row = 0; row < c.rows; ++row) {
      const float* x = &layer.x[static_cast<size_t>(row * spec.k)];
      std::vector<double> values(x, x + spec.k), half(static_cast<size_t>(spec.k), 0);
      if (quantized) {
        values.clear(), half.clear();
        Quantized(x, spec.k, &values, &half);
      }
      double exact = 0, plain = 0, magnitude = 0, step = 0;
      for (size_t i = 0; i < w.size(); ++i) {
        exact += w[i] * values[i];
        plain += w[i] * static_cast<double>(x[i]);
        step += std::fabs(w[i]) * half[i];
        if (!quantized) magnitude += std::fabs(w[i] * values[i]);
      }
      // A block's scaled integers and its minimum are added apart: each is at most a few times the
      // block's largest weight.
      for (size_t block = 0; quantized && block < w.size(); block += 32) {
        double largest = 0, sum = 0;
        for (size_t i = block; i < block + 32; ++i) {
          largest = std::max(largest, std::fabs(w[i]));
          sum += std::fabs(values[i]);
        }
        magnitude += 4 * largest * sum;
      }
      double extra = 0;
      if (spec.bias) extra += static_cast<double>(layer.bias[static_cast<size_t>(n)]);
      if (spec.residual)
        extra += static_cast<double>(layer.residual[static_cast<size_t>(row * spec.n + n)]);
      magnitude += std::fabs(extra) * 2;
      const int64_t steps = quantized ? spec.k / 16 + 8 : spec.k + 3;
      const double tolerance = static_cast<double>(steps) * kEpsilon * magnitude + 1e-30;
      const double got = static_cast<double>(y[static_cast<size_t>(row * spec.n + n)]);
      ASSERT_NEAR(got, exact + extra, tolerance) << "row " << row << " output " << n;
      ASSERT_NEAR(got, plain + extra, tolerance + step) << "row " << row << " output " << n;
    }
  }
}

std::vector<DType> WeightTypes() {
  std::vector<DType> dtypes;
  for (const DTypeInfo& info : AllDTypes()) {
    if (info.dtype != DType::kI32 && info.dtype != DType::kF8E4M3) dtypes.push_back(info.dtype);
  }
  return dtypes;
}

LinearSpec Spec(int64_t n, int64_t k, DType weight, bool bias, bool residual) {
  LinearSpec spec;
  spec.n = n;
  spec.k = k;
  spec.weight = weight;
  spec.bias = bias;
  spec.residual = residual;
  return spec;
}

class LinearTest : public testing::TestWithParam<DType> {};

TEST_P(LinearTest, MatchesDoublePrecision) {
  const DType dtype = GetParam();
  const int64_t block = InfoOf(dtype).block_elements;
  std::vector<int64_t> ks;
  for (int64_t k : {32, 64, 96, 128, 256, 576, 1536}) {
    if (k % block == 0) ks.push_back(k);
  }
  for (int64_t k : ks) {
    for (auto [n, rows] : {std::pair<int64_t, int64_t>{16, 1}, {1, 3}, {33, 7}, {200, 17}}) {
      ExpectMatchesReference({Spec(n, k, dtype, (n & 1) != 0, (rows & 2) != 0), rows});
    }
  }
  ExpectMatchesReference({Spec(64, 2 * std::max<int64_t>(block, 32), dtype, true, true), 64});
}

TEST_P(LinearTest, OddColumnsOfFloatWeights) {
  if (IsBlockType(GetParam())) return;
  for (int64_t k : {1, 7, 33, 2050})
    ExpectMatchesReference({Spec(70, k, GetParam(), true, false), 9});
}

TEST_P(LinearTest, BitsDependOnNoDivisionOfWork) {
  const Isa host = TestedIsas()[0];
  // Enough columns that float weights take several slabs.
  const int64_t k = IsIntegerBlockType(GetParam()) ? 1536 : IsBlockType(GetParam()) ? 8192 : 3000;
  Layer layer({Spec(150, k, GetParam(), true, true), 19});
  const std::vector<float> whole = layer.Run(host);
  std::vector<int64_t> each_row;
  for (int64_t row = 1; row < 19; ++row) each_row.push_back(row);
  EXPECT_EQ(layer.Run(host, each_row), whole);
  EXPECT_EQ(layer.Run(host, {3, 8, 15}), whole);
  EXPECT_EQ(layer.Run(host, {}, {1, 2}), whole);
  EXPECT_EQ(layer.Run(host, {5}, {1}), whole);
}

TEST_P(LinearTest, BitsDependOnNoInstructionSet) {
  const std::vector<Isa> isas = TestedIsas();
  Layer layer({Spec(40, 768, GetParam(), true, true), 11});
  const std::vector<float> host = layer.Run(isas[0]);
  for (size_t i = 1; i < isas.size(); ++i) {
    EXPECT_EQ(layer.Run(isas[i]), host) << isas[i].Key();
  }
}

INSTANTIATE_TEST_SUITE_P(Types, LinearTest, testing::ValuesIn(WeightTypes()),
                         [](const testing::TestParamInfo<DType>& test) {
                           return std::string(DTypeText(test.param));
                         });

TEST(PackTest, RefusesPartialBlocksAndWrongSizes) {
  const std::vector<uint8_t> rows = RandomRows(DType::kQ4_0, 2, 64, 1);
  std::vector<uint8_t> packed(
      static_cast<size_t>(PackedBytes(WeightLayout::kRows16, DType::kQ4_0, 2, 64)));
  const auto pointers = RowPointers(rows, 2);
  EXPECT_TRUE(Pack(WeightLayout::kRows16, DType::kQ4_0, 64, pointers, absl::MakeSpan(packed)).ok());
  EXPECT_EQ(Pack(WeightLayout::kRows16, DType::kQ4_0, 48, pointers, absl::MakeSpan(packed)).code(),
            absl::StatusCode::kInvalidArgument);
  packed.pop_back();
  EXPECT_EQ(Pack(WeightLayout::kRows16, DType::kQ4_0, 64, pointers, absl::MakeSpan(packed)).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(PackTest, QuantizedWeightsGrowByLessThanThreePerCent) {
  for (const DTypeInfo& info : AllDTypes()) {
    if (!IsBlockType(info.dtype)) continue;
    const double stored = static_cast<double>(RowBytes(info.dtype, 4096)) * 4096;
    const double packed =
        static_cast<double>(PackedBytes(WeightLayout::kRows16, info.dtype, 4096, 4096));
    EXPECT_LE(packed, 1.03 * stored) << info.text;
    EXPECT_GE(packed, stored) << info.text;
  }
}

TEST(EmitTest, RefusesLinearOverPlainRowsOrNarrowActivations) {
  for (const char* spec : {"linear n=16 k=32 w=q4_0 x=f32 y=f32 bias=0 residual=0 layout=rows",
                           "linear n=16 k=32 w=q4_0 x=bf16 y=f32 bias=0 residual=0 layout=rows16",
                           "linear n=16 k=32 w=q4_0 x=f32 y=f16 bias=0 residual=0 layout=rows16",
                           "linear n=16 k=32 w=f16 x=f32 y=f32 bias=0 residual=0 layout=rows16 "
                           "act=silu"}) {
    EXPECT_EQ(BuilderFor(TestedIsas()[0]).Build(spec).status().code(),
              absl::StatusCode::kUnimplemented)
        << spec;
  }
}

}  // namespace
}  // namespace quire
