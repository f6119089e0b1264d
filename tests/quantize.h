// Simple quantisers for tests: f32 to every element type, correct but not optimal.
//
// Each picks the scale from the block's extremes and rounds to the nearest level, so an element is
// off by at most half a step plus what rounding the scales themselves costs. The layouts are
// described in ir/reference/dequantize.cc.
#ifndef QUIRE_TESTS_QUANTIZE_H_
#define QUIRE_TESTS_QUANTIZE_H_

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "ir/dtype.h"

namespace quire::testing {
namespace quantize_internal {

inline void Put16(uint8_t* out, uint16_t bits) {
  out[0] = static_cast<uint8_t>(bits);
  out[1] = static_cast<uint8_t>(bits >> 8);
}
inline void Put32(uint8_t* out, uint32_t bits) {
  Put16(out, static_cast<uint16_t>(bits));
  Put16(out + 2, static_cast<uint16_t>(bits >> 16));
}

// Stores `value` as f16 and returns what was stored.
inline float PutScale(uint8_t* out, float value) {
  Put16(out, F32ToF16(value));
  return F16ToF32(F32ToF16(value));
}

// The integer in [low, high] nearest to value / step; 0, or the nearest there is to it, when step
// is 0.
inline int Level(float value, float step, int low, int high) {
  const float level = step == 0 ? 0.0f : std::round(value / step);
  return static_cast<int>(std::clamp(level, static_cast<float>(low), static_cast<float>(high)));
}

inline float MaxMagnitude(const float* x, int count) {
  float magnitude = 0;
  for (int i = 0; i < count; ++i) magnitude = std::max(magnitude, std::abs(x[i]));
  return magnitude;
}

// Q4_0, Q4_1, Q5_0, Q5_1: `bits` bits for each of 32 elements, with or without a minimum.
inline void Quantize32(const float* x, int bits, bool with_min, uint8_t* out) {
  const int levels = 1 << bits;
  const float low = with_min ? *std::min_element(x, x + 32) : 0.0f;
  const float high = with_min ? *std::max_element(x, x + 32) : 0.0f;
  const float range = with_min ? (high - low) / static_cast<float>(levels - 1)
                               : MaxMagnitude(x, 32) / static_cast<float>(levels / 2 - 1);
  const float step = PutScale(out, range);
  const float origin = with_min ? PutScale(out + 2, low) : 0.0f;
  uint8_t* high_bits = out + (with_min ? 4 : 2);
  uint8_t* nibbles = high_bits + (bits == 5 ? 4 : 0);
  uint32_t fifth = 0;
  std::fill(nibbles, nibbles + 16, uint8_t{0});
  for (int i = 0; i < 32; ++i) {
    const int q = with_min ? Level(x[i] - origin, step, 0, levels - 1)
                           : Level(x[i], step, -levels / 2, levels / 2 - 1) + levels / 2;
    nibbles[i % 16] = static_cast<uint8_t>(nibbles[i % 16] | (q & 15) << (i < 16 ? 0 : 4));
    fifth |= static_cast<uint32_t>(q >> 4) << i;
  }
  if (bits == 5) Put32(high_bits, fifth);
}

inline void QuantizeF8E4M3_128(const float* x, uint8_t* out) {
  const float scale = MaxMagnitude(x, 128) / 448;
  Put32(out, std::bit_cast<uint32_t>(scale));
  for (int i = 0; i < 128; ++i) out[4 + i] = F32ToF8E4M3(scale == 0 ? 0.0f : x[i] / scale);
}

inline void QuantizeQ8_0(const float* x, uint8_t* out) {
  const float step = PutScale(out, MaxMagnitude(x, 32) / 127);
  for (int i = 0; i < 32; ++i) out[2 + i] = static_cast<uint8_t>(Level(x[i], step, -127, 127));
}

// Q4_K and Q5_K: eight runs of 32, each with a scale and a minimum of six bits.
inline void QuantizeWithMins(const float* x, int bits, uint8_t* out) {
  const int top = (1 << bits) - 1;
  float steps[8];
  float mins[8];
  for (int j = 0; j < 8; ++j) {
    mins[j] = std::max(0.0f, -*std::min_element(x + 32 * j, x + 32 * j + 32));
    steps[j] = (*std::max_element(x + 32 * j, x + 32 * j + 32) + mins[j]) / static_cast<float>(top);
    steps[j] = std::max(0.0f, steps[j]);
  }
  const float d = PutScale(out, *std::max_element(steps, steps + 8) / 63);
  const float dmin = PutScale(out + 2, *std::max_element(mins, mins + 8) / 63);
  std::fill(out + 4, out + (bits == 5 ? 176 : 144), uint8_t{0});
  uint8_t* packed = out + 4;
  uint8_t* fifth = out + 16;
  uint8_t* nibbles = out + (bits == 5 ? 48 : 16);
  for (int j = 0; j < 8; ++j) {
    const int scale = Level(steps[j], d, 0, 63);
    const int min = Level(mins[j], dmin, 0, 63);
    if (j < 4) {
      packed[j] = static_cast<uint8_t>(packed[j] | scale);
      packed[j + 4] = static_cast<uint8_t>(packed[j + 4] | min);
    } else {
      packed[j + 4] = static_cast<uint8_t>((scale & 15) | (min & 15) << 4);
      packed[j - 4] = static_cast<uint8_t>(packed[j - 4] | (scale >> 4) << 6);
      packed[j] = static_cast<uint8_t>(packed[j] | (min >> 4) << 6);
    }
    for (int i = 0; i < 32; ++i) {
      const float above_min = x[32 * j + i] + dmin * static_cast<float>(min);
      const int q = Level(above_min, d * static_cast<float>(scale), 0, top);
      uint8_t& nibble = nibbles[j / 2 * 32 + i];
      nibble = static_cast<uint8_t>(nibble | (q & 15) << (j % 2 * 4));
      if (bits == 5) fifth[i] = static_cast<uint8_t>(fifth[i] | (q >> 4) << j);
    }
  }
}

// Sixteen runs of 16, each with a scale of eight bits.
inline void QuantizeQ6_K(const float* x, uint8_t* out) {
  const float d = PutScale(out + 208, MaxMagnitude(x, 256) / 31 / 127);
  std::fill(out, out + 192, uint8_t{0});
  for (int j = 0; j < 16; ++j) {
    const int scale = Level(MaxMagnitude(x + 16 * j, 16) / 31, d, 0, 127);
    out[192 + j] = static_cast<uint8_t>(scale);
    for (int i = 16 * j; i < 16 * j + 16; ++i) {
      const int q = Level(x[i], d * static_cast<float>(scale), -32, 31) + 32;
      uint8_t& low = out[i / 128 * 64 + i % 64];
      uint8_t& high = out[128 + i / 128 * 32 + i % 32];
      low = static_cast<uint8_t>(low | (q & 15) << (i % 128 < 64 ? 0 : 4));
      high = static_cast<uint8_t>(high | (q >> 4) << (i % 128 / 32 * 2));
    }
  }
}

inline void QuantizeBlock(DType dtype, const float* x, uint8_t* out) {
  switch (dtype) {
    case DType::kF32:
      return Put32(out, std::bit_cast<uint32_t>(*x));
    case DType::kF16:
      return Put16(out, F32ToF16(*x));
    case DType::kBF16:
      return Put16(out, F32ToBF16(*x));
    case DType::kF8E4M3:
      *out = F32ToF8E4M3(*x);
      return;
    case DType::kF8E4M3_128:
      return QuantizeF8E4M3_128(x, out);
    case DType::kI32:
      return Put32(out, static_cast<uint32_t>(std::lround(*x)));
    case DType::kQ4_0:
      return Quantize32(x, 4, false, out);
    case DType::kQ4_1:
      return Quantize32(x, 4, true, out);
    case DType::kQ5_0:
      return Quantize32(x, 5, false, out);
    case DType::kQ5_1:
      return Quantize32(x, 5, true, out);
    case DType::kQ8_0:
      return QuantizeQ8_0(x, out);
    case DType::kQ4_K:
      return QuantizeWithMins(x, 4, out);
    case DType::kQ5_K:
      return QuantizeWithMins(x, 5, out);
    case DType::kQ6_K:
      return QuantizeQ6_K(x, out);
  }
}

}  // namespace quantize_internal

// The stored bytes of `values`, whose count is a multiple of the type's block_elements.
inline std::vector<uint8_t> Quantize(DType dtype, absl::Span<const float> values) {
  const DTypeInfo& info = InfoOf(dtype);
  std::vector<uint8_t> out(RowBytes(dtype, static_cast<int64_t>(values.size())));
  for (size_t i = 0; i < values.size() / info.block_elements; ++i) {
    quantize_internal::QuantizeBlock(dtype, values.data() + i * info.block_elements,
                                     out.data() + i * info.block_bytes);
  }
  return out;
}

}  // namespace quire::testing

#endif  // QUIRE_TESTS_QUANTIZE_H_
