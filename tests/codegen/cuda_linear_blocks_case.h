// Linears whose weight is block-quantised, for bodies whose source runs on the CPU: their
// constants, and operands drawn at random. Include this instead of cuda_emulator.h.
#ifndef QUIRE_TESTS_CODEGEN_CUDA_LINEAR_BLOCKS_CASE_H_
#define QUIRE_TESTS_CODEGEN_CUDA_LINEAR_BLOCKS_CASE_H_

#include <cstring>
#include <vector>

#include "gtest/gtest.h"
#include "ir/reference/dequantize.h"
#include "tests/codegen/cuda_emulator.h"
#include "tests/codegen/cuda_linear_case.h"

#define QUIRE_BLOCKS(name, type, rows, columns, grain, element) \
  namespace name {                                              \
  using Fours = FoursOf##type<>;                                \
  using Pairs = FoursOf##type<true>;                            \
  constexpr DType kType = DType::k##type;                       \
  using Element = element;                                      \
  using Output = F32;                                           \
  constexpr int kN = rows, kK = columns, kGrain = grain;        \
  constexpr bool kHasBias = false, kHasResidual = false;        \
  constexpr bool kWeightIsWritten = false;                      \
  constexpr int kSharedBytes = 1 << 20;                         \
  QUIRE_DERIVED                                                 \
  QUIRE_NO_ACT                                                  \
  }

namespace quire::emulated {

// Types that read blocks, once; they depend on no constant of a linear.
#include <linear_fours.cuh>

// Any bytes, but for scales, which are numbers of a size near 2^-6.
inline std::vector<uint8_t> DrawBlocks(DType type, int64_t elements) {
  testing::Random random{DTypeText(type)};
  std::vector<uint8_t> bytes(static_cast<size_t>(RowBytes(type, elements)));
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random.Next());
  const auto block_bytes = static_cast<size_t>(InfoOf(type).block_bytes);
  const auto set = [&](size_t at) {
    const uint16_t scale = F32ToF16(static_cast<float>((random.Uniform() * 2 - 1) / 64));
    std::memcpy(&bytes[at], &scale, 2);
  };
  for (size_t begin = 0; begin < bytes.size(); begin += block_bytes) {
    if (type == DType::kF8E4M3_128) {
      const auto scale = static_cast<float>((random.Uniform() * 2 - 1) / 64);
      std::memcpy(&bytes[begin], &scale, 4);
      for (size_t i = begin + 4; i < begin + block_bytes; ++i) {
        if ((bytes[i] & 0x7f) == 0x7f) bytes[i] ^= 1;  // NaN
      }
      continue;
    }
    set(type == DType::kQ6_K ? begin + 208 : begin);
    if (type == DType::kQ4_1 || type == DType::kQ5_1 || type == DType::kQ4_K ||
        type == DType::kQ5_K) {
      set(begin + 2);
    }
  }
  return bytes;
}

template <typename Element, int kN, int kK>
struct BlocksCase {
  Case<Element, F32, kN, kK, false, false> linear;
  std::vector<uint8_t> blocks;

  BlocksCase(DType type, int rows, int grain)
      : linear{rows, grain}, blocks(DrawBlocks(type, int64_t{kN} * kK)) {
    std::vector<double> values(static_cast<size_t>(kN) * kK);
    EXPECT_TRUE(Dequantize(type, blocks, absl::MakeSpan(values)).ok());
    for (size_t i = 0; i < values.size(); ++i) {
      linear.weight[i] = FromFloat<Element>(static_cast<float>(values[i]));
    }
  }
};

}  // namespace quire::emulated

#endif  // QUIRE_TESTS_CODEGEN_CUDA_LINEAR_BLOCKS_CASE_H_
