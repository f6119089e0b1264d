// Steps of attention by the kernels' source run on the CPU, and what they should give.
#ifndef QUIRE_TESTS_CODEGEN_CUDA_ATTENTION_EMULATED_H_
#define QUIRE_TESTS_CODEGEN_CUDA_ATTENTION_EMULATED_H_

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "codegen/cuda/attention.h"
#include "codegen/cuda/kernels/step.cuh"
#include "codegen/relative_bias.h"
#include "gtest/gtest.h"
#include "tests/codegen/cuda_attention_kernels.h"
#include "tests/codegen/cuda_emulator.h"

namespace quire::emulated {

// A sequence of a step. Values are drawn by its seed and the token's position, so that they do not
// depend on the step.
struct Part {
  int seed, rows, context;
};

inline float Value(const char* what, int seed, int64_t position, int64_t element) {
  testing::Random random(static_cast<uint64_t>(what[0] * 1009 + seed) * 1000003 +
                         static_cast<uint64_t>(position * 4099 + element));
  return static_cast<float>(random.Uniform() * 4 - 2);
}

// Rows of y by (seed, position), as bits.
using Rows = std::map<std::pair<int, int>, std::vector<uint16_t>>;

// The kernel of one namespace; `run_many` runs its entry for many rows on `operands`.
#define QUIRE_KERNEL_BY(name, many_bytes, run_many)                                                \
  struct name##_kernel {                                                                           \
    using Element = name##_few::Element;                                                           \
    using KvElement = name##_few::KvElement;                                                       \
    using Operands = name##_few::AttentionOperands;                                                \
    static constexpr int kFewThreads = name##_few::kThreads, kManyThreads = name##_many::kThreads; \
    static constexpr int kSharedBytes = name##_few::kFewBytes + many_bytes + 1024;                 \
    static AttentionSpec Spec() {                                                                  \
      using namespace name##_few;                                                                  \
      AttentionSpec spec;                                                                          \
      spec.hq = kHq, spec.hkv = kHkv, spec.d = kD, spec.dv = kDv;                                  \
      spec.kv = spec.x = kIsBf16 ? DType::kBF16 : DType::kF16;                                     \
      if (sizeof(KvElement) == 1) spec.kv = DType::kF8E4M3;                                        \
      spec.k_scale = kKeyScales, spec.v_scale = kValueScales;                                      \
      spec.page_tokens = kPageTokens, spec.causal = kCausal, spec.window = kWindow;                \
      spec.scale = kScale, spec.cap = kCap, spec.alibi_max = kAlibi ? 8 : 0;                       \
      spec.bias_distances = kBiasDistances, spec.sinks = kSinks, spec.tree_words = kTreeWords;     \
      return spec;                                                                                 \
    }                                                                                              \
    static void AttendFew(const Operands& operands) { name##_few::Attention::Run(operands); }      \
    static void AttendShort(const Operands& operands) {                                            \
      name##_few::AttentionShort::Run(operands);                                                   \
    }                                                                                              \
    static void AttendMany(const Operands& few_operands, [[maybe_unused]] int64_t query_rows) {    \
      const auto& operands =                                                                       \
          reinterpret_cast<const name##_many::AttentionOperands&>(few_operands);                   \
      run_many;                                                                                    \
    }                                                                                              \
    static void Plan(const StepHeader* header, const StepSequence* sequences, uint8_t* plan,       \
                     int few_tiles, int many_tiles, int blocks, int multiprocessors) {             \
      name##_few::AttentionPlan::Run(header, sequences, plan,                                      \
                                     {few_tiles, many_tiles, blocks, multiprocessors});            \
    }                                                                                              \
  };
#define QUIRE_KERNEL(name) \
  QUIRE_KERNEL_BY(name, name##_many::kPlacesAt, name##_many::Attention::Run(operands))
#define QUIRE_WARPGROUP_KERNEL_BY(name, body)                                              \
  QUIRE_KERNEL_BY(                                                                         \
      name, name##_many::AttentionRing::kNotesAt,                                          \
      (name##_many::body::Run(                                                             \
          operands,                                                                        \
          TensorMap{operands.layer, 1 << 30, name##_many::kD * int{sizeof(KvElement)} / 2, \
                    name##_many::AttentionRing::kRunTokens},                               \
          TensorMap{operands.q, query_rows * name##_many::kHq, name##_many::kD,            \
                    name##_many::AttentionRing::kGroupRows, name##_many::kHq,              \
                    name##_many::kGroup})))
#define QUIRE_WARPGROUP_KERNEL(name) QUIRE_WARPGROUP_KERNEL_BY(name, AttentionWarpgroup)
QUIRE_KERNEL(plain)
QUIRE_KERNEL(paged)
QUIRE_KERNEL(windowed)
QUIRE_KERNEL(full)
QUIRE_KERNEL(tree)
QUIRE_KERNEL(group)
QUIRE_WARPGROUP_KERNEL(warpgroup)
QUIRE_WARPGROUP_KERNEL(warpgroup_wide)
QUIRE_WARPGROUP_KERNEL(warpgroup_padded)
QUIRE_WARPGROUP_KERNEL_BY(wide, AttentionWide)
QUIRE_WARPGROUP_KERNEL_BY(wide_windowed, AttentionWide)
QUIRE_WARPGROUP_KERNEL(warpgroup_windowed)
QUIRE_WARPGROUP_KERNEL(warpgroup_full)
QUIRE_WARPGROUP_KERNEL(warpgroup_tree)
QUIRE_KERNEL(grouped)

// The operands of attention in double, rounded to the kernel's type.
template <typename Kernel>
struct Model {
  using Element = typename Kernel::Element;
  using KvElement = typename Kernel::KvElement;
  AttentionSpec spec = SpecOf();

  // Where every row sees everything, biases by distance are those of buckets on both sides.
  static AttentionSpec SpecOf() {
    AttentionSpec spec = Kernel::Spec();
    if (spec.causal || spec.bias_distances == 0) return spec;
    spec.buckets = 8, spec.max_distance = spec.bias_distances / 2, spec.both_directions = true;
    EXPECT_EQ(BiasDistances(spec), spec.bias_distances);
    spec.bias_distances = 0;
    return spec;
  }

  Element Query(const Part& part, int64_t position, int64_t element) const {
    return FromFloat<Element>(Value("q", part.seed, position, element));
  }
  // As pages keep it.
  static KvElement Kept(float value) {
    if constexpr (sizeof(KvElement) == 1) {
      return {F32ToF8E4M3(value)};
    } else {
      return FromFloat<KvElement>(value);
    }
  }
  KvElement Key(const Part& part, int64_t position, int64_t element) const {
    return Kept(Value("k", part.seed, position, element));
  }
  KvElement Worth(const Part& part, int64_t position, int64_t element) const {
    return Kept(Value("v", part.seed, position, element));
  }
  static double Number(KvElement kept) {
    if constexpr (sizeof(KvElement) == 1) {
      return double{F8E4M3ToF32(kept.bits)};
    } else {
      return double{ToFloat(kept)};
    }
  }
  // Between a half and two.
  float Scale(const char* what, int64_t head) const {
    return std::exp2(Value(what, 1, 0, head) / 2);
  }
  double KeyScale(int64_t head) const { return spec.k_scale ? Scale("K", head) : 1; }
  double ValueScale(int64_t head) const { return spec.v_scale ? Scale("V", head) : 1; }
  float Bias(int64_t head, int64_t index) const { return Value("b", 0, head, index); }
  float Sink(int64_t head) const { return Value("s", 0, head, 0); }
  // Whether a step's row sees the step's own token: itself, and a third of those before it.
  static bool Branch(int64_t row, int64_t own) { return own == row || (own * 7 + row) % 3 == 0; }

  bool Sees(const Part& part, int64_t row, int64_t token) const {
    const int64_t own_begin = part.context - part.rows, position = own_begin + row;
    if (!spec.causal) return true;
    if (token > position || (spec.window > 0 && position - token >= spec.window)) return false;
    const int64_t own = token - own_begin;
    return own < 0 || own >= 32 * spec.tree_words || Branch(row, own);
  }

  // y of a row and a head, and the sum of |p v| / l that its error is measured by.
  void Expected(const Part& part, int64_t row, int64_t head, std::vector<double>& y,
                std::vector<double>& size) const {
    const int64_t position = part.context - part.rows + row, kv = head / (spec.hq / spec.hkv);
    y.assign(static_cast<size_t>(spec.dv), 0);
    size.assign(static_cast<size_t>(spec.dv), 0);
    double sum = spec.sinks ? std::exp(Sink(head)) : 0;
    for (int64_t token = 0; token < part.context; ++token) {
      if (!Sees(part, row, token)) continue;
      double score = 0;
      for (int64_t i = 0; i < spec.d; ++i) {
        score += double{ToFloat(Query(part, position, head * spec.d + i))} *
                 Number(Key(part, token, kv * spec.d + i));
      }
      score *= spec.scale * KeyScale(kv);
      if (spec.cap > 0) score = spec.cap * std::tanh(score / spec.cap);
      if (spec.alibi_max > 0) {
        score += std::exp2(-spec.alibi_max / static_cast<double>(spec.hq) *
                           static_cast<double>(head + 1)) *
                 static_cast<double>(token - position);
      }
      if (spec.bias_distances > 0) {
        const int64_t zero = spec.causal ? 0 : spec.bias_distances / 2;
        score +=
            Bias(head, std::clamp<int64_t>(position - token + zero, 0, spec.bias_distances - 1));
      }
      if (spec.buckets > 0) score += Bias(head, BucketOfDistance(spec, token - position));
      const double p = std::exp(score);
      sum += p;
      for (int64_t i = 0; i < spec.dv; ++i) {
        const double value = p * ValueScale(kv) * Number(Worth(part, token, kv * spec.dv + i));
        y[static_cast<size_t>(i)] += value;
        size[static_cast<size_t>(i)] += std::abs(value);
      }
    }
    for (size_t i = 0; i < y.size(); ++i) {
      if (sum == 0) continue;
      y[i] /= sum;
      size[i] /= sum;
    }
  }
};

constexpr int kPaddingRows = 3;
constexpr uint16_t kPoison = 0xffff;

// One step of `parts` on about `blocks` blocks.
template <typename Kernel>
Rows RunStep(const std::vector<Part>& parts, int blocks, uint64_t seed = 1) {
  using Element = typename Kernel::Element;
  const Model<Kernel> model;
  const AttentionSpec& spec = model.spec;
  const auto kernel = MakeCudaAttention(spec, {9, 0, 232448, blocks});
  EXPECT_TRUE(kernel.ok()) << kernel.status();
  if (!kernel.ok()) return {};

  StepHeader header = {};
  std::vector<StepSequence> sequences;
  std::vector<int> pages;
  for (const Part& part : parts) {
    sequences.push_back({header.rows, part.rows, part.context, static_cast<int>(pages.size())});
    header.rows += part.rows;
    const auto count = (part.context + spec.page_tokens - 1) / spec.page_tokens;
    pages.resize(pages.size() + static_cast<size_t>(count));
  }
  header.sequences = static_cast<int>(parts.size());
  header.pages = static_cast<int>(pages.size());
  std::iota(pages.begin(), pages.end(), 0);
  testing::Random random(seed);
  for (size_t i = pages.size(); i > 1; --i) {
    std::swap(pages[i - 1], pages[static_cast<size_t>(random.Below(static_cast<int64_t>(i)))]);
  }

  // Everything that no token was written to is NaN.
  const int64_t page_elements = spec.hkv * spec.page_tokens * (spec.d + spec.dv);
  using KvElement = typename Kernel::KvElement;
  std::vector<KvElement> pool(static_cast<size_t>(header.pages * page_elements));
  std::memset(pool.data(), 0xff, pool.size() * sizeof(KvElement));
  std::vector<Element> q(static_cast<size_t>((header.rows + kPaddingRows) * spec.hq * spec.d),
                         Element{kPoison});
  std::vector<uint32_t> tree(static_cast<size_t>(header.rows * spec.tree_words), 0u);
  for (size_t s = 0; s < parts.size(); ++s) {
    const Part& part = parts[s];
    const int own_begin = part.context - part.rows;
    for (int token = 0; token < part.context; ++token) {
      int& page = pages[static_cast<size_t>(sequences[s].pages_begin + token / spec.page_tokens)];
      if (page < 0) continue;
      if (spec.window > 0 && token <= own_begin - spec.window) {
        // The page goes when its last token is before every window.
        if ((token + 1) % spec.page_tokens == 0) page = -1000000;
        continue;
      }
      for (int64_t h = 0; h < spec.hkv; ++h) {
        KvElement* key = &pool[static_cast<size_t>(
            page * page_elements + (h * spec.page_tokens + token % spec.page_tokens) * spec.d)];
        KvElement* value =
            &pool[static_cast<size_t>(page * page_elements + spec.hkv * spec.page_tokens * spec.d +
                                      (h * spec.page_tokens + token % spec.page_tokens) * spec.dv)];
        for (int64_t i = 0; i < spec.d; ++i) key[i] = model.Key(part, token, h * spec.d + i);
        for (int64_t i = 0; i < spec.dv; ++i) value[i] = model.Worth(part, token, h * spec.dv + i);
      }
    }
    for (int row = 0; row < part.rows; ++row) {
      for (int64_t i = 0; i < spec.hq * spec.d; ++i) {
        q[static_cast<size_t>((sequences[s].first_row + row) * spec.hq * spec.d + i)] =
            model.Query(part, own_begin + row, i);
      }
      for (int own = 0; own < 32 * spec.tree_words; ++own) {
        // Bits of tokens that are not before the row are as they come.
        const bool bit = own > row ? own % 2 == 0 : model.Branch(row, own);
        tree[static_cast<size_t>((sequences[s].first_row + row) * spec.tree_words + own / 32)] |=
            static_cast<uint32_t>(bit) << (own % 32);
      }
    }
  }
  std::vector<float> bias, sinks, key_scales, value_scales;
  for (int64_t head = 0; head < spec.hkv; ++head) {
    key_scales.push_back(static_cast<float>(model.KeyScale(head)));
    value_scales.push_back(static_cast<float>(model.ValueScale(head)));
  }
  for (int64_t head = 0; head < spec.hq; ++head) {
    for (int64_t i = 0; i < spec.bias_distances; ++i) bias.push_back(model.Bias(head, i));
    sinks.push_back(model.Sink(head));
  }
  if (spec.buckets > 0) {
    std::vector<float> table;
    for (int64_t bucket = 0; bucket < spec.buckets; ++bucket) {
      for (int64_t head = 0; head < spec.hq; ++head) table.push_back(model.Bias(head, bucket));
    }
    bias = BiasesByDistance(spec, table);
  }

  const CudaKernel::Preparation preparation =
      (*kernel)->Prepare(header.rows + kPaddingRows, header.sequences, header.pages);
  const CudaLaunch& plan_launch = preparation.launches.at(0);
  const auto limit = [&](size_t i) { return static_cast<int>(plan_launch.arguments.at(i).value); };
  const CudaLaunches launches = (*kernel)->Launches(header.rows + kPaddingRows);
  const auto plan_shared =
      static_cast<size_t>((*kernel)->entries().at(plan_launch.entry).shared_bytes);
  std::vector<Words4> plan(static_cast<size_t>(preparation.plan_bytes + 15) / 16 + 1,
                           Words4{~0u, ~0u, ~0u, ~0u});
  auto* plan_bytes = reinterpret_cast<uint8_t*>(plan.data());
  RunGrid({plan_launch.grid, Kernel::kFewThreads, plan_shared, nullptr, 0, seed}, [&] {
    Kernel::Plan(&header, sequences.data(), plan_bytes, limit(3), limit(4), limit(5), limit(6));
  });

  std::vector<Element> y(static_cast<size_t>((header.rows + kPaddingRows) * spec.hq * spec.dv));
  const int q_rows = header.rows + kPaddingRows;
  Rows result;
  for (int layer = 0; layer < 2; ++layer) {  // a plan is for many launches
    std::fill(y.begin(), y.end(), Element{kPoison});
    const typename Kernel::Operands operands{
        q.data(),     pool.data(), key_scales.data(), value_scales.data(), bias.data(),
        sinks.data(), tree.data(), y.data(),          pages.data(),        plan_bytes};
    for (const CudaLaunch& launch : launches.launches) {
      const auto has_work = [&](const Part& part) {
        return launch.work.HasWork(part.rows, part.context);
      };
      if (std::none_of(parts.begin(), parts.end(), has_work)) continue;
      const std::string& entry = (*kernel)->entries().at(launch.entry).entry;
      const bool many = entry == "attention_many";
      RunGrid({launch.grid, many ? Kernel::kManyThreads : Kernel::kFewThreads, Kernel::kSharedBytes,
               q.data(), q.size() * sizeof(Element), seed + static_cast<uint64_t>(layer)},
              [&] {
                if (many) return Kernel::AttendMany(operands, q_rows);
                entry == "attention_few" ? Kernel::AttendFew(operands)
                                         : Kernel::AttendShort(operands);
              });
    }
    if (parts.size() == 1) break;
  }
  EXPECT_EQ(plan.back().w, ~0u) << "the plan is longer than was said";
  for (size_t s = 0; s < parts.size(); ++s) {
    for (int row = 0; row < parts[s].rows; ++row) {
      auto& bits = result[{parts[s].seed, parts[s].context - parts[s].rows + row}];
      for (int64_t i = 0; i < spec.hq * spec.dv; ++i) {
        bits.push_back(
            y[static_cast<size_t>((sequences[s].first_row + row) * spec.hq * spec.dv + i)].bits);
      }
    }
  }
  for (size_t i = static_cast<size_t>(header.rows * spec.hq * spec.dv); i < y.size(); ++i) {
    EXPECT_EQ(y[i].bits, kPoison) << "a padding row was written";
  }
  return result;
}

// |y - expected| is bounded by what the roundings do. p and y are rounded to a type of `epsilon`
// (half a unit in the last place): p's error moves sum and sum of p v by epsilon of them each; a
// score s has been summed over d in f32 with truncation (2^-22 d |q||k| scale, scores below 40
// here), as have l and o (2^-22 a step of 16 tokens).
template <typename Kernel>
void ExpectClose(const std::vector<Part>& parts, const Rows& rows) {
  using Element = typename Kernel::Element;
  const Model<Kernel> model;
  const double epsilon = model.spec.x == DType::kBF16 ? 0x1p-8 : 0x1p-11;
  std::vector<double> y, size;
  for (const Part& part : parts) {
    for (int row = 0; row < part.rows; ++row) {
      const auto& bits = rows.at({part.seed, part.context - part.rows + row});
      for (int64_t head = 0; head < model.spec.hq; ++head) {
        model.Expected(part, row, head, y, size);
        for (int64_t i = 0; i < model.spec.dv; ++i) {
          const float got = ToFloat(Element{bits[static_cast<size_t>(head * model.spec.dv + i)]});
          const double want = y[static_cast<size_t>(i)];
          const double chains =
              0x1p-22 * (static_cast<double>(model.spec.d) * 4 * model.spec.scale *
                             model.KeyScale(head / (model.spec.hq / model.spec.hkv)) +
                         part.context / 16.0 + 4);
          const double bound = (2 * epsilon + 2 * chains) * size[static_cast<size_t>(i)] +
                               epsilon * std::abs(want) + 0x1p-24;
          ASSERT_LE(std::abs(got - want), bound)
              << SpecText(KernelSpec(model.spec)) << " rows " << part.rows << " context "
              << part.context << " row " << row << " head " << head << " element " << i << " is "
              << got << ", not " << want;
        }
      }
    }
  }
}

inline void ExpectSame(const Rows& some, const Rows& all, const char* what) {
  for (const auto& [row, bits] : some) {
    ASSERT_TRUE(all.contains(row));
    ASSERT_EQ(bits, all.at(row)) << what << ": sequence " << row.first << " position "
                                 << row.second;
  }
}

}  // namespace quire::emulated

#endif  // QUIRE_TESTS_CODEGEN_CUDA_ATTENTION_EMULATED_H_
