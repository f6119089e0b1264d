#include "codegen/cpu/pack.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "codegen/cpu/packed_format.h"

namespace quire {
namespace {

// One block of 32 weights of a row, taken apart.
struct Unpacked {
  uint8_t u[kPackColumns];
  uint8_t scales[4];  // f16, or a byte for each scale unit
  uint8_t minimum[2];
};

void Nibbles(const uint8_t* bytes, uint8_t* u) {
  for (int i = 0; i < 16; ++i) {
    u[i] = bytes[i] & 15;
    u[i + 16] = bytes[i] >> 4;
  }
}

void FifthBits(const uint8_t* bytes, uint8_t* u) {
  uint32_t bits;
  std::memcpy(&bits, bytes, sizeof(bits));
  for (int i = 0; i < kPackColumns; ++i) {
    u[i] = static_cast<uint8_t>(u[i] | ((bits >> i & 1) << 4));
  }
}

// The j-th 6-bit scale and minimum of Q4_K and Q5_K, 12 bytes for 8 of each.
void SixBits(const uint8_t* s, int j, uint8_t* scale, uint8_t* minimum) {
  if (j < 4) {
    *scale = s[j] & 63;
    *minimum = s[j + 4] & 63;
  } else {
    *scale = static_cast<uint8_t>((s[j + 4] & 15) | (s[j - 4] >> 6 << 4));
    *minimum = static_cast<uint8_t>((s[j + 4] >> 4) | (s[j] >> 6 << 4));
  }
}

// Q4_K and Q5_K: columns 64c..64c+31 in the low halves of 32 bytes, 64c+32..64c+63 in the high.
void KNibbles(const uint8_t* q, int block, uint8_t* u) {
  q += block / 2 * 32;
  const int shift = block % 2 * 4;
  for (int i = 0; i < 32; ++i) u[i] = static_cast<uint8_t>(q[i] >> shift & 15);
}

// Q6_K: halves of 128 columns; 4 low bits in 64 bytes, 2 high bits in 32.
void SixK(const uint8_t* s, int block, uint8_t* u) {
  const uint8_t* low = s + block / 4 * 64 + block % 2 * 32;
  const uint8_t* high = s + 128 + block / 4 * 32;
  const int low_shift = block % 4 / 2 * 4, high_shift = block % 4 * 2;
  for (int i = 0; i < 32; ++i) {
    u[i] = static_cast<uint8_t>((low[i] >> low_shift & 15) | ((high[i] >> high_shift & 3) << 4));
  }
}

// Block number `block` of the row's stored block `s` (K types store 8 of them together).
void Unpack(DType dtype, const uint8_t* s, int block, Unpacked* out) {
  switch (dtype) {
    case DType::kQ4_0:
    case DType::kQ4_1:
    case DType::kQ5_0:
    case DType::kQ5_1: {
      std::memcpy(out->scales, s, 2);
      s += 2;
      if (dtype == DType::kQ4_1 || dtype == DType::kQ5_1) {
        std::memcpy(out->minimum, s, 2);
        s += 2;
      }
      const bool five = dtype == DType::kQ5_0 || dtype == DType::kQ5_1;
      Nibbles(s + (five ? 4 : 0), out->u);
      if (five) FifthBits(s, out->u);
      return;
    }
    case DType::kQ8_0:
      std::memcpy(out->scales, s, 2);
      for (int i = 0; i < kPackColumns; ++i) out->u[i] = s[2 + i] ^ 0x80;
      return;
    case DType::kQ4_K:
    case DType::kQ5_K:
      SixBits(s + 4, block, &out->scales[0], &out->minimum[0]);
      if (dtype == DType::kQ4_K) {
        KNibbles(s + 16, block, out->u);
      } else {
        KNibbles(s + 48, block, out->u);
        for (int i = 0; i < 32; ++i) {
          out->u[i] = static_cast<uint8_t>(out->u[i] | ((s[16 + i] >> block & 1) << 4));
        }
      }
      return;
    case DType::kQ6_K:
      SixK(s, block, out->u);
      out->scales[0] = s[192 + 2 * block];
      out->scales[1] = s[193 + 2 * block];
      return;
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
    case DType::kF8E4M3:
    case DType::kF8E4M3_128:
    case DType::kI32:
      return;
  }
}

// Columns of 16 rows into the planes of a packed block.
void WritePlanes(const PackedFormat& format, const uint8_t (*u)[kPackColumns], uint8_t* block) {
  uint8_t* low = block + format.low_at();
  uint8_t* high = block + format.high_at();
  std::memset(high, 0, static_cast<size_t>(format.high_bits) * 64);
  for (int lane = 0; lane < kPackLanes; ++lane) {
    const uint8_t* row = u[lane];
    if (format.low_bits == 8) {
      for (int j = 0; j < 8; ++j) std::memcpy(low + j * 64 + lane * 4, row + 4 * j, 4);
      continue;
    }
    for (int j = 0; j < 4; ++j) {
      for (int i = 0; i < 4; ++i) {
        low[j * 64 + lane * 4 + i] =
            static_cast<uint8_t>((row[4 * j + i] & 15) | (row[16 + 4 * j + i] & 15) << 4);
      }
    }
    for (int column = 0; format.high_bits != 0 && column < kPackColumns; ++column) {
      const int g = column / 4, i = column % 4, bits = row[column] >> 4;
      uint8_t& byte = format.high_bits == 1 ? high[lane * 4 + i] : high[g / 4 * 64 + lane * 4 + i];
      const int shift = format.high_bits == 1 ? g : g % 4 * 2;
      byte = static_cast<uint8_t>(byte | bits << shift);
    }
  }
}

// d (and dmin) of a stored super-block.
void WriteHeader(DType dtype, const uint8_t* s, int lane, uint8_t* header) {
  if (dtype == DType::kQ6_K) {
    std::memcpy(header + 2 * lane, s + 208, 2);
  } else {
    std::memcpy(header + 2 * lane, s, 2);
    std::memcpy(header + 32 + 2 * lane, s + 2, 2);
  }
}

void PackGroup(DType dtype, int64_t k, absl::Span<const uint8_t* const> rows, uint8_t* out) {
  const PackedFormat format = PackedFormatOf(dtype);
  const int stored_bytes = InfoOf(dtype).block_bytes;
  const int lanes = static_cast<int>(rows.size());
  const int unit_bytes = format.super ? 1 : 2;
  std::memset(out, 0, static_cast<size_t>(format.group_bytes(k)));
  uint8_t u[kPackLanes][kPackColumns] = {};
  const int64_t stored_blocks = k / (kPackColumns * format.blocks());
  for (int64_t stored = 0; stored < stored_blocks; ++stored) {
    uint8_t* block = out + stored * format.super_bytes();
    for (int lane = 0; format.super && lane < lanes; ++lane) {
      WriteHeader(dtype, rows[lane] + stored * stored_bytes, lane, block);
    }
    block += format.header_bytes();
    for (int b = 0; b < format.blocks(); ++b, block += format.block_bytes()) {
      for (int lane = 0; lane < lanes; ++lane) {
        Unpacked one;
        Unpack(dtype, rows[lane] + stored * stored_bytes, b, &one);
        std::memcpy(u[lane], one.u, sizeof(one.u));
        for (int unit = 0; unit < format.scale_units; ++unit) {
          std::memcpy(block + (unit * kPackLanes + lane) * unit_bytes,
                      one.scales + unit * unit_bytes, static_cast<size_t>(unit_bytes));
        }
        if (format.minimum) {
          std::memcpy(block + format.scale_bytes() + lane * unit_bytes, one.minimum,
                      static_cast<size_t>(unit_bytes));
        }
      }
      WritePlanes(format, u, block);
    }
  }
}

// A strip of float rows: [k][width].
template <typename T>
void PackStrip(int64_t k, int width, absl::Span<const uint8_t* const> rows, uint8_t* out) {
  T* packed = reinterpret_cast<T*>(out);
  constexpr int64_t kTile = 64;  // columns that stay in the first-level cache
  for (int64_t begin = 0; begin < k; begin += kTile) {
    const int64_t end = std::min(k, begin + kTile);
    for (int row = 0; row < width; ++row) {
      const bool present = row < static_cast<int>(rows.size());
      for (int64_t column = begin; column < end; ++column) {
        T value{};
        if (present) std::memcpy(&value, rows[row] + column * sizeof(T), sizeof(T));
        packed[column * width + row] = value;
      }
    }
  }
}

// The same of f8e4m3_128: of each block the scales, then the elements.
void PackScaledStrip(int64_t k, int width, absl::Span<const uint8_t* const> rows, uint8_t* out) {
  constexpr int64_t kElements = 128, kScaleBytes = 4;
  const int64_t row_bytes = kScaleBytes + kElements;
  std::memset(out, 0, static_cast<size_t>(k / kElements * row_bytes * width));
  for (int64_t block = 0; block < k / kElements; ++block, out += row_bytes * width) {
    for (size_t row = 0; row < rows.size(); ++row) {
      const uint8_t* from = rows[row] + block * row_bytes;
      std::memcpy(out + row * kScaleBytes, from, kScaleBytes);
      uint8_t* to = out + width * kScaleBytes + row;
      for (int64_t i = 0; i < kElements; ++i) to[i * width] = from[kScaleBytes + i];
    }
  }
}

int64_t RoundUp(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

}  // namespace

PackedFormat PackedFormatOf(DType dtype) {
  PackedFormat format;
  switch (dtype) {
    case DType::kQ4_0:
      format.offset = 8;
      break;
    case DType::kQ4_1:
      format.minimum = true;
      break;
    case DType::kQ5_0:
      format.high_bits = 1, format.offset = 16;
      break;
    case DType::kQ5_1:
      format.high_bits = 1, format.minimum = true;
      break;
    case DType::kQ8_0:
      format.low_bits = 8, format.offset = 128;
      break;
    case DType::kQ4_K:
      format.super = format.minimum = true;
      break;
    case DType::kQ5_K:
      format.super = format.minimum = true, format.high_bits = 1;
      break;
    case DType::kQ6_K:
      format.super = true, format.high_bits = 2, format.offset = 32, format.scale_units = 2;
      break;
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
    case DType::kF8E4M3:
    case DType::kF8E4M3_128:
    case DType::kI32:
      break;
  }
  return format;
}

int64_t PackedBytes(WeightLayout layout, DType dtype, int64_t n, int64_t k) {
  if (layout == WeightLayout::kRows) return n * RowBytes(dtype, k);
  const int64_t padded = RoundUp(n, kPackLanes);
  if (!IsIntegerBlockType(dtype)) return padded * RowBytes(dtype, k);
  return padded / kPackLanes * PackedFormatOf(dtype).group_bytes(k);
}

absl::Status Pack(WeightLayout layout, DType dtype, int64_t k,
                  absl::Span<const uint8_t* const> rows, absl::Span<uint8_t> packed) {
  const int64_t n = static_cast<int64_t>(rows.size());
  const int unit = InfoOf(dtype).block_elements;
  if (k <= 0 || k % unit != 0) {
    return absl::InvalidArgumentError(absl::StrCat("pack: ", k, " columns of ", DTypeText(dtype),
                                                   "\n  allowed: a multiple of ", unit));
  }
  if (static_cast<int64_t>(packed.size()) != PackedBytes(layout, dtype, n, k)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "pack: room for ", packed.size(), " bytes\n  allowed: ", PackedBytes(layout, dtype, n, k)));
  }
  uint8_t* out = packed.data();
  const int64_t step = layout == WeightLayout::kRows ? 1
                       : IsIntegerBlockType(dtype)   ? kPackLanes
                                                     : kPackStrip;
  for (int64_t row = 0; row < n; row += step) {
    const absl::Span<const uint8_t* const> some =
        rows.subspan(static_cast<size_t>(row), static_cast<size_t>(step));
    const int width = static_cast<int>(RoundUp(static_cast<int64_t>(some.size()), kPackLanes));
    if (layout == WeightLayout::kRows) {
      std::memcpy(out, some[0], static_cast<size_t>(RowBytes(dtype, k)));
      out += RowBytes(dtype, k);
    } else if (IsIntegerBlockType(dtype)) {
      PackGroup(dtype, k, some, out);
      out += PackedFormatOf(dtype).group_bytes(k);
    } else if (dtype == DType::kF32 || dtype == DType::kI32) {
      PackStrip<uint32_t>(k, width, some, out);
      out += width * RowBytes(dtype, k);
    } else if (dtype == DType::kF8E4M3_128) {
      PackScaledStrip(k, width, some, out);
      out += width * RowBytes(dtype, k);
    } else if (dtype == DType::kF8E4M3) {
      PackStrip<uint8_t>(k, width, some, out);
      out += width * RowBytes(dtype, k);
    } else {
      PackStrip<uint16_t>(k, width, some, out);
      out += width * RowBytes(dtype, k);
    }
  }
  return absl::OkStatus();
}

}  // namespace quire
