// One linear with operands drawn at random, and the bits that every body has to give. Include this
// after cuda_emulator.h.
#ifndef QUIRE_TESTS_CODEGEN_CUDA_LINEAR_CASE_H_
#define QUIRE_TESTS_CODEGEN_CUDA_LINEAR_CASE_H_

#include <functional>
#include <vector>

#include "codegen/cuda/linear.h"
#include "gtest/gtest.h"
#include "tests/codegen/cuda_emulator.h"

// Constants of a linear that follow from others: kN, kK, kGrain.
#define QUIRE_STAGES                                               \
  constexpr bool kWholeStages = kGrain % 64 == 0 || kK % 256 == 0; \
  [[maybe_unused]] constexpr bool kStoresEights = kN % 8 == 0;

// Of one that appends, of one that turns heads before, and of one that does neither. Where pairs
// are neighbours the text is of linears that append alone, otherwise of others, too.
#define QUIRE_APPEND(layers, heads, d, dv, page_tokens) \
  QUIRE_APPEND_TURNED(layers, heads, d, dv, page_tokens, 0)
#define QUIRE_APPEND_TURNED(layers, heads, d, dv, page_tokens, distance)               \
  constexpr int kAppendLayers = layers, kKvHeads = heads, kKeyDim = d, kValueDim = dv; \
  constexpr int kPageTokens = page_tokens, kPairDistance = distance;                   \
  constexpr bool kMayAppend = kAppendLayers > 0 && kPairDistance != 1;
#define QUIRE_DERIVED \
  QUIRE_STAGES        \
  QUIRE_APPEND(0, 1, 8, 8, 1)

// Constants of a linear without an activation.
#define QUIRE_NO_ACT                              \
  constexpr bool kHasAct = false, kGated = false; \
  inline float Act(float x) { return x; }

namespace quire::emulated {

template <typename T>
constexpr DType TypeOf() {
  return std::is_same_v<T, F32> ? DType::kF32 : std::is_same_v<T, F16> ? DType::kF16 : DType::kBF16;
}
template <typename T>
uint32_t BitsOf(T x) {
  if constexpr (std::is_same_v<T, F32>) {
    return Bits(x);
  } else {
    return x.bits;
  }
}

// Values whose sums differ by their order, with some of every sign and many magnitudes.
template <typename T>
std::vector<T> Draw(const char* name, int64_t count) {
  testing::Random random{absl::string_view(name)};
  std::vector<T> values;
  for (int64_t i = 0; i < count; ++i) {
    const double scale = std::ldexp(1.0, static_cast<int>(random.Between(-6, 1)));
    values.push_back(FromFloat<T>(static_cast<float>((random.Uniform() * 2 - 1) * scale)));
  }
  return values;
}

template <typename Element, typename Output, int kN, int kK, bool kBias, bool kResidual>
struct Case {
  int rows;
  int64_t grain = 16;
  std::vector<Element> x = Draw<Element>("x", int64_t{rows} * kK);
  std::vector<Element> weight = Draw<Element>("weight", int64_t{kN} * kK);
  std::vector<float> bias = Draw<float>("bias", kN);
  std::vector<Output> residual = Draw<Output>("residual", int64_t{rows} * kN);

  static constexpr int n() { return kN; }
  static constexpr int k() { return kK; }

  Output Expected(int row, int n) const {
    float sum = CudaLinearSum(TypeOf<Element>(), &x[static_cast<size_t>(row) * kK].bits,
                              &weight[static_cast<size_t>(n) * kK].bits, kK, grain);
    if (kBias) sum += bias[static_cast<size_t>(n)];
    if (kResidual) sum += ToFloat(residual[static_cast<size_t>(row) * kN + static_cast<size_t>(n)]);
    return FromFloat<Output>(sum);
  }

  // Runs a body on `grid` blocks, twice over one workspace.
  template <typename Operands>
  void Run(int grid, int whole_tiles, int threads, size_t shared_bytes,
           const std::function<void(const Operands&)>& body, int first_row = 0) const {
    const int64_t tiles = int64_t{(kN + 127) / 128} * ((rows + 15) / 16);
    std::vector<float> workspace(static_cast<size_t>(256 + tiles * 4 * 128 * 128), 0.0f);
    for (uint64_t seed : {1u, 2u}) {
      std::vector<Output> y(static_cast<size_t>(rows) * kN, FromFloat<Output>(-77));
      // The text's, which may be told to store f32 instead.
      using Stored = std::remove_pointer_t<decltype(Operands::y)>;
      Operands operands{x.data(),
                        weight.data(),
                        kBias ? bias.data() : nullptr,
                        kResidual ? reinterpret_cast<const Stored*>(residual.data()) : nullptr,
                        reinterpret_cast<Stored*>(y.data()),
                        reinterpret_cast<uint8_t*>(workspace.data()),
                        rows,
                        whole_tiles,
                        kN,
                        kK,
                        first_row,
                        !std::is_same_v<Output, Stored>};
      const Launch launch{grid, threads, shared_bytes, x.data(), x.size() * sizeof(Element), seed};
      RunGrid(launch, [&] { body(operands); });
      for (int row = first_row; row < rows; ++row) {
        for (int n = 0; n < kN; ++n) {
          ASSERT_EQ(BitsOf(y[static_cast<size_t>(row) * kN + static_cast<size_t>(n)]),
                    BitsOf(Expected(row, n)))
              << "row " << row << " of " << rows << ", n " << n << ", grid " << grid << ", whole "
              << whole_tiles;
        }
      }
      for (size_t i = 0; i < 256; ++i) ASSERT_EQ(workspace[i], 0) << "arrivals are not reset";
    }
  }
};

}  // namespace quire::emulated

#endif  // QUIRE_TESTS_CODEGEN_CUDA_LINEAR_CASE_H_
