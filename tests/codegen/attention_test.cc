// Attention kernels against the reference interpreter, and against themselves under every page
// size and every division of work.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/substitute.h"
#include "codegen/cpu/abi.h"
#include "codegen/cpu/relative_bias.h"
#include "ir/reference/interpreter.h"
#include "ir/text.h"
#include "tests/codegen/kernel_testing.h"

namespace quire {
namespace {

struct Case {
  int64_t rows, context;
  int64_t hq, hkv, d, dv;
  const char* kv = "f16";
  int64_t page = 16;
  bool causal = true;
  int64_t window = 0;
  double cap = 0, alibi = 0;
  int64_t buckets = 0, distance = 0;  // of relative biases
  bool k_scale = false, v_scale = false;

  AttentionSpec spec() const {
    AttentionSpec s{hq, hkv, d, dv, *ParseDType(kv), page, causal, window};
    s.scale = 1 / std::sqrt(static_cast<double>(d));
    s.cap = cap, s.alibi_max = alibi;
    s.buckets = buckets, s.max_distance = distance, s.both_directions = buckets > 0 && !causal;
    s.k_scale = k_scale, s.v_scale = v_scale;
    return s;
  }
};

std::string Name(const Case& c) {
  return absl::StrCat(SpecText(KernelSpec(c.spec())), " rows=", c.rows, " context=", c.context);
}

// How the work is cut.
struct Cut {
  std::vector<int64_t> queries;  // of each KV head
  bool by_split = false;         // each split on its own, then merged
};

float Rounded(DType dtype, float value) {
  if (dtype == DType::kF16) return F16ToF32(F32ToF16(value));
  if (dtype == DType::kF8E4M3) return F8E4M3ToF32(F32ToF8E4M3(value));
  return dtype == DType::kBF16 ? BF16ToF32(F32ToBF16(value)) : value;
}

class Layer {
 public:
  explicit Layer(const Case& shape)
      : c(shape),
        dtype(*ParseDType(c.kv)),
        q(RandomFloats(static_cast<size_t>(c.rows * c.hq * c.d), 1, 1.5f)),
        k(RandomFloats(static_cast<size_t>(c.context * c.hkv * c.d), 2)),
        v(RandomFloats(static_cast<size_t>(c.context * c.hkv * c.dv), 3)),
        table(RandomFloats(static_cast<size_t>(c.buckets * c.hq), 4)),
        k_scales(RandomFloats(static_cast<size_t>(c.hkv), 5, 0.5f)),
        v_scales(RandomFloats(static_cast<size_t>(c.hkv), 6, 0.5f)) {
    for (float& x : k_scales) x = c.k_scale ? std::exp(x) : 1;
    for (float& x : v_scales) x = c.v_scale ? std::exp(x) : 1;
    for (float& x : k) x = Rounded(dtype, x);
    for (float& x : v) x = Rounded(dtype, x);
  }

  // The pool: pages in a random order, NaN wherever no token was written.
  void FillPool(int64_t page_tokens) {
    const int64_t bytes = InfoOf(dtype).block_bytes;
    const int64_t count = (c.context + page_tokens - 1) / page_tokens;
    page_bytes = (page_tokens * c.hkv * (c.d + c.dv) * bytes + 63) / 64 * 64;
    pool.assign(static_cast<size_t>((count + 2) * page_bytes), 0xff);
    pages.resize(static_cast<size_t>(count));
    std::iota(pages.begin(), pages.end(), 2);
    std::shuffle(pages.begin(), pages.end(), std::mt19937(5));
    const auto put = [&](float value, int64_t at) {
      uint32_t bits;
      std::memcpy(&bits, &value, 4);
      if (dtype == DType::kF16) bits = F32ToF16(value);
      if (dtype == DType::kBF16) bits = F32ToBF16(value);
      if (dtype == DType::kF8E4M3) bits = F32ToF8E4M3(value);
      std::memcpy(&pool[static_cast<size_t>(at)], &bits, static_cast<size_t>(bytes));
    };
    // Tokens before every window may have lost their pages.
    const int64_t first_seen =
        c.window == 0 ? 0 : std::max<int64_t>(0, c.context - c.rows + 1 - c.window);
    for (int64_t token = 0; token < c.context; ++token) {
      const int64_t base = pages[static_cast<size_t>(token / page_tokens)] * page_bytes;
      const int64_t slot = token % page_tokens;
      if (token < first_seen) continue;
      for (int64_t h = 0; h < c.hkv; ++h) {
        for (int64_t i = 0; i < c.d; ++i) {
          put(k[static_cast<size_t>((token * c.hkv + h) * c.d + i)],
              base + ((h * c.d + i) * page_tokens + slot) * bytes);
        }
        for (int64_t i = 0; i < c.dv; ++i) {
          put(v[static_cast<size_t>((token * c.hkv + h) * c.dv + i)],
              base + (c.hkv * c.d * page_tokens + (h * page_tokens + slot) * c.dv + i) * bytes);
        }
      }
    }
    for (int64_t page = 0; page < first_seen / page_tokens; ++page) {
      pages[static_cast<size_t>(page)] = -1000000;
    }
  }

  std::vector<float> Run(const Isa& isa, int64_t page_tokens, const Cut& cut = {}) {
    FillPool(page_tokens);
    AttentionSpec spec = c.spec();
    spec.page_tokens = page_tokens;
    const auto kernel = BuilderFor(isa).Build(SpecText(KernelSpec(spec)));
    EXPECT_TRUE(kernel.ok()) << kernel.status();
    if (!kernel.ok()) return {};
    Guarded<uint8_t> scratch(static_cast<size_t>((*kernel)->scratch_bytes));
    // The sequence's rows stand in the middle of a step.
    constexpr int64_t kBefore = 2;
    std::vector<float> step_q(static_cast<size_t>(kBefore * c.hq * c.d));
    step_q.insert(step_q.end(), q.begin(), q.end());
    Guarded<float> y(static_cast<size_t>(c.rows * c.hq * c.dv));
    const int64_t queries = c.rows * c.hq / c.hkv;
    std::vector<int64_t> edges = cut.queries;
    edges.insert(edges.begin(), 0);
    edges.push_back(queries);
    std::vector<float> biases;
    if (c.buckets > 0) biases = UnrollBiases(spec, table);
    const AttentionTables tables = {biases.data(), k_scales.data(), v_scales.data()};
    const auto main = reinterpret_cast<AttentionEntry>((*kernel)->main);
    float* const step_y = y.data() - kBefore * c.hq * c.dv;
    for (int64_t head = 0; head < c.hkv; ++head) {
      for (size_t i = 0; i + 1 < edges.size(); ++i) {
        AttentionItem item{pages.data(),
                           page_bytes,
                           kBefore,
                           c.rows,
                           c.context,
                           head,
                           edges[i],
                           edges[i + 1],
                           0,
                           (c.context + kSplitTokens - 1) / kSplitTokens,
                           nullptr};
        if (!cut.by_split) {
          main(step_q.data(), pool.data(), step_y, &item, scratch.data(), &tables);
          continue;
        }
        const int64_t splits = item.split_end;
        const int64_t floats = (edges[i + 1] - edges[i]) * (c.dv + 2);
        Guarded<float> partial(static_cast<size_t>(splits * floats));
        for (int64_t split = splits; split-- > 0;) {
          item.split_begin = split, item.split_end = split + 1;
          item.partial = partial.data() + split * floats;
          main(step_q.data(), pool.data(), step_y, &item, scratch.data(), &tables);
        }
        EXPECT_TRUE(partial.GuardsHold());
        item.split_begin = 0, item.split_end = splits, item.partial = partial.data();
        reinterpret_cast<MergeEntry>((*kernel)->merge)(step_y, &item, scratch.data(), &tables);
      }
    }
    EXPECT_TRUE(y.GuardsHold());
    EXPECT_TRUE(scratch.GuardsHold());
    return std::vector<float>(y.data(), y.data() + y.size());
  }

  std::vector<double> Reference() const {
    std::string attrs = absl::StrCat("scale=", c.spec().scale);
    const auto module = Parse(absl::Substitute(
        "func @f(%q: f32[T,$0,$1], %k: f32[C,$2,$1], %v: f32[C,$2,$3]$9) {\n"
        "  %a = attention %q, %k, %v$4, $5scale=$6, cap=$7, alibi_max=$8} : f32[T,$0,$3]\n"
        "  return %a\n}\n",
        c.hq, c.d, c.hkv, c.dv,
        absl::StrCat(c.buckets > 0 ? ", %t" : "", " {mask=", c.causal ? "causal" : "none"),
        absl::StrCat(c.window == 0 ? "" : absl::StrCat("window=", c.window, ", "),
                     c.buckets == 0 ? ""
                                    : absl::StrCat("max_distance=", c.distance,
                                                   ", direction=", c.causal ? "back, " : "both, ")),
        c.spec().scale, c.cap, c.alibi,
        c.buckets == 0 ? "" : absl::StrCat(", %t: f32[", c.buckets, ",", c.hq, "]")));
    EXPECT_TRUE(module.ok()) << module.status();
    if (!module.ok()) return {};
    const auto tensor = [](const std::vector<float>& x, std::vector<int64_t> extents) {
      return reference::Tensor{std::move(extents), std::vector<double>(x.begin(), x.end())};
    };
    reference::Inputs inputs;
    const auto scaled = [&](const std::vector<float>& x, const std::vector<float>& scales,
                            int64_t d) {
      reference::Tensor value = tensor(x, {c.context, c.hkv, d});
      for (size_t i = 0; i < x.size(); ++i) {
        value.values[i] *= static_cast<double>(scales[i / static_cast<size_t>(d) % scales.size()]);
      }
      return value;
    };
    inputs.args = {{"q", tensor(q, {c.rows, c.hq, c.d})},
                   {"k", scaled(k, k_scales, c.d)},
                   {"v", scaled(v, v_scales, c.dv)}};
    if (c.buckets > 0) inputs.args["t"] = tensor(table, {c.buckets, c.hq});
    const auto results = reference::Interpret(*module->funcs[0], inputs);
    EXPECT_TRUE(results.ok()) << results.status();
    return results.ok() ? (*results)[0].values : std::vector<double>();
  }

  const Case c;
  const DType dtype;
  std::vector<float> q, k, v, table;  // k and v as they are kept
  std::vector<float> k_scales, v_scales;
  std::vector<uint8_t> pool;
  std::vector<int32_t> pages;
  int64_t page_bytes = 0;
};

void ExpectMatchesReference(const Case& c) {
  SCOPED_TRACE(Name(c));
  Layer layer(c);
  const std::vector<float> y = layer.Run(TestedIsas()[0], c.page);
  const std::vector<double> want = layer.Reference();
  ASSERT_EQ(y.size(), want.size());
  double largest_v = 0, largest_qk = 0;
  for (float x : layer.v) largest_v = std::max(largest_v, std::fabs(static_cast<double>(x)));
  const auto largest = [](const std::vector<float>& scales) {
    return static_cast<double>(*std::max_element(scales.begin(), scales.end()));
  };
  largest_v *= largest(layer.v_scales);
  // Sum of |q k| of a score: at most |q| |k|.
  const auto norm = [](const std::vector<float>& x, int64_t d) {
    double most = 0;
    for (size_t i = 0; i < x.size(); i += static_cast<size_t>(d)) {
      double sum = 0;
      for (size_t j = i; j < i + static_cast<size_t>(d); ++j) {
        sum += static_cast<double>(x[j]) * static_cast<double>(x[j]);
      }
      most = std::max(most, std::sqrt(sum));
    }
    return most;
  };
  largest_qk = c.spec().scale * norm(layer.q, c.d) * norm(layer.k, c.d) * largest(layer.k_scales);
  constexpr double kEpsilon = 0x1p-24;
  // A score's error moves its weight by as much, relatively; positions add the rounding of a bias
  // as large as the context. Then weights are summed, and outputs over the context.
  double bias = c.alibi == 0 ? 0 : static_cast<double>(c.context) * 0.71;
  for (float x : layer.table) bias = std::max(bias, std::fabs(static_cast<double>(x)));
  const double score_error =
      kEpsilon * (static_cast<double>(c.d + 4) * largest_qk + 2 * bias + 8 * c.cap);
  const double tolerance =
      largest_v * (2 * score_error + kEpsilon * static_cast<double>(c.context / 8 + 64));
  for (size_t i = 0; i < y.size(); ++i) {
    ASSERT_NEAR(static_cast<double>(y[i]), want[i], tolerance) << "element " << i;
  }
}

TEST(AttentionTest, EveryHeadSizeGroupAndType) {
  for (int64_t d : {8, 24, 64, 80, 96, 128, 256}) {
    for (int64_t group : {1, 3, 4, 7, 8, 9}) {
      const char* kv = d % 3 == 0 ? "bf16" : d % 5 == 0 ? "f32" : "f16";
      ExpectMatchesReference({3, 40, 2 * group, 2, d, d == 24 ? 40 : d, kv});
    }
  }
}

TEST(AttentionTest, EveryContextAroundPagesAndSplits) {
  for (int64_t context : {1, 2, 15, 16, 17, 31, 33, 255, 256, 257, 513, 1025}) {
    for (int64_t rows : {1, 2, 17}) {
      if (rows <= context) ExpectMatchesReference({rows, context, 6, 2, 16, 16});
    }
  }
  ExpectMatchesReference({300, 300, 9, 3, 64, 64});
}

TEST(AttentionTest, MasksBiasesAndCaps) {
  for (int64_t window : {1, 5, 16, 300, 2000}) {
    ExpectMatchesReference({9, 700, 4, 2, 32, 32, "f16", 16, true, window});
    ExpectMatchesReference({1, 700, 4, 2, 32, 32, "bf16", 3, true, window});
  }
  for (int64_t heads : {8, 12}) {
    ExpectMatchesReference({5, 600, heads, heads, 32, 32, "f32", 16, true, 0, 0, 8});
  }
  ExpectMatchesReference({5, 300, 4, 1, 32, 32, "f32", 16, true, 0, 30});
  ExpectMatchesReference({5, 300, 4, 2, 32, 16, "f32", 16, true, 40, 3, 8});
  ExpectMatchesReference({5, 300, 4, 2, 32, 32, "f16", 16, false});
  ExpectMatchesReference({5, 300, 4, 2, 32, 32, "f16", 7, false, 0, 0, 8});
}

TEST(AttentionTest, RelativeBiases) {
  for (int64_t context : {1, 40, 700}) {
    const int64_t rows = std::min<int64_t>(context, 9);
    ExpectMatchesReference({rows, context, 4, 4, 16, 16, "f32", 16, true, 0, 0, 0, 32, 128});
    ExpectMatchesReference({context, context, 4, 2, 16, 16, "f32", 16, false, 0, 0, 0, 32, 128});
    ExpectMatchesReference({rows, context, 2, 2, 16, 16, "f16", 3, true, 0, 5, 0, 6, 20});
  }
}

TEST(AttentionTest, F8E4M3) {
  Case c{3, 40, 6, 2, 64, 64, "f8e4m3"};
  for (c.k_scale = false;; c.k_scale = true) {
    for (const int64_t d : {8, 24, 80, 128}) {
      c.d = d, c.dv = d == 24 ? 40 : d, c.v_scale = c.k_scale != (d == 80);
      for (const int64_t page : {1, 7, 16, 64}) {
        c.page = page;
        for (const int64_t context : {3, 40, 257, 700}) {
          c.context = context;
          ExpectMatchesReference(c);
        }
      }
    }
    if (c.k_scale) break;
  }
  c.window = 5, c.cap = 30, c.alibi = 8;
  ExpectMatchesReference(c);
}

// Every number that there is: keys are looked at one by one.
TEST(AttentionTest, EveryF8E4M3IsReadAsItIs) {
  Case c{1, 256, 1, 1, 8, 256, "f8e4m3"};
  Layer layer(c);
  std::fill(layer.q.begin(), layer.q.end(), 0.0f);
  for (size_t i = 0; i < layer.v.size(); ++i) {
    const auto bits = static_cast<uint8_t>(i % 256);
    layer.v[i] = (bits & 0x7f) == 0x7f ? 0 : F8E4M3ToF32(bits);
  }
  for (const Isa& isa : {TestedIsas()[0], BaselineIsa()}) {
    const std::vector<float> y = layer.Run(isa, 16);
    for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(y[i], layer.v[i]) << i;
  }
}

TEST(AttentionTest, NaNOfF8E4M3StaysNaN) {
  Case c{1, 20, 1, 1, 8, 16, "f8e4m3"};
  Layer layer(c);
  layer.v[5] = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> y = layer.Run(TestedIsas()[0], 16);
  for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(std::isnan(y[i]), i == 5) << i;
  layer.v[5] = 1;
  layer.k[5] = std::numeric_limits<float>::quiet_NaN();
  y = layer.Run(TestedIsas()[0], 16);
  EXPECT_TRUE(std::isnan(y[0]));
}

std::vector<Case> BitCases() {
  return {{7, 600, 6, 2, 64, 64},
          {19, 530, 9, 3, 24, 40, "bf16"},
          {6, 700, 8, 1, 16, 16, "f32", 16, true, 300, 20, 8},
          {11, 300, 2, 2, 80, 80, "f16", 16, false},
          {9, 400, 4, 4, 16, 16, "f32", 16, true, 0, 0, 0, 32, 128},
          {9, 600, 6, 2, 64, 80, "f8e4m3", 16, true, 0, 0, 0, 0, 0, true, true}};
}

TEST(AttentionTest, BitsDependOnNoPageSize) {
  for (const Case& c : BitCases()) {
    Layer layer(c);
    const std::vector<float> whole = layer.Run(TestedIsas()[0], 16);
    for (int64_t page : {1, 3, 20, 32, 48, 64, 256, 1024}) {
      EXPECT_EQ(layer.Run(TestedIsas()[0], page), whole) << Name(c) << " page " << page;
    }
  }
}

TEST(AttentionTest, BitsDependOnNoDivisionOfWork) {
  for (const Case& c : BitCases()) {
    Layer layer(c);
    const std::vector<float> whole = layer.Run(TestedIsas()[0], 16);
    const int64_t group = c.hq / c.hkv;
    std::vector<int64_t> rows, queries;
    for (int64_t i = 1; i < c.rows; ++i) rows.push_back(i * group);
    for (int64_t i = 1; i < c.rows * group; ++i) queries.push_back(i);
    for (const Cut& cut :
         {Cut{rows}, Cut{queries}, Cut{{5}}, Cut{{}, true}, Cut{rows, true}, Cut{{3, 4}, true}}) {
      EXPECT_EQ(layer.Run(TestedIsas()[0], 16, cut), whole) << Name(c);
    }
    EXPECT_EQ(layer.Run(TestedIsas()[0], 3, {rows, true}), whole) << Name(c);
  }
}

TEST(AttentionTest, BitsDependOnNoChunk) {
  // The last row of a prompt in one piece, and alone with the rest in the cache.
  for (Case c : BitCases()) {
    if (!c.causal) continue;
    Layer whole(c);
    const std::vector<float> y = whole.Run(TestedIsas()[0], 16);
    const size_t row = static_cast<size_t>(c.hq * c.dv), queries = static_cast<size_t>(c.hq * c.d);
    const std::vector<float> last(y.end() - static_cast<int64_t>(row), y.end());
    Case one = c;
    one.rows = 1;
    Layer alone(one);
    alone.q.assign(whole.q.end() - static_cast<int64_t>(queries), whole.q.end());
    EXPECT_EQ(alone.Run(TestedIsas()[0], 16), last) << Name(c);
  }
}

TEST(AttentionTest, BitsDependOnNoInstructionSet) {
  for (const Case& c : BitCases()) {
    Layer layer(c);
    EXPECT_EQ(layer.Run(BaselineIsa(), 16), layer.Run(TestedIsas()[0], 16)) << Name(c);
  }
}

}  // namespace
}  // namespace quire
