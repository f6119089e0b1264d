// Row kernels against the reference interpreter.
#include "absl/strings/match.h"
#include "absl/strings/substitute.h"
#include "tests/codegen/row_testing.h"

namespace quire {
namespace {

void ExpectMatches(const RowCase& c, double ulps) {
  RowRun run(c);
  run.ExpectMatches(ulps);
  run.ExpectSameBits();
}

std::string Unary(const std::string& op, const std::string& extents) {
  return absl::Substitute("func @row(%0: f32[$1]) {\n  %v0 = $0 : f32[$1]\n  return %v0\n}\n", op,
                          extents);
}

TEST(RowTest, PointwiseOps) {
  for (const char* op : {"scale %0 {factor=-0.37}", "softcap %0 {cap=1.5}", "softcap %0 {cap=0}",
                         "silu %0", "gelu %0", "gelu %0 {approximate=tanh}",
                         "gelu %0 {approximate=quick}", "relu %0", "tanh %0", "sigmoid %0"}) {
    for (const char* extents : {"T,1", "T,16", "T,31", "T,80", "T,3,24"}) {
      ExpectMatches({Unary(op, extents)}, 8);
    }
    // Far out, where exponentials over- and underflow.
    ExpectMatches({Unary(op, "T,64"), {{'T', 4}}, {}, 60}, 8);
  }
}

TEST(RowTest, RightSidesAreRepeated) {
  ExpectMatches({"func @row(%0: f32[T,3,20], %1: f32[T,3,20], %2: f16[20], %3: bf16[3,20], "
                 "%4: f32[]) {\n"
                 "  %v0 = add %0, %1 : f32[T,3,20]\n"
                 "  %v1 = mul %v0, %2 : f32[T,3,20]\n"
                 "  %v2 = add %v1, %3 : f32[T,3,20]\n"
                 "  %v3 = mul %v2, %4 : f32[T,3,20]\n"
                 "  return %v3\n}\n"},
                12);
}

TEST(RowTest, Norms) {
  for (int n : {1, 8, 15, 64, 80, 576, 1000}) {
    for (const char* rest : {"", "3,"}) {
      ExpectMatches({absl::Substitute("func @row(%0: f32[T,$1$0], %1: bf16[$0]) {\n"
                                      "  %v0 = rms_norm %0, %1 {eps=0.00001} : f32[T,$1$0]\n"
                                      "  return %v0\n}\n",
                                      n, rest)},
                    24);
    }
    ExpectMatches(
        {absl::Substitute("func @row(%0: f32[T,$0], %1: f32[$0], %2: f16[$0]) {\n"
                          "  %v0 = rms_norm %0, %1 {eps=0.001, weight_offset=1} : f32[T,$0]\n"
                          "  %v1 = layer_norm %v0, %1, %2 {eps=0.01} : f32[T,$0]\n"
                          "  %v2 = layer_norm %v0 {eps=0.01} : f32[T,$0]\n"
                          "  %v3 = rms_norm %v0 {eps=0.01} : f32[T,$0]\n"
                          "  return %v0, %v1, %v2, %v3\n}\n",
                          n)},
        // A mean near every element leaves differences of few bits, divided by sqrt(eps).
        400);
  }
}

// Scales and quotients are f32 in the reference, too: no number is another one.
TEST(RowTest, Quantize) {
  for (const char* attributes : {"", "{most=1.5}", "{columns=16}", "{columns=48, most=0.25}"}) {
    ExpectMatches({Unary(absl::StrCat("quantize %0 ", attributes), "T,144")}, 1);
    ExpectMatches({Unary(absl::StrCat("quantize %0 ", attributes), "T,3,48")}, 1);
  }
  ExpectMatches({Unary("quantize %0", "T,31")}, 1);
  ExpectMatches({"func @row(%0: f32[T,72], %1: f32[1]) {\n"
                 "  %v0 = scale %0 {factor=0} : f32[T,72]\n"
                 "  %v1 = quantize %v0 : f32[T,72]\n"
                 "  %v2 = quantize %0, %1 : f32[T,72]\n"
                 "  return %v1, %v2\n}\n"},
                1);
}

std::string RopeText(const std::string& heads, const std::string& attrs,
                     const std::string& factors = "") {
  return absl::Substitute(
      "func @row(%0: f32[T,$0], %1: i32[T]$3) {\n"
      "  %v0 = rope %0, %1$2 {$1} : f32[T,$0]\n  return %v0\n}\n",
      heads, attrs, factors.empty() ? "" : ", %2",
      factors.empty() ? "" : absl::StrCat(", %2: ", factors));
}

TEST(RowTest, Rope) {
  for (const std::string& text :
       {RopeText("9,64", "theta=100000"), RopeText("2,8", "theta=10000"),
        RopeText("3,80", "theta=10000, dims=32"),
        RopeText("3,24", "theta=10000, dims=10, style=interleave"),
        RopeText("2,128", "theta=500000, style=interleave"),
        RopeText("2,64", "theta=500000, scaling=llama3, scale_factor=8, original_tokens=8192"),
        RopeText("2,64", "theta=10000, scaling=linear, scale_factor=4"),
        RopeText("2,64", "theta=10000, scaling=dynamic, scale_factor=2, original_tokens=2048"),
        RopeText("2,96",
                 "theta=10000, scaling=yarn, scale_factor=16, original_tokens=4096, "
                 "magnitude=1.2772588722239782"),
        RopeText("2,96",
                 "theta=10000, scaling=yarn, scale_factor=4, original_tokens=4096, "
                 "beta_fast=16, beta_slow=2, truncate=0"),
        RopeText("2,64", "theta=10000, dims=48", "f32[24]")}) {
    RowCase c{text, {{'T', 9}}, {{"1", 1000000}}};
    // 1e-6 of the largest element is 17 ulps.
    ExpectMatches(c, 12);
  }
}

TEST(RowTest, ShapeOps) {
  ExpectMatches({"func @row(%0: f32[T,120]) {\n"
                 "  %v0 = reshape %0 : f32[T,5,24]\n"
                 "  %v1 = slice %v0 {axis=2, begin=3, end=20} : f32[T,5,17]\n"
                 "  %v2 = slice %v1 {axis=1, begin=1, end=4} : f32[T,3,17]\n"
                 "  %v3 = reshape %v2 : f32[T,51]\n"
                 "  %v4 = slice %0 {axis=1, begin=7, end=20} : f32[T,13]\n"
                 "  %v5 = concat %v3, %v4, %v3 {axis=1} : f32[T,115]\n"
                 "  %v6 = silu %v2 : f32[T,3,17]\n"
                 "  %v7 = expand_heads %v2 {group=2} : f32[T,6,17]\n"
                 "  %v8 = expand_heads %v6 {group=3, order=tile} : f32[T,9,17]\n"
                 "  %v9 = reshape %v6 : f32[T,51]\n"
                 "  return %v5, %v6, %v7, %v8, %v9, %v2, %0, %v6\n}\n"},
                8);
}

TEST(RowTest, CastsRoundAndNarrowTypesStayRounded) {
  for (const char* dtype : {"f16", "bf16"}) {
    ExpectMatches({absl::Substitute("func @row(%0: f32[T,40], %1: $0[40]) {\n"
                                    "  %v0 = cast %0 : $0[T,40]\n"
                                    "  %v1 = mul %v0, %1 : $0[T,40]\n"
                                    "  %v2 = cast %v1 : f32[T,40]\n"
                                    "  return %v0, %v2\n}\n",
                                    dtype)},
                  1);
  }
}

TEST(RowTest, TakeWalksOtherRows) {
  ExpectMatches({"func @row(%0: f32[T,70], %1: i32[R], %2: f32[70]) {\n"
                 "  %v0 = take %0, %1 : f32[R,70]\n"
                 "  %v1 = rms_norm %v0, %2 {eps=0.00001} : f32[R,70]\n"
                 "  return %v1, %v0\n}\n",
                 {{'T', 11}, {'R', 4}},
                 {{"1", 11}}},
                24);
}

TEST(RowTest, EmbedsFromEveryTypeInBothLayouts) {
  for (const DTypeInfo& info : AllDTypes()) {
    if (info.dtype == DType::kI32 || info.dtype == DType::kF8E4M3) continue;
    for (const char* suffix : {"", ".rows16"}) {
      const int64_t k = IsBlockType(info.dtype) ? 3 * info.block_elements : 70;
      for (int64_t n : {1, 37, 200}) {
        ExpectMatches({absl::Substitute("func @row(%0: i32[T], %1$0: $1[$2,$3]) {\n"
                                        "  %v0 = embed %1$0, %0 : f32[T,$3]\n"
                                        "  return %v0\n}\n",
                                        suffix, info.text, n, k),
                       {{'T', 13}},
                       {{"0", n}}},
                      2);
      }
    }
  }
}

TEST(RowTest, EmbedAddsItsOffset) {
  ExpectMatches({"func @row(%0: i32[T], %1: f32[10,24]) {\n"
                 "  %v0 = embed %1, %0 {offset=2} : f32[T,24]\n  return %v0\n}\n",
                 {{'T', 9}},
                 {{"0", 8}}},
                1);
}

// What fuse makes of a layer's rows: residual sums, norms, gates, and two ropes that share angles.
TEST(RowTest, FusedGroup) {
  ExpectMatches(
      {"func @row(%0: f32[T,960], %1: i32[T], %2: f32[T,192], %3: f32[576], %4: f32[64]) {\n"
       "  %v0 = slice %0 {axis=1, begin=0, end=576} : f32[T,576]\n"
       "  %v1 = rms_norm %v0, %3 {eps=0.00001} : f32[T,576]\n"
       "  %v2 = reshape %v1 : f32[T,9,64]\n"
       "  %v3 = rms_norm %v2, %4 {eps=0.00001} : f32[T,9,64]\n"
       "  %v4 = rope %v3, %1 {theta=100000} : f32[T,9,64]\n"
       "  %v5 = slice %0 {axis=1, begin=576, end=768} : f32[T,192]\n"
       "  %v6 = reshape %v5 : f32[T,3,64]\n"
       "  %v7 = rope %v6, %1 {theta=100000} : f32[T,3,64]\n"
       "  %v8 = silu %2 : f32[T,192]\n"
       "  %v9 = mul %v8, %v5 : f32[T,192]\n"
       "  %v10 = add %v9, %2 : f32[T,192]\n"
       "  return %v4, %v7, %v10\n}\n",
       {{'T', 6}},
       {{"1", 100000}}},
      48);
}

class KvAppendTest : public testing::TestWithParam<const char*> {};

TEST_P(KvAppendTest, PutsTokensWhereThePageSays) {
  const DType dtype = *ParseDType(GetParam());
  const int64_t bytes = InfoOf(dtype).block_bytes;
  constexpr int64_t kRows = 5, kHeads = 2, kKeys = 24, kValues = 8;
  const std::string func = absl::Substitute(
      "func @row(%0: f32[T,2,24], %1: f32[T,2,8]) {\n"
      "  %v0 = kv_append %0 {layer=0, slot=k} : $0[C,2,24]\n"
      "  %v1 = kv_append %1 {layer=0, slot=v} : $0[C,2,8]\n"
      "  return %0\n}\n",
      GetParam());
  const auto kernel = BuilderFor(TestedIsas()[0]).Build("row " + func);
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  for (int64_t page_tokens : {1, 3, 16}) {
    const int64_t page_bytes = page_tokens * kHeads * (kKeys + kValues) * bytes;
    Guarded<uint8_t> pool(static_cast<size_t>(5 * page_bytes));
    std::vector<float> x = RandomFloats(kRows * kHeads * kKeys, 1);
    std::vector<float> v = RandomFloats(kRows * kHeads * kValues, 2);
    x[3] = 1e30f, x[4] = std::nanf(""), v[1] = 1e-40f;  // past f16 and f8e4m3; subnormal in bf16
    const std::vector<int64_t> page_of = {2, page_tokens == 1 ? 4 : 2, 0, 3, 1};
    std::vector<int64_t> slot_of, offsets;
    for (size_t row = 0; row < kRows; ++row) {
      slot_of.push_back(static_cast<int64_t>(row) % page_tokens);
      offsets.push_back(page_of[row] * page_bytes);
    }
    const RowStep step{offsets.data(), slot_of.data(), page_tokens};
    std::vector<float> copied(x.size());
    void* operands[] = {x.data(), v.data(), pool.data(),
                        pool.data() + page_tokens * kHeads * kKeys * bytes, copied.data()};
    reinterpret_cast<RowEntry>((*kernel)->main)(operands, &step, nullptr, 0, kRows);
    EXPECT_TRUE(pool.GuardsHold());
    const auto expect = [&](float value, int64_t at) {
      uint32_t want = 0, got = 0;
      std::memcpy(&want, &value, 4);
      if (dtype == DType::kF16) want = F32ToF16(value);
      if (dtype == DType::kBF16) want = F32ToBF16(value);
      if (dtype == DType::kF8E4M3) want = F32ToF8E4M3(value);
      std::memcpy(&got, pool.data() + at, static_cast<size_t>(bytes));
      if (std::isnan(value)) {
        const uint32_t wide = dtype == DType::kF32 ? got : got << 16;
        float back;
        std::memcpy(&back, &wide, 4);
        if (dtype == DType::kF16) back = F16ToF32(static_cast<uint16_t>(got));
        if (dtype == DType::kF8E4M3) back = F8E4M3ToF32(static_cast<uint8_t>(got));
        EXPECT_TRUE(std::isnan(back));
      } else {
        EXPECT_EQ(got, want);
      }
    };
    for (int64_t row = 0; row < kRows; ++row) {
      const int64_t page = offsets[static_cast<size_t>(row)],
                    slot = slot_of[static_cast<size_t>(row)];
      for (int64_t h = 0; h < kHeads; ++h) {
        for (int64_t d = 0; d < kKeys; ++d) {
          expect(x[static_cast<size_t>((row * kHeads + h) * kKeys + d)],
                 page + ((h * kKeys + d) * page_tokens + slot) * bytes);
        }
        for (int64_t d = 0; d < kValues; ++d) {
          expect(v[static_cast<size_t>((row * kHeads + h) * kValues + d)],
                 page + (page_tokens * kHeads * kKeys + (h * page_tokens + slot) * kValues + d) *
                            bytes);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, KvAppendTest, testing::Values("f32", "f16", "bf16", "f8e4m3"));

// A head's numbers are divided by its scale.
TEST(RowTest, AppendsByScales) {
  const auto kernel = BuilderFor(TestedIsas()[0])
                          .Build(
                              "row func @row(%0: f32[T,3,24], %1: f32[3]) {\n"
                              "  %v0 = kv_append %0, %1 {layer=0, slot=v} : f8e4m3[C,3,24]\n"
                              "  return %0\n}\n");
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  constexpr int64_t kRows = 4, kHeads = 3, kD = 24;
  std::vector<float> x = RandomFloats(kRows * kHeads * kD, 1), copied(x.size());
  float scales[] = {0.01f, 3, 0.0003f};  // of the last head most are too large
  Guarded<uint8_t> pool(kRows * kHeads * kD);
  const std::vector<int64_t> offsets(kRows, 0), slots = {2, 0, 3, 1};
  const RowStep step{offsets.data(), slots.data(), kRows};
  void* operands[] = {x.data(), scales, pool.data(), copied.data()};
  reinterpret_cast<RowEntry>((*kernel)->main)(operands, &step, nullptr, 0, kRows);
  EXPECT_TRUE(pool.GuardsHold());
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t i = 0; i < kHeads * kD; ++i) {
      const float value = x[static_cast<size_t>(row * kHeads * kD + i)];
      EXPECT_EQ(pool[static_cast<size_t>((i / kD * kRows + slots[static_cast<size_t>(row)]) * kD +
                                         i % kD)],
                F32ToF8E4M3(value / scales[i / kD]));
    }
  }
}

TEST(RowTest, RefusesRowsThatNobodyChecks) {
  for (const char* func :
       {"func @row(%0: f32[T,4], %1: i32[T]) {\n  %v0 = embed %0, %1 : f32[T,4]\n  return %v0\n}\n",
        "func @row(%0: f32[8,4], %1: i32[T]) {\n  %v0 = reshape %1 : i32[T]\n"
        "  %v1 = embed %0, %v0 : f32[T,4]\n  return %v1\n}\n",
        "func @row(%0: f32[T,4], %1: i32[T]) {\n  %v0 = silu %0 : f32[T,4]\n"
        "  %v1 = take %v0, %1 : f32[T,4]\n  return %v1\n}\n",
        "func @row(%0: f32[T,1099511627776]) {\n  %v0 = silu %0 : f32[T,1099511627776]\n"
        "  return %v0\n}\n"}) {
    const auto kernel = BuilderFor(TestedIsas()[0]).Build(absl::StrCat("row ", func));
    EXPECT_EQ(kernel.status().code(), absl::StatusCode::kUnimplemented) << kernel.status();
  }
}

TEST(RowTest, RefusesWhatMixesRows) {
  for (const char* func :
       {"func @row(%0: f32[T,4]) {\n  %v0 = transpose %0 {perm=[1,0]} : f32[4,T]\n  return "
        "%v0\n}\n",
        "func @row(%0: f32[T,4], %1: f32[T,4]) {\n"
        "  %v0 = matmul %0, %1 {transpose_b=1} : f32[T,T]\n  return %v0\n}\n",
        "func @row(%0: f32[T,4]) {\n  %v0 = softmax %0 : f32[T,4]\n  return %v0\n}\n"}) {
    const auto kernel = BuilderFor(TestedIsas()[0]).Build(absl::StrCat("row ", func));
    EXPECT_EQ(kernel.status().code(), absl::StatusCode::kUnimplemented) << kernel.status();
  }
  EXPECT_EQ(BuilderFor(TestedIsas()[0]).Build("row nonsense").status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace quire
