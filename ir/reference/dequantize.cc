#include "ir/reference/dequantize.h"

#include <bit>

#include "absl/strings/str_cat.h"

namespace quire {
namespace {

uint16_t U16(const uint8_t* b) { return static_cast<uint16_t>(b[0] | b[1] << 8); }
uint32_t U32(const uint8_t* b) { return U16(b) | static_cast<uint32_t>(U16(b + 2)) << 16; }
double F16(const uint8_t* b) { return F16ToF32(U16(b)); }

// Each function below decodes one block. "at n:" gives byte offsets.

// at 0: the number.
void DecodeF32(const uint8_t* b, double* out) { *out = std::bit_cast<float>(U32(b)); }
void DecodeF16(const uint8_t* b, double* out) { *out = F16(b); }
void DecodeBF16(const uint8_t* b, double* out) { *out = BF16ToF32(U16(b)); }
void DecodeF8E4M3(const uint8_t* b, double* out) { *out = F8E4M3ToF32(*b); }
void DecodeI32(const uint8_t* b, double* out) { *out = std::bit_cast<int32_t>(U32(b)); }

// at 0: f32 scale; at 4: f8e4m3 q[128].  scale * q
void DecodeF8E4M3_128(const uint8_t* b, double* out) {
  const double scale = std::bit_cast<float>(U32(b));
  for (int i = 0; i < 128; ++i) out[i] = scale * F8E4M3ToF32(b[4 + i]);
}

// Element i of 32 as a nibble of 16 bytes: the low nibbles are elements 0..15, the high
// ones 16..31.
int Nibble(const uint8_t* b, int i) { return i < 16 ? b[i] & 15 : b[i - 16] >> 4; }

// at 0: f16 d; at 2: nibbles q.  d * (q - 8)
void DecodeQ4_0(const uint8_t* b, double* out) {
  for (int i = 0; i < 32; ++i) out[i] = F16(b) * (Nibble(b + 2, i) - 8);
}

// at 0: f16 d; at 2: f16 m; at 4: nibbles q.  d * q + m
void DecodeQ4_1(const uint8_t* b, double* out) {
  for (int i = 0; i < 32; ++i) out[i] = F16(b) * Nibble(b + 4, i) + F16(b + 2);
}

// at 0: f16 d; at 2: u32 whose bit i is bit 4 of element i; at 6: nibbles, bits 0..3.  d * (q - 16)
void DecodeQ5_0(const uint8_t* b, double* out) {
  for (int i = 0; i < 32; ++i) {
    const int high = static_cast<int>(U32(b + 2) >> i & 1u) << 4;
    out[i] = F16(b) * ((Nibble(b + 6, i) | high) - 16);
  }
}

// at 0: f16 d; at 2: f16 m; at 4: u32 of bits 4; at 8: nibbles.  d * q + m
void DecodeQ5_1(const uint8_t* b, double* out) {
  for (int i = 0; i < 32; ++i) {
    const int high = static_cast<int>(U32(b + 4) >> i & 1u) << 4;
    out[i] = F16(b) * (Nibble(b + 8, i) | high) + F16(b + 2);
  }
}

// at 0: f16 d; at 2: i8 q[32].  d * q
void DecodeQ8_0(const uint8_t* b, double* out) {
  for (int i = 0; i < 32; ++i) out[i] = F16(b) * static_cast<int8_t>(b[2 + i]);
}

struct ScaleAndMin {
  int scale;
  int min;
};

// Eight 6-bit scales and eight 6-bit minimums in 12 bytes, one pair for each 32 elements. Bytes
// 0..3 hold scales 0..3 and bytes 4..7 minimums 0..3 in their low six bits. Byte 8 + j holds scale
// 4 + j in its low nibble and minimum 4 + j in its high nibble; the upper two bits of these are in
// the upper two bits of bytes j and 4 + j.
ScaleAndMin SixBitPair(const uint8_t* b, int j) {
  if (j < 4) return {b[j] & 63, b[j + 4] & 63};
  return {(b[j + 4] & 15) | (b[j - 4] >> 6) << 4, (b[j + 4] >> 4) | (b[j] >> 6) << 4};
}

// Element i of 256 as a nibble of 128 bytes: of each 64 elements, 32 bytes hold the first half low,
// the second high.
int NibbleOf256(const uint8_t* b, int i) {
  const uint8_t byte = b[i / 64 * 32 + i % 32];
  return i % 64 < 32 ? byte & 15 : byte >> 4;
}

// at 0: f16 d; at 2: f16 dmin; at 4: 12 bytes of scales and minimums; at 16: nibbles q.
// d * scale * q - dmin * min
void DecodeQ4_K(const uint8_t* b, double* out) {
  for (int i = 0; i < 256; ++i) {
    const ScaleAndMin pair = SixBitPair(b + 4, i / 32);
    out[i] = F16(b) * pair.scale * NibbleOf256(b + 16, i) - F16(b + 2) * pair.min;
  }
}

// at 0: f16 d; at 2: f16 dmin; at 4: 12 bytes of scales and minimums; at 16: 32 bytes whose byte i
// % 32 has bit 4 of element i in its bit i / 32; at 48: nibbles, bits 0..3.  d * scale * q - dmin *
// min
void DecodeQ5_K(const uint8_t* b, double* out) {
  for (int i = 0; i < 256; ++i) {
    const ScaleAndMin pair = SixBitPair(b + 4, i / 32);
    const int high = (b[16 + i % 32] >> i / 32 & 1) << 4;
    out[i] = F16(b) * pair.scale * (NibbleOf256(b + 48, i) | high) - F16(b + 2) * pair.min;
  }
}

// at 0: 128 bytes of nibbles, bits 0..3; at 128: 64 bytes of pairs, bits 4..5; at 192: i8
// scale[16], one for each 16 elements; at 208: f16 d.  d * scale * (q - 32) Of each 128 elements,
// 64 bytes hold elements 0..63 low and 64..127 high, and 32 bytes hold in bits 2k, 2k + 1 the upper
// bits of elements 32k .. 32k + 31.
void DecodeQ6_K(const uint8_t* b, double* out) {
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128;
    const int in_half = i % 128;
    const uint8_t low_byte = b[half * 64 + in_half % 64];
    const int low = in_half < 64 ? low_byte & 15 : low_byte >> 4;
    const int high = b[128 + half * 32 + in_half % 32] >> in_half / 32 * 2 & 3;
    const int scale = static_cast<int8_t>(b[192 + i / 16]);
    out[i] = F16(b + 208) * scale * ((low | high << 4) - 32);
  }
}

using DecodeFn = void (*)(const uint8_t* block, double* out);

DecodeFn DecoderOf(DType dtype) {
  switch (dtype) {
#define DTYPE(name, text, elements, bytes) \
  case DType::k##name:                     \
    return Decode##name;
#include "ir/dtype.def"
  }
  return nullptr;
}

}  // namespace

absl::Status Dequantize(DType dtype, absl::Span<const uint8_t> bytes, absl::Span<double> out) {
  const DTypeInfo& info = InfoOf(dtype);
  const size_t blocks = out.size() / info.block_elements;
  if (out.size() % info.block_elements != 0 || bytes.size() / info.block_bytes != blocks ||
      bytes.size() % info.block_bytes != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(bytes.size(), " bytes of ", info.text, " are not ", out.size(), " elements"));
  }
  const DecodeFn decode = DecoderOf(dtype);
  for (size_t i = 0; i < blocks; ++i) {
    decode(bytes.data() + i * info.block_bytes, out.data() + i * info.block_elements);
  }
  return absl::OkStatus();
}

}  // namespace quire
