// Elements of block-quantised matrices in layout rows: bytes as ir/reference/dequantize.cc has
// them in words. A row is a sequence of whole blocks and begins at a multiple of 2 bytes.
//
// Each type: kElements and kBytes of a block, and At, element i of one. Products of scales and
// numbers are exact, but for those of Q6_K and F8E4M3_128, so that an element is rounded once.
#ifndef QUIRE_BLOCKS_CUH_
#define QUIRE_BLOCKS_CUH_

#include "prelude.cuh"

DEVICE float HalfAt(const uint8_t* p) {
  return ToFloat(LoadGlobal(reinterpret_cast<const F16*>(p)));
}
DEVICE int ByteAt(const uint8_t* p) { return LoadGlobal(p); }

// Low nibbles of 16 bytes are elements 0 .. 15, high ones 16 .. 31.
DEVICE int NibbleOf32(const uint8_t* p, int i) { return ByteAt(p + i % 16) >> i / 16 * 4 & 15; }

struct F8E4M3_128 {
  static constexpr int kElements = 128, kBytes = 132;
  static DEVICE float At(const uint8_t* b, int i) {
    // As f32 the element is 2^120 too small, a subnormal where it is one.
    const auto byte = static_cast<uint32_t>(ByteAt(b + 4 + i));
    const float number = FromBits((byte & 0x80) << 24 | (byte & 0x7f) << 20);
    const float scale = LoadGlobal(reinterpret_cast<const float*>(b));
    return Mul(Mul(scale, FromBits(247u << 23)), number);
  }
};
struct Q4_0 {
  static constexpr int kElements = 32, kBytes = 18;
  static DEVICE float At(const uint8_t* b, int i) {
    return Mul(HalfAt(b), static_cast<float>(NibbleOf32(b + 2, i) - 8));
  }
};
struct Q4_1 {
  static constexpr int kElements = 32, kBytes = 20;
  static DEVICE float At(const uint8_t* b, int i) {
    return Fma(HalfAt(b), static_cast<float>(NibbleOf32(b + 4, i)), HalfAt(b + 2));
  }
};
struct Q5_0 {
  static constexpr int kElements = 32, kBytes = 22;
  static DEVICE float At(const uint8_t* b, int i) {
    const int high = (ByteAt(b + 2 + i / 8) >> i % 8 & 1) << 4;
    return Mul(HalfAt(b), static_cast<float>((NibbleOf32(b + 6, i) | high) - 16));
  }
};
struct Q5_1 {
  static constexpr int kElements = 32, kBytes = 24;
  static DEVICE float At(const uint8_t* b, int i) {
    const int high = (ByteAt(b + 4 + i / 8) >> i % 8 & 1) << 4;
    return Fma(HalfAt(b), static_cast<float>(NibbleOf32(b + 8, i) | high), HalfAt(b + 2));
  }
};
struct Q8_0 {
  static constexpr int kElements = 32, kBytes = 34;
  static DEVICE float At(const uint8_t* b, int i) {
    return Mul(HalfAt(b), static_cast<float>(static_cast<int8_t>(ByteAt(b + 2 + i))));
  }
};

// The scale and the minimum of 32 elements, six bits each, of eight such in 12 bytes.
DEVICE void SixBitPair(const uint8_t* p, int j, int& scale, int& minimum) {
  if (j < 4) {
    scale = ByteAt(p + j) & 63;
    minimum = ByteAt(p + j + 4) & 63;
  } else {
    scale = (ByteAt(p + j + 4) & 15) | ByteAt(p + j - 4) >> 6 << 4;
    minimum = ByteAt(p + j + 4) >> 4 | ByteAt(p + j) >> 6 << 4;
  }
}
// d scale q - dmin minimum, of the block's first 16 bytes.
DEVICE float ScaledOf256(const uint8_t* b, int i, int q) {
  int scale, minimum;
  SixBitPair(b + 4, i / 32, scale, minimum);
  const float low = Mul(HalfAt(b + 2), static_cast<float>(-minimum));
  return Fma(Mul(HalfAt(b), static_cast<float>(scale)), static_cast<float>(q), low);
}
// Of each 64 elements, 32 bytes hold the first half low, the second high.
DEVICE int NibbleOf256(const uint8_t* p, int i) {
  return ByteAt(p + i / 64 * 32 + i % 32) >> i % 64 / 32 * 4 & 15;
}

struct Q4_K {
  static constexpr int kElements = 256, kBytes = 144;
  static DEVICE float At(const uint8_t* b, int i) {
    return ScaledOf256(b, i, NibbleOf256(b + 16, i));
  }
};
struct Q5_K {
  static constexpr int kElements = 256, kBytes = 176;
  static DEVICE float At(const uint8_t* b, int i) {
    const int high = (ByteAt(b + 16 + i % 32) >> i / 32 & 1) << 4;
    return ScaledOf256(b, i, NibbleOf256(b + 48, i) | high);
  }
};
struct Q6_K {
  static constexpr int kElements = 256, kBytes = 210;
  static DEVICE float At(const uint8_t* b, int i) {
    const int half = i / 128, in_half = i % 128;
    const int low = ByteAt(b + half * 64 + in_half % 64) >> in_half / 64 * 4 & 15;
    const int high = ByteAt(b + 128 + half * 32 + in_half % 32) >> in_half / 32 * 2 & 3;
    const int scale = static_cast<int8_t>(ByteAt(b + 192 + i / 16));
    return Mul(Mul(HalfAt(b + 208), static_cast<float>(scale)),
               static_cast<float>((low | high << 4) - 32));
  }
};

#endif  // QUIRE_BLOCKS_CUH_
