// Block-quantised weights in layout rows, GGUF's bytes (ir/reference/dequantize.cc has them in
// words), as a lane of a tensor-core operand wants them: elements 4t .. 4t + 3 of each 16.
//
// An element's value is the exact one, rounded to f32 and then to Element; a zero may have either
// sign, which no sum of products shows.
//
// Each type: kElements and kBytes of a block; kSpan elements whose bytes are read together; Load,
// lane t's share of a span; Four, its elements in step `step` of the span. A block begins at a
// multiple of the largest power of two that divides kBytes, 16 at most.
#ifndef QUIRE_LINEAR_FOURS_CUH_
#define QUIRE_LINEAR_FOURS_CUH_

#include "prelude.cuh"

DEVICE uint32_t WordAt(const uint8_t* p) { return *reinterpret_cast<const uint32_t*>(p); }
// At a multiple of 2.
DEVICE uint32_t LooseWordAt(const uint8_t* p) {
  const auto* halves = reinterpret_cast<const uint16_t*>(p);
  return halves[0] | static_cast<uint32_t>(halves[1]) << 16;
}
DEVICE float HalfAsFloat(const uint8_t* p) { return ToFloat(*reinterpret_cast<const F16*>(p)); }

// A digit of a word, `mask` from bit `begin` on, as a float without a conversion: 2^(23 - begin)
// plus the digit.
DEVICE float DigitAbove(uint32_t word, int begin, uint32_t mask) {
  return FromBits(AndOr(word, mask << begin, static_cast<uint32_t>(150 - begin) << 23));
}
// Such a float's digit less `offset`: add this.
DEVICE float Below(int begin, float offset) {
  return -FromBits(static_cast<uint32_t>(150 - begin) << 23) - offset;
}
// Byte i's digit, from bit `begin` of the byte on, less `offset`.
DEVICE float DigitLess(uint32_t word, int i, int begin, uint32_t mask, float offset) {
  const int at = i % 2 * 8 + begin;
  return Add(DigitAbove(i < 2 ? word : word >> 16, at, mask), Below(at, offset));
}
DEVICE float ByteLess(uint32_t word, int i, float offset) {
  return DigitLess(word, i, 0, 255, offset);
}
// The word with byte i at bit 8: a float made of it there has so few bits that its product with an
// f16, and of that with Below(8 or more), are exact, and one fma is a scaled digit.
DEVICE uint32_t ByteAt8(uint32_t word, int i) {
  return i == 0 ? word << 8 : i == 1 ? word : word >> 8 * (i - 1);
}
// The bits of a nibble as bit 4 of four bytes.
DEVICE uint32_t FifthBits(uint32_t nibble) { return (nibble * 0x00204081 & 0x01010101) << 4; }

struct FoursOfQ4_0 {
  static constexpr int kElements = 32, kBytes = 18, kSpan = 32;
  uint32_t quants;
  float scale, below[2];

  DEVICE void Load(const uint8_t* block, int, int t) {
    quants = LooseWordAt(block + 2 + 4 * t);
    scale = HalfAsFloat(block);
#pragma unroll
    for (int i = 0; i < 2; ++i) below[i] = Mul(scale, Below(8 + 4 * i, 8));
  }
  DEVICE void Four(int step, float (&values)[4]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      values[i] = Fma(scale, DigitAbove(ByteAt8(quants, i), 8 + 4 * step, 15), below[step]);
    }
  }
};

struct FoursOfQ4_1 {
  static constexpr int kElements = 32, kBytes = 20, kSpan = 32;
  uint32_t quants;
  float scale, minimum;

  DEVICE void Load(const uint8_t* block, int, int t) {
    quants = WordAt(block + 4 + 4 * t);
    scale = HalfAsFloat(block);
    minimum = HalfAsFloat(block + 2);
  }
  DEVICE void Four(int step, float (&values)[4]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      values[i] = Fma(scale, DigitLess(quants, i, 4 * step, 15, 0), minimum);
    }
  }
};

struct FoursOfQ5_0 {
  static constexpr int kElements = 32, kBytes = 22, kSpan = 32;
  uint32_t quants, high;
  float scale, below;

  DEVICE void Load(const uint8_t* block, int, int t) {
    quants = LooseWordAt(block + 6 + 4 * t);
    high = LooseWordAt(block + 2) >> 4 * t;
    scale = HalfAsFloat(block);
    below = Mul(scale, Below(8, 16));
  }
  DEVICE void Four(int step, float (&values)[4]) const {
    const uint32_t bytes = (quants >> 4 * step & 0x0f0f0f0f) | FifthBits(high >> 16 * step & 15);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      values[i] = Fma(scale, DigitAbove(ByteAt8(bytes, i), 8, 31), below);
    }
  }
};

struct FoursOfQ5_1 {
  static constexpr int kElements = 32, kBytes = 24, kSpan = 32;
  uint32_t quants, high;
  float scale, minimum;

  DEVICE void Load(const uint8_t* block, int, int t) {
    quants = WordAt(block + 8 + 4 * t);
    high = WordAt(block + 4) >> 4 * t;
    scale = HalfAsFloat(block);
    minimum = HalfAsFloat(block + 2);
  }
  DEVICE void Four(int step, float (&values)[4]) const {
    const uint32_t bytes = (quants >> 4 * step & 0x0f0f0f0f) | FifthBits(high >> 16 * step & 15);
#pragma unroll
    for (int i = 0; i < 4; ++i) values[i] = Fma(scale, ByteLess(bytes, i, 0), minimum);
  }
};

struct FoursOfQ8_0 {
  static constexpr int kElements = 32, kBytes = 34, kSpan = 32;
  uint32_t quants[2];  // + 128
  float scale, below;

  DEVICE void Load(const uint8_t* block, int, int t) {
#pragma unroll
    for (int i = 0; i < 2; ++i) quants[i] = LooseWordAt(block + 2 + 16 * i + 4 * t) ^ 0x80808080;
    scale = HalfAsFloat(block);
    below = Mul(scale, Below(8, 128));
  }
  DEVICE void Four(int step, float (&values)[4]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      values[i] = Fma(scale, DigitAbove(ByteAt8(quants[step], i), 8, 255), below);
    }
  }
};

// Scale and minimum of the two times 32 elements of a span of 64, from a block's first 16 bytes.
struct SpanScales {
  float scale[2], minimum[2];

  DEVICE void Load(const uint8_t* block, int span) {
    const uint32_t low_scales = WordAt(block + 4), low_minimums = WordAt(block + 8);
    const uint32_t both = WordAt(block + 12);
    const int shift = span % 2 * 16;
    uint32_t scales = low_scales >> shift & 0x3f3f, minimums = low_minimums >> shift & 0x3f3f;
    if (span >= 2) {
      scales = (both >> shift & 0x0f0f) | (low_scales >> shift >> 2 & 0x3030);
      minimums = (both >> shift >> 4 & 0x0f0f) | (low_minimums >> shift >> 2 & 0x3030);
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      scale[i] = Mul(HalfAsFloat(block), ByteLess(scales, i, 0));
      minimum[i] = Mul(HalfAsFloat(block + 2), -ByteLess(minimums, i, 0));
    }
  }
};

struct FoursOfQ4_K {
  static constexpr int kElements = 256, kBytes = 144, kSpan = 64;
  uint32_t quants[2];
  SpanScales scales;

  DEVICE void Load(const uint8_t* block, int span, int t) {
#pragma unroll
    for (int i = 0; i < 2; ++i) quants[i] = WordAt(block + 16 + 32 * span + 16 * i + 4 * t);
    scales.Load(block, span);
  }
  DEVICE void Four(int step, float (&values)[4]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      values[i] = Fma(scales.scale[step / 2], DigitLess(quants[step % 2], i, step / 2 * 4, 15, 0),
                      scales.minimum[step / 2]);
    }
  }
};

struct FoursOfQ5_K {
  static constexpr int kElements = 256, kBytes = 176, kSpan = 64;
  uint32_t quants[2], high[2];
  SpanScales scales;

  DEVICE void Load(const uint8_t* block, int span, int t) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      quants[i] = WordAt(block + 48 + 32 * span + 16 * i + 4 * t);
      high[i] = WordAt(block + 16 + 16 * i + 4 * t) >> 2 * span;
    }
    scales.Load(block, span);
  }
  DEVICE void Four(int step, float (&values)[4]) const {
    const uint32_t bytes = (quants[step % 2] >> step / 2 * 4 & 0x0f0f0f0f) |
                           (high[step % 2] >> step / 2 & 0x01010101) << 4;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      values[i] = Fma(scales.scale[step / 2], ByteLess(bytes, i, 0), scales.minimum[step / 2]);
    }
  }
};

struct FoursOfQ6_K {
  static constexpr int kElements = 256, kBytes = 210, kSpan = 128;
  uint32_t low[4], high[2], scales[2];  // scales + 128
  float scale;

  DEVICE void Load(const uint8_t* block, int span, int t) {
#pragma unroll
    for (int i = 0; i < 4; ++i) low[i] = LooseWordAt(block + 64 * span + 16 * i + 4 * t);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      high[i] = LooseWordAt(block + 128 + 32 * span + 16 * i + 4 * t);
      scales[i] = LooseWordAt(block + 192 + 8 * span + 4 * i) ^ 0x80808080;
    }
    scale = HalfAsFloat(block + 208);
  }
  DEVICE void Four(int step, float (&values)[4]) const {
    const uint32_t bytes = (low[step % 4] >> step / 4 * 4 & 0x0f0f0f0f) |
                           (high[step % 2] >> step / 2 * 2 & 0x03030303) << 4;
    const float of_step = Mul(scale, ByteLess(scales[step / 4], step % 4, 128));
#pragma unroll
    for (int i = 0; i < 4; ++i) values[i] = Mul(of_step, ByteLess(bytes, i, 32));
  }
};

#endif  // QUIRE_LINEAR_FOURS_CUH_
