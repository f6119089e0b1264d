// bench_cuda_attention check.
#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <numeric>
#include <random>
#include <thread>

#include "absl/strings/str_cat.h"
#include "tools/bench/cuda_attention_step.h"

namespace quire::bench {
namespace {

// A sequence of a step, its values drawn by its seed and the token's position.
struct Sequence {
  int seed;
  Part part;
};

uint64_t Mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}
float Value(char what, int seed, int64_t position, int64_t element) {
  const uint64_t bits = Mix(Mix(static_cast<uint64_t>(what * 1009 + seed) * 0x9e3779b97f4a7c15u +
                                static_cast<uint64_t>(position)) +
                            static_cast<uint64_t>(element) * 0x9e3779b97f4a7c15u);
  return static_cast<float>(static_cast<double>(bits >> 11) * 0x1p-53 * 4 - 2);
}
uint16_t Rounded(DType dtype, float x) {
  if (dtype == DType::kF8E4M3) return F32ToF8E4M3(x);
  return dtype == DType::kBF16 ? F32ToBF16(x) : F32ToF16(x);
}
float Widened(DType dtype, uint16_t x) {
  if (dtype == DType::kF8E4M3) return F8E4M3ToF32(static_cast<uint8_t>(x));
  return dtype == DType::kBF16 ? BF16ToF32(x) : F16ToF32(x);
}
// Between a half and two.
float Scale(bool has_scale, char what, int64_t head) {
  return has_scale ? std::exp2(Value(what, 1, 0, head) / 2) : 1;
}

constexpr uint16_t kPoison = 0xffff;

// The step's own tokens that a row sees, where the spec has a tree.
bool Branch(int64_t row, int64_t own) { return own == row || (own * 7 + row) % 3 == 0; }

// Rows of y by (seed, position).
using Rows = std::map<std::pair<int, int>, std::vector<uint16_t>>;

struct Reference {
  const AttentionSpec& spec;

  double Score(const Sequence& sequence, int64_t row, int64_t head, int64_t token,
               const std::vector<float>& q) const {
    const int64_t position = sequence.part.context - sequence.part.rows + row;
    const int64_t kv = head / (spec.hq / spec.hkv);
    double score = 0;
    for (int64_t i = 0; i < spec.d; ++i) {
      const uint16_t key = Rounded(spec.kv, Value('k', sequence.seed, token, kv * spec.d + i));
      score += double{q[static_cast<size_t>(i)]} * Widened(spec.kv, key);
    }
    score *= spec.scale * Scale(spec.k_scale, 'K', kv);
    if (spec.cap > 0) score = spec.cap * std::tanh(score / spec.cap);
    if (spec.alibi_max > 0) {
      const auto lower = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(spec.hq)));
      const double step = spec.alibi_max / static_cast<double>(lower);
      const double power = head < lower ? step * static_cast<double>(head + 1)
                                        : step / 2 * static_cast<double>(2 * (head - lower) + 1);
      score += std::exp2(-power) * static_cast<double>(token - position);
    }
    if (spec.bias_distances > 0) {
      const int64_t zero = spec.causal ? 0 : spec.bias_distances / 2;
      score += Value('b', 0, head,
                     std::clamp<int64_t>(position - token + zero, 0, spec.bias_distances - 1));
    }
    return score;
  }
  bool Sees(const Sequence& sequence, int64_t row, int64_t token) const {
    const int64_t own_begin = sequence.part.context - sequence.part.rows;
    const int64_t position = own_begin + row, own = token - own_begin;
    if (!spec.causal) return true;
    if (token > position || (spec.window > 0 && position - token >= spec.window)) return false;
    return own < 0 || own >= 32 * spec.tree_words || Branch(row, own);
  }

  // The largest error of a row and head, as a share of what roundings may do (tests/codegen/
  // cuda_attention_emulated_test.cc has the derivation; 2^x here is within 2 ulp more).
  double Error(const Sequence& sequence, int64_t row, int64_t head,
               const std::vector<uint16_t>& y) const {
    const int64_t position = sequence.part.context - sequence.part.rows + row;
    const int64_t kv = head / (spec.hq / spec.hkv);
    std::vector<float> q;
    for (int64_t i = 0; i < spec.d; ++i) {
      q.push_back(
          Widened(spec.x, Rounded(spec.x, Value('q', sequence.seed, position, head * spec.d + i))));
    }
    std::vector<double> sums(static_cast<size_t>(spec.dv)), sizes(sums);
    double sum = spec.sinks ? std::exp(double{Value('s', 0, head, 0)}) : 0;
    for (int64_t token = 0; token < sequence.part.context; ++token) {
      if (!Sees(sequence, row, token)) continue;
      const double p = std::exp(Score(sequence, row, head, token, q));
      sum += p;
      for (int64_t i = 0; i < spec.dv; ++i) {
        const uint16_t value = Rounded(spec.kv, Value('v', sequence.seed, token, kv * spec.dv + i));
        const double term = p * Scale(spec.v_scale, 'V', kv) * Widened(spec.kv, value);
        sums[static_cast<size_t>(i)] += term;
        sizes[static_cast<size_t>(i)] += std::abs(term);
      }
    }
    const double epsilon = spec.x == DType::kBF16 ? 0x1p-8 : 0x1p-11;
    double worst = 0;
    for (int64_t i = 0; i < spec.dv; ++i) {
      const auto at = static_cast<size_t>(i);
      const double want = sum == 0 ? 0 : sums[at] / sum, size = sum == 0 ? 0 : sizes[at] / sum;
      const double got = Widened(spec.x, y[static_cast<size_t>(head * spec.dv + i)]);
      const double chains =
          0x1p-22 * (static_cast<double>(spec.d) * 4 * spec.scale * Scale(spec.k_scale, 'K', kv) +
                     sequence.part.context / 16.0 + 8);
      const double bound = (2 * epsilon + 2 * chains) * size + epsilon * std::abs(want) + 0x1p-24;
      const double share = std::abs(got - want) / bound;
      worst = share <= worst ? worst : share;  // a NaN stays
      if (std::isnan(share)) return share;
    }
    return worst;
  }
};

// Operands of `sequences` in a step, and its results.
class Checked {
 public:
  Checked(const Gpu& gpu, const LoadedAttention& attention) : gpu_(gpu), attention_(attention) {}

  // The sequences of a step in memory, in pages in an order of `seed`.
  void Load(AttentionStep& step, CuDevicePtr layer, const std::vector<Sequence>& sequences,
            int padding, uint64_t seed) {
    const AttentionSpec& spec = attention_.spec;
    std::vector<Part> parts;
    std::vector<int> pages;
    int rows = 0;
    for (const Sequence& sequence : sequences) {
      parts.push_back(sequence.part);
      rows += sequence.part.rows;
      const auto count = (sequence.part.context + spec.page_tokens - 1) / spec.page_tokens;
      pages.resize(pages.size() + static_cast<size_t>(count));
    }
    std::iota(pages.begin(), pages.end(), 0);
    std::mt19937_64 random(seed);
    std::shuffle(pages.begin(), pages.end(), random);
    const int64_t page_elements = spec.hkv * spec.page_tokens * (spec.d + spec.dv);
    const auto element_bytes = static_cast<size_t>(InfoOf(spec.kv).block_bytes);
    std::vector<uint8_t> pool(pages.size() * static_cast<size_t>(page_elements) * element_bytes,
                              0xff);
    const auto put = [&](int64_t at, float x) {
      const uint16_t bits = Rounded(spec.kv, x);
      std::memcpy(pool.data() + static_cast<size_t>(at) * element_bytes, &bits, element_bytes);
    };
    std::vector<uint16_t> q(static_cast<size_t>((rows + padding) * spec.hq * spec.d), kPoison);
    std::vector<uint32_t> tree(static_cast<size_t>(rows * spec.tree_words));
    std::vector<float> bias, sinks, key_scales, value_scales;
    for (int64_t head = 0; head < spec.hkv; ++head) {
      key_scales.push_back(Scale(spec.k_scale, 'K', head));
      value_scales.push_back(Scale(spec.v_scale, 'V', head));
    }
    size_t first_page = 0, first_row = 0;
    for (const Sequence& sequence : sequences) {
      const int own_begin = sequence.part.context - sequence.part.rows;
      for (int64_t token = 0; token < sequence.part.context; ++token) {
        int& page = pages[first_page + static_cast<size_t>(token / spec.page_tokens)];
        if (spec.window > 0 && token <= own_begin - spec.window) {
          if ((token + 1) % spec.page_tokens == 0) page = -1000000;
          continue;
        }
        const int64_t slot = token % spec.page_tokens;
        for (int64_t h = 0; h < spec.hkv; ++h) {
          const int64_t key = page * page_elements + (h * spec.page_tokens + slot) * spec.d;
          const int64_t value = page * page_elements + spec.hkv * spec.page_tokens * spec.d +
                                (h * spec.page_tokens + slot) * spec.dv;
          for (int64_t i = 0; i < spec.d; ++i) {
            put(key + i, Value('k', sequence.seed, token, h * spec.d + i));
          }
          for (int64_t i = 0; i < spec.dv; ++i) {
            put(value + i, Value('v', sequence.seed, token, h * spec.dv + i));
          }
        }
      }
      first_page +=
          static_cast<size_t>((sequence.part.context + spec.page_tokens - 1) / spec.page_tokens);
      for (int64_t row = 0; row < sequence.part.rows; ++row, ++first_row) {
        for (int64_t i = 0; i < spec.hq * spec.d; ++i) {
          q[first_row * static_cast<size_t>(spec.hq * spec.d) + static_cast<size_t>(i)] =
              Rounded(spec.x, Value('q', sequence.seed, own_begin + row, i));
        }
        for (int64_t own = 0; own < 32 * spec.tree_words; ++own) {
          const bool bit = own > row ? own % 2 == 0 : Branch(row, own);
          tree[first_row * static_cast<size_t>(spec.tree_words) + static_cast<size_t>(own / 32)] |=
              static_cast<uint32_t>(bit) << (own % 32);
        }
      }
    }
    for (int64_t head = 0; head < spec.hq; ++head) {
      for (int64_t i = 0; i < spec.bias_distances; ++i) bias.push_back(Value('b', 0, head, i));
      sinks.push_back(Value('s', 0, head, 0));
    }
    const auto upload = [&](CuDevicePtr to, const auto& values) {
      if (!values.empty()) gpu_.Upload(to, values.data(), values.size() * sizeof values[0]);
    };
    upload(layer, pool), upload(step.q, q), upload(step.bias, bias), upload(step.sinks, sinks);
    upload(step.tree, tree);
    upload(step.key_scales, key_scales), upload(step.value_scales, value_scales);
    step.SetBatch(parts, pages);
    gpu_.Fill(step.y, 0xff, static_cast<size_t>((rows + padding) * spec.hq * spec.dv * 2));
  }

  Rows Results(const AttentionStep& step, const std::vector<Sequence>& sequences, int padding) {
    const AttentionSpec& spec = attention_.spec;
    int rows = 0;
    for (const Sequence& sequence : sequences) rows += sequence.part.rows;
    const auto row_elements = static_cast<size_t>(spec.hq * spec.dv);
    std::vector<uint16_t> y(static_cast<size_t>(rows + padding) * row_elements);
    gpu_.Download(y.data(), step.y, y.size() * 2);
    Rows results;
    size_t at = 0;
    for (const Sequence& sequence : sequences) {
      const Part& part = sequence.part;
      for (int row = 0; row < part.rows; ++row, at += row_elements) {
        const auto begin = y.begin() + static_cast<int64_t>(at);
        results[{sequence.seed, part.context - part.rows + row}] = {
            begin, begin + static_cast<int64_t>(row_elements)};
      }
    }
    for (; at < y.size(); ++at) padding_written |= y[at] != kPoison;
    return results;
  }

  Rows Run(const std::vector<Sequence>& sequences, uint64_t seed) {
    constexpr int kPadding = 2;
    int64_t rows = kPadding, pages = 0;
    for (const Sequence& sequence : sequences) {
      rows += sequence.part.rows;
      pages += sequence.part.context / attention_.spec.page_tokens + 1;
    }
    const AttentionSpec& spec = attention_.spec;
    AttentionStep step(gpu_, attention_, rows, static_cast<int64_t>(sequences.size()), pages);
    const CuDevicePtr layer = gpu_.Allocate(
        static_cast<size_t>(pages * spec.hkv * spec.page_tokens * (spec.d + spec.dv) * 2));
    Load(step, layer, sequences, kPadding, seed);
    step.Prepare();
    step.Attend(layer, 0, false);
    step.Attend(layer);  // counters are as the first left them
    const Rows results = Results(step, sequences, kPadding);
    gpu_.Free(layer);
    return results;
  }

  bool padding_written = false;

 private:
  const Gpu& gpu_;
  const LoadedAttention& attention_;
};

// The largest error of a step's rows, as a share of its bound.
double WorstError(const AttentionSpec& spec, const std::vector<Sequence>& sequences,
                  const Rows& rows) {
  struct Item {
    const Sequence* sequence;
    int row;
  };
  std::vector<Item> items;
  for (const Sequence& sequence : sequences) {
    for (int row = 0; row < sequence.part.rows; ++row) items.push_back({&sequence, row});
  }
  std::atomic<size_t> next = 0;
  std::vector<double> worst(std::max(1u, std::thread::hardware_concurrency()));
  std::vector<std::thread> threads;
  for (double& mine : worst) {
    threads.emplace_back([&] {
      for (size_t at; (at = next++) < items.size();) {
        const Sequence& sequence = *items[at].sequence;
        const int row = items[at].row;
        const auto& y = rows.at({sequence.seed, sequence.part.context - sequence.part.rows + row});
        // All heads of few rows, and a few of many.
        for (int64_t head = row % 3; head < spec.hq; head += sequence.part.rows > 8 ? 5 : 1) {
          const double error = Reference{spec}.Error(sequence, row, head, y);
          if (!(error <= mine)) mine = error;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  double all = 0;
  for (double mine : worst) {
    if (!(mine <= all)) all = mine;
  }
  return all;
}

int64_t Differing(const Rows& some, const Rows& all) {
  int64_t count = 0;
  for (const auto& [row, bits] : some) count += bits != all.at(row);
  return count;
}

const std::vector<Sequence> kMixed = {{1, {1, 300}}, {2, {1, 1}},    {3, {5, 70}},
                                      {4, {90, 90}}, {5, {1, 2100}}, {6, {33, 613}},
                                      {7, {4, 257}}, {8, {1, 64}},   {9, {130, 400}}};
// For a sanitizer: as many kinds of work, chunks that blocks share and tiles that they do not fill.
const std::vector<Sequence> kSmall = {
    {1, {1, 300}}, {2, {1, 1}}, {3, {5, 70}}, {5, {1, 700}}, {6, {33, 290}}};

// One case's line; returns what is wrong.
int CheckCase(const Gpu& gpu, const LoadedAttention& attention, const Rows* like, bool quick) {
  Checked checked(gpu, attention);
  if (quick) {
    const double error = WorstError(attention.spec, kSmall, checked.Run(kSmall, 1));
    const bool bad = !(error <= 1) || checked.padding_written;
    std::printf("%s %s: error %.2f of its bound\n", bad ? "BAD" : "ok ",
                SpecText(KernelSpec(attention.spec)).c_str(), error);
    return bad ? 1 : 0;
  }
  const Rows rows = checked.Run(kMixed, 1);
  const double error = WorstError(attention.spec, kMixed, rows);
  int64_t differing = Differing(checked.Run(kMixed, 2), rows);
  for (const Sequence& sequence : kMixed) differing += Differing(checked.Run({sequence}, 3), rows);
  if (attention.spec.causal && attention.spec.tree_words == 0) {
    for (const Sequence& chunk :
         {Sequence{4, {1, 80}}, Sequence{4, {40, 40}}, Sequence{4, {50, 90}}, Sequence{6, {2, 600}},
          Sequence{9, {3, 300}}, Sequence{9, {64, 399}}}) {
      differing += Differing(checked.Run({chunk}, 4), rows);
    }
  }
  if (like != nullptr) differing += Differing(rows, *like);
  const bool bad = !(error <= 1) || differing > 0 || checked.padding_written;
  std::printf("%s %s: error %.2f of its bound, %ld rows of other bits%s\n", bad ? "BAD" : "ok ",
              SpecText(KernelSpec(attention.spec)).c_str(), error, static_cast<long>(differing),
              checked.padding_written ? ", padding written" : "");
  std::fflush(stdout);
  return bad ? 1 : 0;
}

// A graph captured with one batch and replayed with others.
int CheckReplay(const Gpu& gpu, const LoadedAttention& attention) {
  Checked checked(gpu, attention);
  const AttentionSpec& spec = attention.spec;
  constexpr int64_t kRows = 16, kSequences = 8, kPages = 4096;
  AttentionStep step(gpu, attention, kRows, kSequences, kPages);
  const CuDevicePtr layer = gpu.Allocate(
      static_cast<size_t>(kPages * spec.hkv * spec.page_tokens * (spec.d + spec.dv) * 2));
  std::vector<Sequence> ones;
  for (int i = 0; i < 7; ++i) ones.push_back({i, {1, 1}});
  const std::vector<Sequence> mixed = {{1, {5, 18}}, {2, {1, 473}}, {3, {1, 6}}, {4, {0, 0}},
                                       {5, {0, 0}},  {6, {0, 0}},   {7, {0, 0}}};
  // One that has work for every launch.
  checked.Load(step, layer, {{1, {12, 90}}, {2, {1, 1}}, {3, {1, 300}}}, 2, 1);
  const CuGraphExec graph = gpu.Capture([&] {
    step.Prepare();
    step.Attend(layer);
    step.Attend(layer);
  });
  int bad = 0;
  for (const auto& batch : {ones, mixed, ones, std::vector<Sequence>{{8, {16, 1000}}}, mixed}) {
    int rows = 0;
    for (const Sequence& sequence : batch) rows += sequence.part.rows;
    const int padding = static_cast<int>(kRows) - rows;
    checked.Load(step, layer, batch, padding, 5);
    gpu.Replay(graph);
    gpu.Synchronize();
    const Rows got = checked.Results(step, batch, padding);
    bad += !(WorstError(spec, batch, got) <= 1);
    bad += Differing(got, checked.Run(batch, 6)) > 0;
  }
  bad += checked.padding_written;
  std::printf("%s a graph captured with one batch and replayed with others\n", bad ? "BAD" : "ok ");
  gpu.Free(layer);
  return bad;
}

}  // namespace

int CheckAttention(const Gpu& gpu, const std::string& how) {
  const bool quick = how == "quick";
  std::vector<AttentionSpec> specs = CheckedSpecs(quick);
  if (!quick) {
    std::erase_if(specs, [&](const AttentionSpec& spec) {
      return SpecText(KernelSpec(spec)).find(how) == std::string::npos;
    });
  }
  const std::vector<LoadedAttention> loaded = LoadAttentions(gpu, specs);
  int bad = quick ? 0 : CheckReplay(gpu, loaded[0]);
  Rows base;
  for (size_t i = 0; i < loaded.size(); ++i) {
    // Other page sizes have the same bits.
    const bool same = i > 0 && i < 5 && how.empty();
    if (i == 0 && !quick) base = Checked(gpu, loaded[0]).Run(kMixed, 1);
    bad += CheckCase(gpu, loaded[i], same ? &base : nullptr, quick);
  }
  std::printf("%d of %zu wrong\n", bad, loaded.size() + 1);
  return bad == 0 ? 0 : 1;
}

}  // namespace quire::bench
