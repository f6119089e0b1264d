#include "ir/dtype.h"

#include <bit>
#include <cmath>

namespace quire {
namespace {

constexpr DTypeInfo kInfos[] = {
#define DTYPE(name, text, elements, bytes) {DType::k##name, text, elements, bytes},
#include "ir/dtype.def"
};

}  // namespace

const DTypeInfo& InfoOf(DType dtype) { return kInfos[static_cast<int>(dtype)]; }

absl::Span<const DTypeInfo> AllDTypes() { return kInfos; }

absl::string_view DTypeText(DType dtype) { return InfoOf(dtype).text; }

std::optional<DType> ParseDType(absl::string_view text) {
  for (const DTypeInfo& info : kInfos) {
    if (text == info.text) return info.dtype;
  }
  return std::nullopt;
}

int64_t RowBytes(DType dtype, int64_t elements) {
  const DTypeInfo& info = InfoOf(dtype);
  return elements / info.block_elements * info.block_bytes;
}

float F16ToF32(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1fu;
  const uint32_t mantissa = bits & 0x3ffu;
  if (exponent == 0) {
    const float magnitude = std::ldexp(static_cast<float>(mantissa), -24);
    return sign != 0 ? -magnitude : magnitude;
  }
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

uint16_t F32ToF16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // rounds past 65504
  if (magnitude < 0x38800000u) {
    // Subnormal in f16: adding 0.5 aligns the mantissa so that the FPU rounds to even at bit 24.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u));
  }
  const uint32_t odd = (magnitude >> 13) & 1u;
  return static_cast<uint16_t>(sign | ((magnitude - 0x38000000u + 0xfffu + odd) >> 13));
}

float BF16ToF32(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

uint16_t F32ToBF16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

float F8E4M3ToF32(uint8_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x80u) << 24;
  const uint32_t magnitude = bits & 0x7fu;
  if (magnitude == 0x7f) return std::bit_cast<float>(sign | 0x7fc00000u);
  if (magnitude < 8) {
    const float subnormal = std::ldexp(static_cast<float>(magnitude), -9);
    return sign != 0 ? -subnormal : subnormal;
  }
  return std::bit_cast<float>(sign | ((magnitude << 20) + 0x3c000000u));
}

uint8_t F32ToF8E4M3(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 24) & 0x80u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return 0x7f;
  if (magnitude >= 0x43e00000u) return static_cast<uint8_t>(sign | 0x7eu);  // 448 and more
  if (magnitude < 0x3c800000u) {
    // Subnormal in f8e4m3: adding 2^14 aligns the mantissa so that the FPU rounds to even at bit 9.
    const float shifted = std::bit_cast<float>(magnitude) + 16384.0f;
    return static_cast<uint8_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x46800000u));
  }
  const uint32_t odd = (magnitude >> 20) & 1u;
  return static_cast<uint8_t>(sign | ((magnitude - 0x3c000000u + 0x7ffffu + odd) >> 20));
}

}  // namespace quire
