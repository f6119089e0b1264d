// Byte layouts of weights in WeightLayout::kRows16, the one place that the packer, the linear
// kernels and the embedding kernel read them from.
//
// Block types of integers. Rows in groups of 16, one lane of a 16-lane vector each; a group's
// super-blocks follow one another along k. With lane = row % 16, k counted inside a block of 32:
//
//   super-block:  [header] block block ...             1 or 8 blocks of 32 columns
//   header:       K types only: d f16[16], then dmin f16[16] if the type has minimums
//   block:        [scales] [minimums] low high
//   scales:       f16[16], or of K types u8[16] (Q6_K: s8[2][16], for columns 0..15 and 16..31)
//   minimums:     f16[16], or of K types u8[16]
//   low, 4 bits:  u8[4][16][4]: byte (j, lane, i) holds column 4j+i in its low half and column
//                 16+4j+i in its high half
//   low, 8 bits:  u8[8][16][4]: byte (j, lane, i) is column 4j+i
//   high, 1 bit:  u8[16][4]: bit g of byte (lane, i) belongs to column 4g+i
//   high, 2 bits: u8[2][16][4]: bits 2c, 2c+1 of byte (h, lane, i) belong to column 4(4h+c)+i
//
// A weight is scale * (u - offset) + minimum with u = low + (high << 4), where scale is d * scales
// and minimum is -dmin * minimums for K types.
//
// Bytes a weight (file -> packed): Q4_0 .5625, Q4_1 .625, Q5_0 .6875, Q5_1 .75, Q8_0 1.0625 and
// Q6_K .8203 unchanged; Q4_K .5625 -> .5781, Q5_K .6875 -> .7031 (6-bit scales take a byte).
//
// Float types. Rows in strips of 64 (the last of N16 % 64 rows, N16 = N rounded up to 16): element
// (row, k) of a strip of `width` rows is number k * width + row % 64 of the strip.
//
// f8e4m3_128. Strips likewise; of each 128 columns the rows' scales, f32[width], then their
// elements, u8[128][width].
//
// Rows beyond N are zero.
#ifndef QUIRE_CODEGEN_CPU_PACKED_FORMAT_H_
#define QUIRE_CODEGEN_CPU_PACKED_FORMAT_H_

#include <cstdint>

#include "ir/dtype.h"

namespace quire {

inline constexpr int kPackLanes = 16;    // rows of a group
inline constexpr int kPackStrip = 64;    // rows of a strip of float weights
inline constexpr int kPackColumns = 32;  // columns of a block

struct PackedFormat {
  int low_bits = 4;   // 4 or 8
  int high_bits = 0;  // 0, 1 or 2
  int offset = 0;
  bool minimum = false;
  bool super = false;   // K types: 8 blocks under one header, scales in a byte
  int scale_units = 1;  // scales of one block: each for 32 / scale_units columns

  int blocks() const { return super ? 8 : 1; }  // of a super-block
  int header_bytes() const { return super ? (minimum ? 64 : 32) : 0; }
  int scale_bytes() const { return kPackLanes * scale_units * (super ? 1 : 2); }
  int minimum_bytes() const { return minimum ? kPackLanes * (super ? 1 : 2) : 0; }
  int low_at() const { return scale_bytes() + minimum_bytes(); }  // in a block
  int high_at() const { return low_at() + low_bits * 64; }
  int block_bytes() const { return high_at() + high_bits * 64; }
  int super_bytes() const { return header_bytes() + blocks() * block_bytes(); }
  int64_t group_bytes(int64_t k) const { return k / (kPackColumns * blocks()) * super_bytes(); }
};

// REQUIRES: IsIntegerBlockType(dtype).
PackedFormat PackedFormatOf(DType dtype);

}  // namespace quire

#endif  // QUIRE_CODEGEN_CPU_PACKED_FORMAT_H_
