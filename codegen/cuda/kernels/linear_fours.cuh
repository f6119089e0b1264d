// Block-quantised weights in layout rows, their bytes as ir/reference/dequantize.cc has them in
// words, as a lane of a tensor-core operand wants them: of each 16 elements 4t .. 4t + 3, or if
// kPairs 2t, 2t + 1, 2t + 8 and 2t + 9, the order of the tensor core.
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
// Of 16 bytes, those of lane t.
template <bool kPairs>
DEVICE uint32_t LooseFourAt(const uint8_t* p, int t) {
  if constexpr (!kPairs) return LooseWordAt(p + 4 * t);
  const auto* halves = reinterpret_cast<const uint16_t*>(p) + t;
  return halves[0] | static_cast<uint32_t>(halves[4]) << 16;
}
template <bool kPairs>
DEVICE uint32_t FourAt(const uint8_t* p, int t) {
  return kPairs ? LooseFourAt<true>(p, t) : WordAt(p + 4 * t);
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
// Bits of lane t of each 16 of a word: the low four of each half are its.
template <bool kPairs>
DEVICE uint32_t FourBitsAt(uint32_t word, int t) {
  if constexpr (!kPairs) return word >> 4 * t;
  word >>= 2 * t;
  return (word & 0x00030003) | (word >> 6 & 0x000c000c);
}
// The bits of a nibble as bit 4 of four bytes.
DEVICE uint32_t FifthBits(uint32_t nibble) { return (nibble * 0x00204081 & 0x01010101) << 4; }

template <bool kPairs = false>
struct FoursOfQ4_0 {
  static constexpr int kElements = 32, kBytes = 18, kSpan = 32;
  uint32_t quants;
  float scale, below[2];

  DEVICE void Load(const uint8_t* block, int, int t) {
    quants = LooseFourAt<kPairs>(block + 2, t);
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

template <bool kPairs = false>
struct FoursOfQ4_1 {
  static constexpr int kElements = 32, kBytes = 20, kSpan = 32;
  uint32_t quants;
  float scale, minimum;

  DEVICE void Load(const uint8_t* block, int, int t) {
    quants = FourAt<kPairs>(block + 4, t);
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

template <bool kPairs = false>
struct FoursOfQ5_0 {
  static constexpr int kElements = 32, kBytes = 22, kSpan = 32;
  uint32_t quants, high;
  float scale, below;

  DEVICE void Load(const uint8_t* block, int, int t) {
    quants = LooseFourAt<kPairs>(block + 6, t);
    high = FourBitsAt<kPairs>(LooseWordAt(block + 2), t);
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

template <bool kPairs = false>
struct FoursOfQ5_1 {
  static constexpr int kElements = 32, kBytes = 24, kSpan = 32;
  uint32_t quants, high;
  float scale, minimum;

  DEVICE void Load(const uint8_t* block, int, int t) {
    quants = FourAt<kPairs>(block + 8, t);
    high = FourBitsAt<kPairs>(WordAt(block + 4), t);
    scale = HalfAsFloat(block);
    minimum = HalfAsFloat(block + 2);
  }
  DEVICE void Four(int step, float (&values)[4]) const {
    const uint32_t bytes = (quants >> 4 * step & 0x0f0f0f0f) | FifthBits(high >> 16 * step & 15);
#pragma unroll
    for (int i = 0; i < 4; ++i) values[i] = Fma(scale, ByteLess(bytes, i, 0), minimum);
  }
};

template <bool kPairs = false>
struct FoursOfQ8_0 {
  static constexpr int kElements = 32, kBytes = 34, kSpan = 32;
  uint32_t quants[2];  // + 128
  float scale, below;

  DEVICE void Load(const uint8_t* block, int, int t) {
#pragma unroll
    for (int i = 0; i < 2; ++i) quants[i] = LooseFourAt<kPairs>(block + 2 + 16 * i, t) ^ 0x80808080;
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

// Byte i of a word, an f8e4m3, as a float 2^120 too small, a subnormal where it is one. The two NaN
// read as 480.
DEVICE float SmallF8E4M3(uint32_t word, int i) {
  const auto moved = static_cast<int>(i == 3 ? word : word << 8 * (3 - i)) >> 4;
  return FromBits(static_cast<uint32_t>(moved) & 0x87f00000);
}

template <bool kPairs = false>
struct FoursOfF8E4M3_128 {
  static constexpr int kElements = 128, kBytes = 132, kSpan = 64;
  uint32_t numbers[4];
  float scale;  // times 2^120

  DEVICE void Load(const uint8_t* block, int span, int t) {
#pragma unroll
    for (int i = 0; i < 4; ++i) numbers[i] = FourAt<kPairs>(block + 4 + 64 * span + 16 * i, t);
    scale = Mul(FromBits(WordAt(block)), FromBits(247u << 23));
  }
  DEVICE void Four(int step, float (&values)[4]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) values[i] = Mul(scale, SmallF8E4M3(numbers[step], i));
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

template <bool kPairs = false>
struct FoursOfQ4_K {
  static constexpr int kElements = 256, kBytes = 144, kSpan = 64;
  uint32_t quants[2];
  SpanScales scales;

  DEVICE void Load(const uint8_t* block, int span, int t) {
#pragma unroll
    for (int i = 0; i < 2; ++i) quants[i] = FourAt<kPairs>(block + 16 + 32 * span + 16 * i, t);
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

template <bool kPairs = false>
struct FoursOfQ5_K {
  static constexpr int kElements = 256, kBytes = 176, kSpan = 64;
  uint32_t quants[2], high[2];
  SpanScales scales;

  DEVICE void Load(const uint8_t* block, int span, int t) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      quants[i] = FourAt<kPairs>(block + 48 + 32 * span + 16 * i, t);
      high[i] = FourAt<kPairs>(block + 16 + 16 * i, t) >> 2 * span;
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

template <bool kPairs = false>
struct FoursOfQ6_K {
  static constexpr int kElements = 256, kBytes = 210, kSpan = 128;
  uint32_t low[4], high[2], scales[2];  // scales + 128
  float scale;

  DEVICE void Load(const uint8_t* block, int span, int t) {
#pragma unroll
    for (int i = 0; i < 4; ++i) low[i] = LooseFourAt<kPairs>(block + 64 * span + 16 * i, t);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      high[i] = LooseFourAt<kPairs>(block + 128 + 32 * span + 16 * i, t);
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
